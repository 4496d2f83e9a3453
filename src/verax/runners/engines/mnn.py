"""MNN on its own files (`mnnconvert` makes them of ONNX), in float32 (precision: high)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("MNN", "to time MNN")


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. There are no settings."""
    package = runtime()
    config = {"backend": "CPU", "numThread": threads, "precision": "high"}

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        manager = package.nn.create_runtime_manager((config,))
        net = package.nn.load_module_from_file(model, [], [], runtime_manager=manager)
        if net is None:
            raise UsageError("MNN cannot read this file", place=model)
        info = net.get_info()
        arrays = [_input_named(inputs, name, model) for name in info["inputNames"]]
        layouts = [v.data_format for v in info["inputs"]]
        variables = [_variable(package, a, layout) for a, layout in zip(arrays, layouts)]

        def run() -> Sequence[np.ndarray]:
            outputs = net.onForward(variables)
            if not outputs:
                raise UsageError("MNN cannot run this file on these inputs", place=model)
            return [np.asarray(v.read()) for v in outputs]

        return run

    return Prepared(package.version(), bind)


def _input_named(inputs: Inputs, name: str, model: str) -> np.ndarray:
    if name not in inputs:
        raise UsageError(f"MNN's network has an input {name!r} that is not given", place=model)
    return inputs[name]


def _variable(package: Any, array: np.ndarray, layout: Any) -> Any:
    """An array in MNN's memory. Integers are 32 bits wide in MNN, but bytes."""
    narrow = array.astype(np.int32) if array.dtype == np.int64 else array
    wide = np.asarray(narrow, order="C")
    kinds = {"float32": "float", "int32": "int", "int8": "int8", "uint8": "uint8"}
    if wide.dtype.name not in kinds:
        raise UsageError(f"MNN takes no inputs of {wide.dtype}")
    kind = getattr(package.expr, kinds[wide.dtype.name])
    bytes_ = wide.itemsize == 1  # of which it takes lists only
    content = wide.ravel().tolist() if bytes_ else wide
    return package.expr.const(content, list(wide.shape), layout, kind)
