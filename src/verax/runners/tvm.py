"""Apache TVM as a subject, through its ONNX frontend, on any graph written as ONNX."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

import numpy as np

from verax.base.errors import UsageError
from verax.ir.graph import Graph
from verax.runners.engines import Engine
from verax.runners.engines import tvm as engine
from verax.runners.engines.tvm import OPT_LEVELS
from verax.runners.feeding import feed
from verax.runners.onnx.onnx_files import add_outputs, input_shapes, load, plain_name
from verax.runners.onnx.onnx_runner import Common, OnnxRunner
from verax.runners.spec import RunnerSpec, RunnerVariant, RunRequest


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Compile `request["model"]` for this processor and run it, with the values in "keep"."""
    engine.runtime()  # what is missing is said first
    source = load(request["model"])
    shapes = input_shapes(source.proto)
    named, notes = feed(shapes, inputs)
    declared = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    arguments = {name: named[name] for name in shapes}
    results = engine.call(source.proto, arguments, request["opt_level"])()
    names = [v.name for v in source.proto.graph.output]
    reply = {"notes": notes, "declared": declared}
    return reply, dict(zip(map(plain_name, names), results))


class TvmRunner(OnnxRunner):
    """Apache TVM. opt_level: of its pass context; the rest as for `OnnxRunner`."""

    capabilities = dataclasses.replace(OnnxRunner.capabilities, script="tvm")
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
                f"TVM has no optimization level {opt_level}",
                next_step=f"choose one of {', '.join(map(str, OPT_LEVELS))}",
            )
        name = "tvm" if opt_level == OPT_LEVELS[-1] else f"tvm:O{opt_level}"
        request = {"opt_level": opt_level}
        super().__init__(model, name, request, {"optimization": f"O{opt_level}"}, **common)
        self.opt_level = opt_level
        self._common = common

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, TvmRunner]]:
        """The same subject at each optimization level up to its own, the least first."""
        levels = [n for n in OPT_LEVELS if n <= self.opt_level]
        return [(f"O{n}", TvmRunner(self.model, opt_level=n, **self._common)) for n in levels]


def _make(request: RunRequest, level: int = OPT_LEVELS[-1]) -> TvmRunner:
    return TvmRunner(request.onnx, opt_level=level, **request.common)


SPEC = RunnerSpec(
    {
        "tvm": RunnerVariant(
            "Apache TVM on the CPU, through its ONNX frontend",
            _make,
            Engine("tvm", (".onnx",)),
            runs_onnx=True,
        ),
        **{
            f"tvm:O{level}": RunnerVariant(
                f"Apache TVM with opt_level {level}",
                partial(_make, level=level),
                Engine("tvm", (".onnx",), {"opt_level": level}),
            )
            for level in OPT_LEVELS[:-1]
        },
    },
    "tvm",
    TvmRunner.packages,
)
