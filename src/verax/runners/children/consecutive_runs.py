"""Consecutive runs in one child process, of subjects that hand a network's state on themselves.

Arrays travel to the child and back by name: the inputs of run N as `N|NAME`, what the subject shall
remember at the beginning as `state|NAME`; the values of a single run have no mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Graph
from verax.runners.children.child_runner import ChildRunner

MARK = "|"
"""Separates the index of a run from the name of a value."""
STATE = f"state{MARK}"
"""Prefix of the names of the initial state."""
Arrays = Mapping[str, np.ndarray]


def taken_apart(arrays: Arrays) -> tuple[list[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """(inputs of every run, initial state) of the arrays that a child received."""
    state = unmarked(arrays, STATE)
    plain = {k: v for k, v in arrays.items() if MARK not in k}
    if plain or not arrays:
        return [plain], state
    numbers = sorted({int(k.partition(MARK)[0]) for k in arrays if not k.startswith(STATE)})
    return [unmarked(arrays, f"{n}{MARK}") for n in numbers], state


def put_together(answers: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """The values of all runs in one mapping, as `ConsecutiveRunner` reads it."""
    if len(answers) == 1:
        return dict(answers[0])
    return {f"{n}{MARK}{k}": a for n, values in enumerate(answers) for k, a in values.items()}


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
        values = self._ask(graph, arrays, keep, fill)
        if len(steps) == 1:
            return [values]
        return [unmarked(values, f"{n}{MARK}") for n in range(len(steps))]

    def _request_for(self, graph: Graph) -> dict[str, Any]:
        return {**super()._request_for(graph), "state": dict(graph.state)}
