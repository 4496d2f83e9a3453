"""What subjects share that run in a child process: how they are asked, poisoned and described."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from verax.base.optional import installed_version
from verax.base.printing import Named
from verax.ir.graph import Graph
from verax.judge.protocol import Capabilities
from verax.runners.children.child import run_in_child
from verax.runners.feeding import collect

TIMEOUT = 300.0
"""Seconds that a run may take."""
Answered = tuple[dict[str, Any], dict[str, np.ndarray]]


class ChildRunner(Named, ABC):
    """Runs a foreign package's model on the CPU, in a child process.

    packages: what the runtime is called where packages are listed, the
    usual one first. request: what is asked for besides the inputs, shown under the names in
    `shown`. threads: 0 lets the runtime choose. timeout: seconds. isolated: False runs in this
    process (quicker, and a crash is ours).
    """

    capabilities = Capabilities(
        watches=True, own_process=True, poison="fresh memory of its process"
    )
    stored_inputs: Mapping[str, np.ndarray] | None = None
    packages: ClassVar[tuple[str, ...]]

    @staticmethod
    @abstractmethod
    def answer(request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> Answered:
        """What the child does: (request, inputs) -> (reply, values). A reply's "notes" is a mapping
        of texts that `describe` shows after the run, its "declared" lists the model's own outputs
        in order; "keep" in the request names inner values wanted."""

    def __init__(
        self,
        name: str,
        request: Mapping[str, Any],
        details: Mapping[str, str],
        *,
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        self.name, self.threads, self.timeout = name, threads, timeout
        self._request, self._details = dict(request), dict(details)
        self._notes: dict[str, str] = {}
        self.isolate(isolated)

    def isolate(self, isolated: bool) -> None:
        """Run in a process of its own, or in this one from now on."""
        self.isolated = isolated
        self.capabilities = replace(self.capabilities, own_process=isolated)

    @property
    def _task(self) -> str:
        """The module of this folder whose `answer` the child calls."""
        return type(self).answer.__module__.rpartition(".")[2]

    def describe(self) -> dict[str, str]:
        return {
            "version": installed_version(*self.packages) or "unknown",
            **self._details,
            "threads": str(self.threads or "chosen by the runtime"),
            **self._notes,
        }

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return self._ask(graph, inputs, keep, None)

    def run_poisoned(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int,
    ) -> dict[str, np.ndarray]:
        return self._ask(graph, inputs, keep, fill)

    def _request_for(self, graph: Graph) -> dict[str, Any]:
        """The request for `graph`; to be extended by what depends on it."""
        return {**self._request, "threads": self.threads, "outputs": list(graph.outputs)}

    def _ask(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray],
        keep: Sequence[str] | None,
        fill: int | None,
    ) -> dict[str, np.ndarray]:
        request = {**self._request_for(graph), "keep": [*(keep or ())], "fill": fill}
        reply, values = self._reply_to(request, inputs, fill)
        values, renamed = collect(graph, values, reply.get("declared", ()))
        self._notes = {**reply.get("notes", {}), **renamed}
        return values

    def _reply_to(
        self, request: Mapping[str, Any], inputs: Mapping[str, np.ndarray], fill: int | None
    ) -> Answered:
        """Reply and values of the child, or of this process where it is not isolated."""
        if self.isolated:
            return run_in_child(
                self._task, request, inputs, name=self.name, timeout=self.timeout, fill=fill
            )
        return self.answer(request, inputs)
