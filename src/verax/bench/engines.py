"""How each engine loads a model and runs it: the engine's own best settings, float32, latency.

An engine is a function (model path, threads) -> Prepared. Verax is one of them and is loaded as a
user loads it. PyTorch cannot read ONNX; it takes `FILE.py:FUNCTION`, which makes the same module.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional

Inputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A loaded model. `bind` takes the inputs once and gives a function that runs one inference
    and returns the outputs in order."""

    version: str
    bind: Callable[[Inputs], Callable[[], Sequence[np.ndarray]]]


def onnxruntime(model: str, threads: int) -> Prepared:
    """ONNX Runtime's CPU provider, all graph optimisations."""
    package = optional("onnxruntime", "to time ONNX Runtime")
    options = package.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = package.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        given = dict(inputs)
        return lambda: session.run(None, given)

    return Prepared(package.__version__, bind)


def openvino(model: str, threads: int) -> Prepared:
    """OpenVINO's CPU plugin, float32 asked for by name, one stream."""
    package = optional("openvino", "to time OpenVINO")
    compiled = package.Core().compile_model(
        model,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        },
    )
    request = compiled.create_infer_request()

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        tensors = {n: package.Tensor(a, shared_memory=True) for n, a in inputs.items()}
        kept = tuple(inputs.values())  # the tensors do not keep the arrays alive

        def run() -> Sequence[np.ndarray]:
            assert kept
            request.infer(tensors)
            return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

        return run

    return Prepared(package.__version__.partition("-")[0], bind)


def torch(model: str, threads: int) -> Prepared:
    """PyTorch, eager, inference mode."""
    return _torch(model, threads, compiled=False)


def torch_compiled(model: str, threads: int) -> Prepared:
    """PyTorch with torch.compile's defaults."""
    return _torch(model, threads, compiled=True)


def _torch(model: str, threads: int, *, compiled: bool) -> Prepared:
    package = optional("torch", "to time PyTorch")
    package.set_num_threads(threads)
    file, _, function = model.rpartition(":")
    if not file.endswith(".py"):
        raise UsageError(
            "PyTorch cannot read this model", place=model, next_step="name it as FILE.py:FUNCTION"
        )
    module = getattr(_module_of(file), function)()
    call = package.compile(module) if compiled else module

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        tensors = [package.from_numpy(array) for array in inputs.values()]

        def run() -> Sequence[np.ndarray]:
            with package.inference_mode():
                found = call(*tensors)
            return [t.numpy() for t in (found if isinstance(found, tuple | list) else [found])]

        return run

    return Prepared(package.__version__, bind)


def _module_of(file: str) -> Any:
    """The Python module in `file`, run once."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise UsageError("this is not a Python file", place=file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _verax(level: int) -> Callable[[str, int], Prepared]:
    def prepare(model: str, threads: int) -> Prepared:
        verax = importlib.import_module("verax")  # not loaded in the other engines' processes
        exe = verax.compile(model, opt_level=level, threads=threads)

        def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
            given = dict(inputs)
            return lambda: tuple(exe.run(given).values())

        return Prepared(verax.__version__, bind)

    return prepare


ENGINES: dict[str, Callable[[str, int], Prepared]] = {
    "verax": _verax(1),
    "verax:O0": _verax(0),
    "verax:O1": _verax(1),
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "torch": torch,
    "torch-compiled": torch_compiled,
}
"""Engines by the name that `verax bench --against` takes."""
