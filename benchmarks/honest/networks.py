"""A network of the campaign in the form that a run asks for, and the subject that runs it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.honest.architectures import module, registry
from benchmarks.honest.files import (
    QUANTISED,
    ModelFile,
    inputs_for,
    model_files,
    quantised_case,
)
from benchmarks.honest.inputs import PLAIN, STYLES
from benchmarks.honest.lite import DRAWS, LITE, lite_files
from benchmarks.honest.runs import (
    BFLOAT16,
    FILE,
    FLOAT16,
    ONNX,
    PROGRAM,
    RECORDED,
    RECORDED_INSIDE,
    WATCHED,
    Run,
)

import verax
from verax.campaign.subjects import CachedAnswers
from verax.export.onnx.writer import to_bytes
from verax.frontends.model import Model
from verax.ir.graph import Graph, specialize
from verax.judge.inputs import choose_sizes, draw_inputs
from verax.judge.protocol import Capabilities, Runner
from verax.reference.evaluate import bind_symbols
from verax.runners.arrays import INPUT_MARK, OUTPUT_MARK, ArraysRunner, load_npz
from verax.runners.functions import named_results
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.openvino import OpenVinoRunner
from verax.runners.pytorch.torch_tensors import from_torch
from verax.runners.subjects.factory import runner_of
from verax.runners.tvm import TvmRunner

INPUT_SEED = 41
OPSET = 17
"""Of files that PyTorch's older exporter writes."""
PRESENT_EVERY = 4
ZOO = ("zoo_", "architectures", "hugging_face", "inputs")
"""Beginnings of the names of files that decide what networks are."""


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
    """The forms of one architecture or file, each made when it is asked for first."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.family, self.origin = name, *belongs(name)
        self._made: dict[tuple[str, str], Network | Exception] = {}
        self._folder = store(folder)

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
        if self.origin == "file" or self.family == QUANTISED:
            return _of_file(self.name, form, self._folder)
        architecture = registry()[self.name]
        given = {style: architecture.inputs(style, INPUT_SEED) for style in STYLES}
        model = module(architecture)
        convert = converted(dtype)
        model = model.to(convert("dtype")) if convert("dtype") is not None else model
        given = {style: tuple(convert(a) for a in arrays) for style, arrays in given.items()}
        example = tensors_of(given[PLAIN])
        with quiet():
            if form == ONNX:
                path = self._folder / f"{self.name}-{dtype}.onnx"
                once(path, lambda to: write_onnx(self.name, model, example, to))
                read, source = verax.load(path), path
            else:
                import torch

                path = self._folder / f"{self.name}-{dtype}.pt2"
                once(path, lambda to: torch.export.save(torch.export.export(model, example), to))
                program = torch.export.load(path)
                read, source = verax.load(program), (model, program)
        assert isinstance(read, Model)
        inputs = {s: dict(zip(read.graph.inputs, arrays)) for s, arrays in given.items()}
        return Network(read.graph, source, inputs)


def belongs(name: str) -> tuple[str, str]:
    """(family, origin) of an architecture, a file or a group of quantised networks.

    Raises KeyError for any other name."""
    if name.startswith(QUANTISED):
        return "quantised", "litert" if name.startswith(LITE) else "onnxruntime"
    if name in model_files():
        return model_files()[name].family, "file"
    return registry()[name].family, registry()[name].origin


def _of_file(name: str, form: str, folder: Path) -> Network:
    """A file, or one case of a group of quantised networks."""
    if name.startswith(LITE):
        path = folder / f"{name}.tflite"
        once(path, lambda to: to.write_bytes(lite_files()[name]))
        read = verax.load(path)
        assert isinstance(read, Model)
        graph = specialize(read.graph, choose_sizes(read.graph))
        return Network(
            graph, path, {f"draw{i}": draw_inputs(graph, i)[0] for i in range(max(DRAWS.values()))}
        )
    if form == FILE:
        file = model_files()[name]
        path, read = file.path, verax.load(file.path)
        assert isinstance(read, Model)
        graph = specialize(read.graph, _sizes(file, read.graph))
        return Network(graph, path, {s: inputs_for(graph, s, INPUT_SEED) for s in STYLES})
    case = quantised_case(name, form)
    read = verax.load(case.model)
    assert isinstance(read, Model)
    source = case.model if isinstance(case.model, Path) else case.model.SerializeToString()
    return Network(read.graph, source, {PLAIN: case.inputs})


def _sizes(file: ModelFile, graph: Graph) -> dict[str, int]:
    """Sizes that a file leaves open: those of the answers beside it, for not every size works."""
    if not file.stored:
        return choose_sizes(graph)
    given = load_npz(file.stored[0]).stored_inputs or {}
    return bind_symbols(graph, dict(zip(graph.inputs, given.values(), strict=True)))


def store(folder: Path) -> Path:
    """The folder for exported files: of this zoo and these exporters, no others."""
    import torch

    mark = hashlib.sha256(torch.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        if source.name.startswith(ZOO):
            mark.update(source.read_bytes())
    found = folder / f"models-{mark.hexdigest()[:8]}"
    found.mkdir(parents=True, exist_ok=True)
    return found


def once(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` make a file unless it is there; a half-written one never bears its name."""
    if not path.exists():
        part = path.with_name(f"part-{os.getpid()}-{path.name}")
        write(part)
        part.rename(path)


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
    from verax.runners.pytorch.torch_tensors import to_torch

    return tuple(to_torch(a) for a in arrays)


