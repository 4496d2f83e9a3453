"""Another network as a subject: compiled by us, compared value by value where names agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.base.settings import Settings
from verax.ir.graph import Graph
from verax.runners.own import VeraxRunner


class NetworkRunner:
    """Runs `subject`, a graph of its own, and shows its inner values under its own names.

    This answers "are these two files the same network, and where do they part?". Its inputs must
    be named as those of the network that it is judged against.
    """

    watches = True
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, subject: Graph, name: str = "", settings: Settings | None = None) -> None:
        self.subject = subject
        self.runner = VeraxRunner(settings or Settings())
        self.name = name or f"network {subject.name!r}"

    def describe(self) -> dict[str, str]:
        return {"network": self.subject.name, **self.runner.describe()}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return self.runner.run(self.subject, inputs, keep)
