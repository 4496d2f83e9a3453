"""What subjects that run ONNX files share: which model, how many threads, in a child or not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import numpy as np

from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.runners.child import run_in_child
from verax.runners.onnx_cut import part_of
from verax.runners.onnx_files import Writer, model_of

TIMEOUT = 300.0
"""Seconds that a run may take."""
Answer = Callable[
    [Mapping[str, Any], Mapping[str, np.ndarray]], tuple[dict[str, Any], dict[str, np.ndarray]]
]


class Common(TypedDict, total=False):
    """Arguments that every such runner takes; see `OnnxRunner`."""

    writer: Writer | None
    threads: int
    isolated: bool
    timeout: float


class OnnxRunner:
    """Runs an ONNX model with a foreign runtime on the CPU.

    model: path or bytes of an ONNX file; None writes the graph under test with `writer`.
    threads: 0 lets the runtime choose. isolated: in a child process, limited to `timeout` seconds.
    package: the runtime's package, which also names the child's task. request: what the runtime is
    asked for besides, shown by `describe` under the names in `shown`.
    """

    watches = True
    truncates = True
    stored_inputs: Mapping[str, np.ndarray] | None = None
    package: ClassVar[str]

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None,
        name: str,
        request: Mapping[str, Any],
        answer: Answer,
        shown: Mapping[str, str],
        *,
        writer: Writer | None = None,
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        self.model, self.writer, self.threads = model, writer, threads
        self.isolated, self.timeout = isolated, timeout
        self.name = f"{name}:{Path(model).name}" if isinstance(model, str | os.PathLike) else name
        self._request, self._answer, self._shown = dict(request), answer, dict(shown)

    def describe(self) -> dict[str, str]:
        runtime = optional(self.package, f"to run the subject {self.package!r}")
        return {
            "version": str(runtime.__version__),
            **self._shown,
            "threads": str(self.threads or "chosen by the runtime"),
            "model": "written from the graph" if self.model is None else "a file",
        }

    def model_for(self, graph: Graph) -> str | bytes:
        """The ONNX model that `run` executes for `graph` (a path or bytes)."""
        model = model_of(self.model, self.writer, graph, self.name)
        return model if self.model is None else part_of(model, graph)

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        request: dict[str, Any] = {
            "keep": [*(keep or ())],
            "threads": self.threads,
            "model": self.model_for(graph),
            **self._request,
        }
        if not self.isolated:
            return self._answer(request, inputs)[1]
        return run_in_child(self.package, request, inputs, name=self.name, timeout=self.timeout)[1]
