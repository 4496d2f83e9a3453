"""ONNX Runtime as a subject, on the original file or on any graph written as ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.runners.child import run_in_child
from verax.runners.onnx_files import Writer, add_outputs, check_inputs, load, model_of

TIMEOUT = 300.0
"""Seconds that a run may take."""
LEVELS = ("none", "basic", "extended", "all")
"""Graph optimisation levels of ONNX Runtime."""


class OnnxRuntimeRunner:
    """Runs an ONNX model with ONNX Runtime on the CPU.

    model: path or bytes of an ONNX file; None writes the graph under test with `writer`.
    level: graph optimisation level, one of LEVELS. threads: 0 lets the runtime choose.
    isolated: in a child process, limited to `timeout` seconds.
    """

    watches = True
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        writer: Writer | None = None,
        level: str = "all",
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        if level not in LEVELS:
            raise UsageError(
                f"ONNX Runtime has no optimisation level {level!r}",
                next_step=f"choose one of {', '.join(LEVELS)}",
            )
        self.model, self.writer, self.level, self.threads = model, writer, level, threads
        self.isolated, self.timeout = isolated, timeout
        self.name = "onnxruntime"
        if isinstance(model, str | os.PathLike):
            self.name = f"onnxruntime:{Path(model).name}"

    def describe(self) -> dict[str, str]:
        runtime = optional("onnxruntime", "to run the subject 'onnxruntime'")
        return {
            "version": runtime.__version__,
            "optimisation": self.level,
            "threads": str(self.threads or "chosen by the runtime"),
            "model": "written from the graph" if self.model is None else "a file",
        }

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        request: dict[str, Any] = {
            "keep": [*(keep or ())],
            "level": self.level,
            "threads": self.threads,
            "model": model_of(self.model, self.writer, graph, self.name),
        }
        if self.isolated:
            return run_in_child(
                "onnxruntime", request, inputs, name=self.name, timeout=self.timeout
            )[1]
        return answer(request, inputs)[1]


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
