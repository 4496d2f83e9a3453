"""Apache TVM as a subject, through its ONNX frontend, on any graph written as ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.runners.feeding import feed
from verax.runners.onnx_files import add_outputs, input_shapes, load
from verax.runners.onnx_runner import Common, OnnxRunner

OPT_LEVELS = (0, 1, 2, 3)
"""Optimisation levels of TVM's pass context; 3 is its own choice."""


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Compile `request["model"]` for this processor and run it, with the values in "keep"."""
    tvm = optional("tvm", "to run the subject 'tvm'")
    frontend = optional("tvm.relax.frontend.onnx", "to run the subject 'tvm'")
    source = load(request["model"])
    shapes = input_shapes(source.proto)
    named, said = feed(shapes, inputs)
    declared = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    module = frontend.from_onnx(
        source.proto,
        shape_dict={name: list(named[name].shape) for name in shapes},
        dtype_dict={name: str(named[name].dtype) for name in shapes},
        keep_params_in_input=False,
    )
    with tvm.transform.PassContext(opt_level=request["opt_level"]):
        executable = tvm.compile(module, target="llvm")
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(named[name])) for name in shapes]
    results = machine["main"](*arguments)
    single = hasattr(results, "numpy") or all(isinstance(n, int) for n in results)
    listed = [results] if single else list(results)
    names = [v.name for v in source.proto.graph.output]
    reply = {"said": said, "declared": declared}
    return reply, {n: as_array(r) for n, r in zip(names, listed)}


def as_array(result: Any) -> np.ndarray:
    """A result as an array; TVM keeps sizes that it computed as a tuple of integers."""
    return np.array(result.numpy() if hasattr(result, "numpy") else [int(n) for n in result])


class TvmRunner(OnnxRunner):
    """Apache TVM. opt_level: of its pass context; the rest as for `OnnxRunner`."""

    task = "tvm"
    packages = ("apache-tvm",)
    answer = staticmethod(answer)

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        opt_level: int = OPT_LEVELS[-1],
        **common: Unpack[Common],
    ) -> None:
        if opt_level not in OPT_LEVELS:
            raise UsageError(
                f"TVM has no optimisation level {opt_level}",
                next_step=f"choose one of {', '.join(map(str, OPT_LEVELS))}",
            )
        name = "tvm" if opt_level == OPT_LEVELS[-1] else f"tvm:O{opt_level}"
        request = {"opt_level": opt_level}
        super().__init__(model, name, request, {"optimisation": f"O{opt_level}"}, **common)
        self.opt_level = opt_level
        self._common = common

    def optimisations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, TvmRunner]]:
        """The same subject at each optimisation level up to its own, the least first."""
        levels = [n for n in OPT_LEVELS if n <= self.opt_level]
        return [(f"O{n}", TvmRunner(self.model, opt_level=n, **self._common)) for n in levels]
