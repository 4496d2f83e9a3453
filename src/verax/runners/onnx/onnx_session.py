"""ONNX Runtime's own sessions as subjects: what the user's program runs, with its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.optional import installed_version
from verax.ir.graph import Graph
from verax.judge.protocol import Naming
from verax.runners.feeding import collect, feed
from verax.runners.functions import called
from verax.runners.memory import InProcess
from verax.runners.onnx.onnx_files import Source, add_outputs, load, plain_name


class SessionRunner(InProcess):
    """Runs an `onnxruntime.InferenceSession` in this process.

    Inner values are shown by a second session on the same model, options and providers, in which
    they are outputs: it can be made where the session still knows its model (a path, or bytes).
    naming: what the names of the model's values are worth.
    """

    def __init__(self, session: Any, *, naming: Naming = Naming.hint) -> None:
        self.session = session
        model = model_of_session(session)
        self.capabilities = dataclasses.replace(
            self.capabilities, watches=model is not None, naming=naming
        )
        self.name = f"onnxruntime:{Path(model).name}" if isinstance(model, str) else "onnxruntime"
        self._notes: dict[str, str] = {}
        self._watching: tuple[tuple[str, ...], Any] = ((), session)

    def describe(self) -> dict[str, str]:
        version = installed_version("onnxruntime")
        providers = ", ".join(self.session.get_providers())
        return {"kind": "a session", "version": version, "providers": providers, **self._notes}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        session = self._showing(tuple(keep or ()))
        graph_inputs = {v: inputs[v] for v in graph.inputs}
        shapes = {
            v.name: tuple(d if isinstance(d, int) else None for d in v.shape)
            for v in session.get_inputs()
        }
        named, input_notes = feed(shapes, graph_inputs)
        names = [v.name for v in session.get_outputs()]
        results = called(session.run, (names, named), self.name)
        values = {plain_name(n): r for n, r in zip(names, results) if isinstance(r, np.ndarray)}
        declared = [v.name for v in self.session.get_outputs()]
        named_values, output_notes = collect(graph, values, declared)
        self._notes = {**input_notes, **output_notes}
        return {n: a for n, a in named_values.items() if a.dtype.kind != "O"}

    def _showing(self, keep: tuple[str, ...]) -> Any:
        """A session whose outputs are also those values of `keep` that the model computes."""
        model = model_of_session(self.session)
        if not keep or model is None:
            return self.session
        if self._watching[0] != keep:
            source: Source = load(model)
            add_outputs(source.proto, keep)
            options = self.session.get_session_options()
            content = source.proto.SerializeToString()
            watching = type(self.session)(content, options, providers=self.session.get_providers())
            self._watching = (keep, watching)
        return self._watching[1]


def model_of_session(session: Any) -> str | bytes | None:
    """The path or the bytes that an InferenceSession was made from; None where it keeps neither,
    or they are no ONNX."""
    path, content = getattr(session, "_model_path", None), getattr(session, "_model_bytes", None)
    if path and Path(path).is_file() and Path(path).suffix == ".onnx":
        return str(path)
    return content if isinstance(content, bytes) and content else None
