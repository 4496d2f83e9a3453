"""Apache TVM through its ONNX frontend, for this processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared

OPT_LEVELS = (0, 1, 2, 3)
"""Optimization levels of TVM's pass context; 3 is its own choice."""


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("tvm", "to run the subject 'tvm'")


def call(
    model: Any, inputs: Inputs, opt_level: int = OPT_LEVELS[-1]
) -> Callable[[], list[np.ndarray]]:
    """What runs an ONNX model (a parsed one) on these inputs, its arguments in their order."""
    tvm = runtime()
    frontend = optional("tvm.relax.frontend.onnx", "to run the subject 'tvm'")
    module = frontend.from_onnx(
        model,
        shape_dict={name: list(array.shape) for name, array in inputs.items()},
        dtype_dict={name: str(array.dtype) for name, array in inputs.items()},
        keep_params_in_input=False,
    )
    with tvm.transform.PassContext(opt_level=opt_level):
        executable = tvm.compile(module, target="llvm")
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in inputs.values()]

    def run() -> list[np.ndarray]:
        results = machine["main"](*arguments)
        single = hasattr(results, "numpy") or all(isinstance(n, int) for n in results)
        return [as_array(r) for r in ([results] if single else list(results))]

    return run


def as_array(result: Any) -> np.ndarray:
    """A result as an array; TVM keeps sizes that it computed as a tuple of integers."""
    return np.array(result.numpy() if hasattr(result, "numpy") else [int(n) for n in result])


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. settings: the optimization level. TVM takes threads from the environment,
    which `verax bench` sets."""
    proto = optional("onnx", "to time TVM").load(model)
    names = [v.name for v in proto.graph.input]

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        return call(proto, {n: inputs[n] for n in names if n in inputs}, **settings)

    return Prepared(runtime().__version__, bind)
