"""Consecutive runs in one child process, of subjects that hand a network's state on themselves.

Arrays travel to the child and back by name: the inputs of run N as `N|NAME`, what the subject shall
remember at the beginning as `state|NAME`; the values of a single run have no mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Graph
from verax.runners.child_runner import ChildRunner

MARK = "|"
"""Between the number of a run and a name."""
STATE = f"state{MARK}"
"""Before the names of what the subject shall remember at the beginning."""
Arrays = Mapping[str, np.ndarray]


def taken_apart(arrays: Arrays) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """What a child was given: the inputs of every run, and the state at the beginning."""
    state = unmarked(arrays, STATE)
    plain = {k: v for k, v in arrays.items() if MARK not in k}
    if plain or not arrays:
        return [plain], state
    numbers = sorted({int(k.partition(MARK)[0]) for k in arrays if not k.startswith(STATE)})
    return [unmarked(arrays, f"{n}{MARK}") for n in numbers], state


def put_together(answers: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """The values of every run, as a child gives them back."""
    if len(answers) == 1:
        return dict(answers[0])
    return {f"{n}{MARK}{k}": a for n, found in enumerate(answers) for k, a in found.items()}


def unmarked(arrays: Arrays, mark: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(mark): a for k, a in arrays.items() if k.startswith(mark)}


class ConsecutiveRunner(ChildRunner):
    """A child that does all runs of a network that remembers: `judge.protocol.Remembering`.

    Its request names the state: input -> the output that holds the new value.
    """

    def run(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        if not graph.state:
            return super().run(graph, inputs, keep)
        return self.run_steps(graph, [{v: inputs[v] for v in graph.arguments}], inputs, keep)[0]

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Arrays],
        state: Arrays,
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """As `judge.protocol.Remembering.run_steps`: one child does them all."""
        arrays = {f"{n}{MARK}{v}": a for n, one in enumerate(steps) for v, a in one.items()}
        arrays |= {f"{STATE}{v}": state[v] for v in graph.state if v in state}
        found = self._ask(graph, arrays, keep, fill)
        if len(steps) == 1:
            return [found]
        return [unmarked(found, f"{n}{MARK}") for n in range(len(steps))]

    def _asked(self, graph: Graph) -> dict[str, Any]:
        return {**super()._asked(graph), "state": dict(graph.state)}
