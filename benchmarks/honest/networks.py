"""A network of the campaign in the form that a run asks for, and the subject that runs it."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.honest.architectures import Architecture, module
from benchmarks.honest.inputs import PLAIN
from benchmarks.honest.runs import BFLOAT16, FLOAT16, ONNX, RECORDED, RECORDED_INSIDE, WATCHED, Run

import verax
from verax.campaign.subjects import Remembering
from verax.frontends.model import Model
from verax.frontends.onnx.writer import to_bytes
from verax.ir.graph import Graph
from verax.judge.protocol import Runner
from verax.runners.arrays import INPUT_MARK, OUTPUT_MARK, ArraysRunner
from verax.runners.functions import named_results
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.openvino import OpenVinoRunner
from verax.runners.registry import resolve
from verax.runners.torch_tensors import from_torch
from verax.runners.tvm import TvmRunner

INPUT_SEED = 41
OPSET = 17
"""Of files that PyTorch's older exporter writes."""


@dataclass
class Network:
    """A network in one dtype and form.

    graph: as Verax read it; source: what its own runtimes run (path, module and program); inputs:
    style -> arrays by the graph's names.
    """

    graph: Graph
    source: Any
    inputs: Mapping[str, dict[str, np.ndarray]]
    subjects: dict[tuple[str, str], Runner] = field(default_factory=dict)


class Forms:
    """The forms of one architecture, each made when it is asked for first."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self._made: dict[tuple[str, str], Network | Exception] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="honest-")

    def network(self, dtype: str, form: str) -> Network:
        """Raises whatever the exporter or the reader raised, each time."""
        key = dtype, form
        if key not in self._made:
            try:
                self._made[key] = self._make(dtype, form)
            except Exception as error:
                self._made[key] = error
        made = self._made[key]
        if isinstance(made, Exception):
            raise made
        return made

    def _make(self, dtype: str, form: str) -> Network:
        given = {style: self.architecture.inputs(style, INPUT_SEED) for style in ("plain", "noise")}
        model = module(self.architecture)
        convert = converted(dtype)
        model = model.to(convert("dtype")) if convert("dtype") is not None else model
        given = {style: tuple(convert(a) for a in arrays) for style, arrays in given.items()}
        example = tensors_of(given[PLAIN])
        with quiet():
            if form == ONNX:
                path = Path(self._folder.name) / f"{dtype}.onnx"
                write_onnx(model, example, path)
                read, source = verax.load(path), path
            else:
                import torch

                program = torch.export.export(model, example)
                read, source = verax.load(program), (model, program)
        assert isinstance(read, Model)
        inputs = {s: dict(zip(read.graph.inputs, arrays)) for s, arrays in given.items()}
        return Network(read.graph, source, inputs)


def converted(dtype: str) -> Callable[[Any], Any]:
    """Arrays of floats in another dtype; "dtype" gives torch's name of it, None for float32."""
    import ml_dtypes
    import torch

    kinds = {
        FLOAT16: (np.dtype(np.float16), torch.float16),
        BFLOAT16: (np.dtype(ml_dtypes.bfloat16), torch.bfloat16),
    }

    def convert(array: Any) -> Any:
        if isinstance(array, str):
            return kinds[dtype][1] if dtype in kinds else None
        return (
            array.astype(kinds[dtype][0]) if dtype in kinds and array.dtype.kind == "f" else array
        )

    return convert


def tensors_of(arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """As `tensors`, bfloat16 as well."""
    from verax.runners.torch_tensors import to_torch

    return tuple(to_torch(a) for a in arrays)


def write_onnx(model: Any, example: tuple[Any, ...], path: Path) -> None:
    """By PyTorch's present exporter where onnxscript is installed, else by its older one."""
    import importlib.util

    import torch

    if importlib.util.find_spec("onnxscript") is not None:
        program = torch.onnx.export(model, example, dynamo=True, verbose=False)
        program.save(str(path))
        return
    torch.onnx.export(model, example, str(path), dynamo=False, opset_version=OPSET)


@contextlib.contextmanager
def quiet() -> Any:
    """Exporters warn of much that does not matter here."""
    import logging

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def subject(network: Network, run: Run) -> Runner:
    """The implementation under test; live ones are run once for every set of values asked for."""
    live = network.subjects.setdefault((run.runner, run.style), Remembering(_live(network, run)))
    if run.view not in (RECORDED, RECORDED_INSIDE):
        return live
    inputs = network.inputs[run.style]
    inner = [v for node in network.graph.nodes for v in node.outputs]
    shown = live.run(network.graph, inputs, inner if run.view == RECORDED_INSIDE else None)
    stored = {f"{INPUT_MARK}{k}": v for k, v in inputs.items()}
    stored |= {f"{OUTPUT_MARK}{k}": v for k, v in shown.items()}
    return ArraysRunner(stored, f"recorded from {run.runner}")


def watched(run: Run) -> bool:
    """Whether values inside are asked for while it runs."""
    return run.view == WATCHED


def _live(network: Network, run: Run) -> Runner:
    name, _, option = run.runner.partition(":")
    common: dict[str, Any] = {"writer": to_bytes, "threads": 1, "isolated": False}
    path = network.source if run.form == ONNX else None
    if name == "onnxruntime":
        return OnnxRuntimeRunner(path, level=option, **common)
    if name == "openvino":
        return OpenVinoRunner(path, precision=option or "f32", **common)
    if name == "tvm":
        return TvmRunner(path, opt_level=int(option[1:]) if option else 3, **common)
    if name == "eager":
        return resolve(network.source[0])
    if name == "exported":
        return resolve(network.source[1])
    if name == "compiled":
        return Compiled(network.source[0])
    return resolve(run.runner, threads=1)


class Compiled:
    """A module through torch.compile (Inductor): outputs only."""

    watches = False
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, model: Any) -> None:
        import torch

        self.name, self.model = "torch.compile", torch.compile(model)

    def describe(self) -> dict[str, str]:
        return {"kind": "torch module, compiled"}

    def run(self, graph: Graph, inputs: Any, keep: Any = None) -> dict[str, np.ndarray]:
        import torch

        with torch.no_grad(), quiet():
            result = self.model(*tensors_of(tuple(inputs[v] for v in graph.inputs)))
        many = result if isinstance(result, tuple | list) else (result,)
        return named_results(graph, [from_torch(r) for r in many], self.name)