def write_onnx(name: str, model: Any, example: tuple[Any, ...], path: Path) -> None:
    """By PyTorch's older exporter, for one name in PRESENT_EVERY by its present one, which needs
    onnxscript and takes long; what one of them cannot write the other may."""
    present = zlib.crc32(name.encode()) % PRESENT_EVERY == 0
    ways = [_by_script, _by_program] if not present else [_by_program, _by_script]
    if importlib.util.find_spec("onnxscript") is None:
        ways = [_by_script]
    failures = []
    for way in ways:
        try:
            return way(model, example, path)
        except Exception as error:
            failures.append(error)
    raise failures[0]


def _by_script(model: Any, example: tuple[Any, ...], path: Path) -> None:
    import torch

    torch.onnx.export(model, example, str(path), dynamo=False, opset_version=OPSET)


def _by_program(model: Any, example: tuple[Any, ...], path: Path) -> None:
    import torch

    torch.onnx.export(model, example, dynamo=True, verbose=False).save(str(path))


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
    if run.runner.endswith(".npz"):
        return _stored(network, run)
    live = network.subjects.setdefault((run.runner, run.style), CachedAnswers(_live(network, run)))
    if run.view not in (RECORDED, RECORDED_INSIDE):
        return live
    inputs = network.inputs[run.style]
    inner = [v for node in network.graph.nodes for v in node.outputs]
    shown = live.run(network.graph, inputs, inner if run.view == RECORDED_INSIDE else None)
    stored = {f"{INPUT_MARK}{k}": v for k, v in inputs.items()}
    stored |= {f"{OUTPUT_MARK}{k}": v for k, v in shown.items()}
    return ArraysRunner(stored, f"recorded from {run.runner}")


def _stored(network: Network, run: Run) -> ArraysRunner:
    """Answers beside a file; a PyTorch program's inputs go by position, as names are not kept."""
    runner = load_npz(network.source.with_name(run.runner))
    given, names = runner.stored_inputs or {}, list(network.graph.inputs)
    if len(given) == len(names) and not set(given) & set(names):
        runner.stored_inputs = dict(zip(names, given.values()))
    return runner


def watched(run: Run) -> bool:
    """Whether values inside are asked for while it runs."""
    return run.view == WATCHED


def _live(network: Network, run: Run) -> Runner:
    name, _, option = run.runner.partition(":")
    common: dict[str, Any] = {"writer": to_bytes, "threads": 1, "isolated": False}
    onnx = run.form not in (PROGRAM, FILE) or str(network.source).endswith(".onnx")
    path = network.source if onnx else None
    if name == "onnxruntime":
        return OnnxRuntimeRunner(path, level=option, **common)
    if name == "openvino":
        return OpenVinoRunner(path, precision=option or "f32", **common)
    if name == "tvm":
        return TvmRunner(path, opt_level=int(option[1:]) if option else 3, **common)
    if name == "eager":
        return runner_of(network.source[0])
    if name == "exported":
        return runner_of(network.source[1])
    if name == "compiled":
        return Compiled(network.source[0])
    source = network.source if run.form == FILE else None
    return runner_of(run.runner, threads=1, source=source)


class Compiled:
    """A module through torch.compile (Inductor): outputs only."""

    capabilities = Capabilities()
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
