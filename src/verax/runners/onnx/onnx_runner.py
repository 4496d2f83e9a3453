"""What subjects that run ONNX files share: the model's file, or the graph written as ONNX."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from verax.ir.graph import Graph
from verax.runners.children.child_runner import TIMEOUT, ChildRunner
from verax.runners.onnx.onnx_cut import part_of
from verax.runners.onnx.onnx_files import Writer, model_of


class Common(TypedDict, total=False):
    """Arguments that every such runner takes; see `OnnxRunner`."""

    writer: Writer | None
    threads: int
    isolated: bool
    timeout: float


class OnnxRunner(ChildRunner):
    """Runs an ONNX model with a foreign runtime.

    model: path or bytes of an ONNX file; None writes the graph under test with `writer`. The rest
    as for `ChildRunner`.
    """

    capabilities = dataclasses.replace(ChildRunner.capabilities, truncates=True)

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None,
        name: str,
        request: Mapping[str, Any],
        details: Mapping[str, str],
        *,
        writer: Writer | None = None,
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        self.model, self.writer = model, writer
        self.capabilities = dataclasses.replace(self.capabilities, own_weights=model is not None)
        if isinstance(model, str | os.PathLike):
            name = f"{name}:{Path(model).name}"
        details = {**details, "model": "written from the graph" if model is None else "a file"}
        super().__init__(
            name, request, details, threads=threads, isolated=isolated, timeout=timeout
        )

    def model_for(self, graph: Graph) -> str | bytes:
        """The ONNX model that `run` executes for `graph`, a path or bytes; a part of the subject's
        own file when `graph` is a part of the network under test."""
        model = model_of(self.model, self.writer, graph, self.name)
        return model if self.model is None else part_of(model, graph)

    def _request_for(self, graph: Graph) -> dict[str, Any]:
        return {**super()._request_for(graph), "model": self.model_for(graph)}
