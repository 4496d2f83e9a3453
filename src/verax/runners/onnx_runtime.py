"""ONNX Runtime as a subject, on the original file or on any graph written as ONNX."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from verax.base.errors import UnsupportedError, UsageError
from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.runners.child import run_in_child

TIMEOUT = 300.0
"""Seconds that a run may take."""
LEVELS = ("none", "basic", "extended", "all")
"""Graph optimisation levels of ONNX Runtime."""
Writer = Callable[[Graph], bytes]


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
            "model": self._model(graph),
        }
        if self.isolated:
            return run_in_child(
                "onnxruntime", request, inputs, name=self.name, timeout=self.timeout
            )[1]
        return answer(request, inputs)[1]

    def _model(self, graph: Graph) -> str | bytes:
        if isinstance(self.model, bytes):
            return self.model
        if self.model is not None:
            return str(Path(self.model).resolve())
        if self.writer is None:
            raise UsageError(
                "there is no ONNX file to run and no writer to make one",
                place=self.name,
                next_step="give the model's file",
            )
        return self.writer(graph)


@dataclasses.dataclass(frozen=True)
class _Source:
    """An ONNX model and the folder that its external data lies in."""

    proto: onnx.ModelProto
    folder: str


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["model"]` (path or bytes) and give its outputs and the values in "keep"."""
    runtime = optional("onnxruntime", "to run the subject 'onnxruntime'")
    source = _load(request["model"])
    _check_inputs(source.proto, inputs)
    outputs = [v.name for v in source.proto.graph.output]
    _add_outputs(source.proto, request["keep"])
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


def _load(model: str | bytes) -> _Source:
    try:
        if isinstance(model, bytes):
            return _Source(onnx.load_model_from_string(model), "")
        return _Source(onnx.load_model(model), str(Path(model).parent))
    except Exception as error:
        raise UsageError(
            f"the ONNX model cannot be read ({type(error).__name__}: {error})",
            place=model if isinstance(model, str) else "ONNX bytes",
        ) from error


def _check_inputs(proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> None:
    constants = {t.name for t in proto.graph.initializer}
    wanted = [v.name for v in proto.graph.input if v.name not in constants]
    if sorted(wanted) != sorted(inputs):
        raise UsageError(
            f"the subject's model takes the inputs {', '.join(wanted)}, the network judged takes "
            f"{', '.join(inputs)}",
            next_step="give the subject a model with the same input names",
        )


def _add_outputs(proto: onnx.ModelProto, keep: Sequence[str]) -> None:
    """Make every value in `keep` that the model computes an output."""
    made = {v for node in proto.graph.node for v in node.output if v}
    present = {v.name for v in proto.graph.output}
    for name in keep:
        if name in made and name not in present:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
            present.add(name)
