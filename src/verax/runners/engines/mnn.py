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
        told = net.get_info()
        arrays = [_given(inputs, name, model) for name in told["inputNames"]]
        variables = [_variable(package, array) for array in arrays]

        def run() -> Sequence[np.ndarray]:
            return [np.array(v.read(), copy=False) for v in net.onForward(variables)]

        return run

    return Prepared(package.version(), bind)


def _given(inputs: Inputs, name: str, model: str) -> np.ndarray:
    if name not in inputs:
        raise UsageError(f"MNN's network has an input {name!r} that is not given", place=model)
    return inputs[name]


def _variable(package: Any, array: np.ndarray) -> Any:
    """An array in MNN's memory. Integers are 32 bits wide in MNN."""
    wide = np.ascontiguousarray(array.astype(np.int32) if array.dtype == np.int64 else array)
    kind = package.expr.int if wide.dtype == np.int32 else package.expr.float
    return package.expr.const(wide, list(wide.shape), package.expr.NCHW, kind)
