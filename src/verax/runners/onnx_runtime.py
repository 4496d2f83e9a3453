"""ONNX Runtime as a subject, on the original file or on any graph written as ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.base.optional import optional
from verax.runners.onnx_files import add_outputs, check_inputs, load
from verax.runners.onnx_runner import Common, OnnxRunner

LEVELS = ("none", "basic", "extended", "all")
"""Graph optimisation levels of ONNX Runtime."""


class OnnxRuntimeRunner(OnnxRunner):
    """ONNX Runtime. level: graph optimisation, one of LEVELS; the rest as for `OnnxRunner`."""

    package = "onnxruntime"

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        level: str = "all",
        **common: Unpack[Common],
    ) -> None:
        if level not in LEVELS:
            raise UsageError(
                f"ONNX Runtime has no optimisation level {level!r}",
                next_step=f"choose one of {', '.join(LEVELS)}",
            )
        shown = {"optimisation": level}
        super().__init__(model, "onnxruntime", {"level": level}, answer, shown, **common)
        self.level, self._common = level, common

    def levels(self) -> dict[str, OnnxRuntimeRunner]:
        """The same subject at each optimisation level, the least first."""
        return {v: OnnxRuntimeRunner(self.model, level=v, **self._common) for v in LEVELS}


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["model"]` (path or bytes) and give its outputs and the values in "keep"."""
    runtime = optional("onnxruntime", "to run the subject 'onnxruntime'")
    source = load(request["model"])
    check_inputs(source.proto, inputs)
    outputs = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    options = runtime.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    options.log_severity_level = 3
    options.graph_optimization_level = {
        "none": runtime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        "basic": runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "all": runtime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    }[request["level"]]
    model: Any = source.proto.SerializeToString()
    if source.folder and not request["keep"]:
        model = request["model"]
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [v.name for v in session.get_outputs()]
    for name, array in inputs.items():
        if array.dtype.name == "bfloat16":
            raise UnsupportedError(
                "ONNX Runtime's Python interface takes no bfloat16", place=f"input {name!r}"
            )
    results = session.run(names, dict(inputs))
    shown = {n: r for n, r in zip(names, results) if isinstance(r, np.ndarray)}
    return {"declared": outputs}, {n: a for n, a in shown.items() if a.dtype.kind != "O"}
