"""`gate`: two versions, levels or machines of a runtime, held against each other on models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from verax.api import Subject, name_apart, subject_of, with_examples
from verax.base.errors import InputError, UsageError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import CHECKED_AS_USUAL, CheckKeywords, CheckOptions, changed
from verax.base.process.helpers import helper_scope
from verax.compiling import Network, graph_of
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.judge.gate import gate as judge_gate
from verax.records.environment import environment
from verax.records.gate import GateRecord, ModelChange

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share done."""


@with_options(CheckOptions)
@helper_scope()
def gate(
    old: Subject,
    new: Subject,
    models: Network | Sequence[Network],
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    threads: int = 0,
    sizes: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
    **keywords: Unpack[CheckKeywords],
) -> GateRecord:
    """What changes on each model when `old` gives way to `new`, and whether it matters.

        verax.gate("onnxruntime@1.20.0", "onnxruntime", ["a.onnx", "b.onnx"]).change

    old, new: subjects as `check` takes them; `onnxruntime@VERSION` is another version in an
    environment of its own, `python:PATH` that of an interpreter. models: one or several, as `check`
    takes them. inputs: by name; a model of which none of the inputs is among them gets drawn ones.
    threads: of runtimes, 0 for their choice. sizes: of symbols, for drawn inputs. progress: called
    with what is being done and the share done. options, keywords: of the two checks; `allow` names
    arithmetics that the new subject may use though the old one did not.

    Raises `UsageError` for no model, and inputs that no model has; `InputError` for a model that
    lacks some of its inputs; `MissingPackageError` for a runtime that is not there.
    """
    options = changed(options, keywords)
    networks = list(models) if isinstance(models, list | tuple) else [models]
    if not networks:
        raise UsageError("there is no model to run", next_step="give at least one")
    loaded = [with_examples(network, None)[0] for network in networks]
    _require_inputs_of_some(inputs, [graph_of(network) for network in loaded])
    changes: list[ModelChange] = []
    for i, (model, network) in enumerate(zip(networks, loaded)):
        graph = graph_of(network)
        label = _model_name(model, graph)
        runners = [subject_of(subject, network, threads, options.timeout) for subject in (old, new)]
        name_apart(runners[0], runners[1], (old, new))

        def show(done: int, total: int, stage: str, label: str = label, first: int = i) -> None:
            if progress is not None:
                share = (first + done / max(total, 1)) / len(networks)
                progress(f"{label}, {stage}", share)

        change = judge_gate(
            graph,
            runners[0],
            runners[1],
            _inputs_of(inputs, graph, label),
            model=label,
            sizes=sizes,
            pixels=network.pixels if isinstance(network, Model) else {},
            progress=show,
            options=options,
        )
        changes.append(change)
    return GateRecord(_name(old), _name(new), tuple(changes), environment(), options.seed)


def _name(spec: Subject) -> str:
    if isinstance(spec, str | os.PathLike):
        return os.fspath(spec)
    return str(getattr(spec, "name", type(spec).__name__))


def _model_name(model: Any, graph: Graph) -> str:
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    source = getattr(model, "source", "")
    return os.fspath(source) if isinstance(source, str | os.PathLike) and source else graph.name


def _require_inputs_of_some(
    inputs: Mapping[str, np.ndarray] | None, graphs: Sequence[Graph]
) -> None:
    """Raise `UsageError` unless every array is an input of one of the networks."""
    declared = {name for graph in graphs for name in graph.inputs}
    strange = sorted(set(inputs or ()) - declared)
    if strange:
        raise UsageError(
            f"no model has an input {', '.join(strange)}",
            next_step=f"they have {', '.join(sorted(declared))}",
        )


def _inputs_of(
    inputs: Mapping[str, np.ndarray] | None, graph: Graph, model: str
) -> dict[str, np.ndarray] | None:
    """Those of the arrays that are inputs of a network; None where none is, and all are drawn."""
    own = {name: array for name, array in (inputs or {}).items() if name in graph.inputs}
    missing = [name for name in graph.arguments if name not in own]
    if own and missing:
        raise InputError(
            f"some of the inputs are given, and not {', '.join(missing)}",
            place=model,
            next_step="give all of them, or none",
        )
    return own or None
