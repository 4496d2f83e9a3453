"""`Runner`: the small protocol through which every subject reaches the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from verax.ir.graph import Graph


@runtime_checkable
class Runner(Protocol):
    """An implementation under test.

    name: how reports call it ("onnxruntime", "verax:O1"). watches: whether `keep` can make it
    show values inside the network; a subject without it shows what it has, whatever is asked.
    stored_inputs: for recorded answers, the inputs that they belong to, as far as they were
    recorded too; None when the subject can run on any inputs.
    """

    name: str
    watches: bool
    stored_inputs: Mapping[str, np.ndarray] | None

    def describe(self) -> dict[str, str]:
        """Versions and settings, as text by name."""

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Outputs of the network by name, with the values named in `keep` as far as they exist.

        Values are named as in `graph`. Raises `VeraxError` when the subject fails.
        """
