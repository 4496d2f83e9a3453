"""`verax.record`: what an implementation makes of its inputs, kept as the .npz that `check` takes.

So a program can be judged where Verax does not run it: record there, judge here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verax.api import Subject, inputs_of, subject_of, with_examples
from verax.base.errors import UsageError
from verax.base.storage.files import atomic_write
from verax.compiling import Network, graph_of
from verax.ir.graph import Graph
from verax.ir.stored import storable
from verax.runners.arrays import INPUT_MARK, OUTPUT_MARK
from verax.runners.onnx.onnx_session import model_of_session
from verax.runners.subjects.resolve import OnnxSession, TorchModule, TorchProgram, resolve


def record(
    subject: Subject,
    inputs: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    model: Network | None = None,
    inner: bool = True,
) -> dict[str, np.ndarray]:
    """Run a subject once and keep its outputs, its inner values and the inputs that they belong to.

        verax.record(session, {"x": x}, "seen.npz")       # verax check net.onnx seen.npz
        verax.record(module, (x,), "seen.npz")            # inner values by hooks
        verax.check("net.onnx", verax.record(session, x))

    subject: as `check` takes it; an onnxruntime.InferenceSession and a torch.nn.Module know their
    own network. inputs: by name, or the only one; of a module as `load` takes them. path: an .npz
    to write. model: the network that the subject computes, whose names the values then have. inner:
    keep values inside the network, too: a runtime may fuse nodes otherwise, so that its last bits
    are others than without. Gives the arrays, inputs under in:NAME and values under out:NAME.

    Raises `UsageError` when it is not clear which network it is, or the file cannot be written,
    `InputError` when inputs do not fit, and what the subject raises.
    """
    if path is not None and Path(path).suffix != ".npz":
        raise UsageError("records of values are .npz files", place=os.fspath(path))
    network, named = with_examples(_network_of(subject, model), inputs)
    graph = graph_of(network)
    runner = subject_of(subject, network)
    arrays_in = {**graph.initial, **inputs_of(graph, named)}
    keep = [v for v in graph.producers if v not in graph.outputs] if inner else []
    results = runner.run(graph, arrays_in, keep if runner.capabilities.watches and keep else None)
    values = {v: a for v, a in results.items() if v in graph.producers}
    if not values:
        raise UsageError(
            "the subject gave no value of this network "
            f"(it gave {', '.join(results) or 'nothing'})",
            place=runner.name,
            next_step="give the network that it computes as model",
        )
    arrays = {f"{INPUT_MARK}{v}": np.asarray(a) for v, a in arrays_in.items()}
    arrays |= {f"{OUTPUT_MARK}{v}": np.asarray(a) for v, a in _ordered(values, graph).items()}
    if path is not None:
        with atomic_write(Path(path)) as stream:
            np.savez(stream, **{n: storable(a) for n, a in arrays.items()})  # type: ignore[arg-type]
    return arrays


def _network_of(subject: Subject, model: Network | None) -> Network:
    """The network that a subject computes, as far as it knows it itself."""
    if model is not None:
        return model
    match resolve(subject):
        case TorchModule(network) | TorchProgram(network):
            return network
        case OnnxSession(session) if (model_of_subject := model_of_session(session)) is not None:
            return model_of_subject
    raise UsageError(
        f"a {type(subject).__name__} does not say which network it computes",
        next_step="give it: verax.record(subject, inputs, model='net.onnx')",
    )


def _ordered(values: Mapping[str, np.ndarray], graph: Graph) -> dict[str, np.ndarray]:
    """In the order in which the network computes them."""
    return {v: values[v] for v in graph.producers if v in values}
