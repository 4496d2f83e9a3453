"""Locates a mistake in a subject without observable inner values, by running parts of the network.

The subject gets a part: the nodes between two cuts, with the values at the first cut as its inputs
and those at the second as its outputs. Bisecting the part that holds a mistake finds it in about
log2(n) runs. Every part starts from values that the subject itself gave before, so the judgement
of a short part is as sharp as the check of a node by itself, and after a faulty node the search
continues from that node's actual values: a second mistake is found as the first was.

Cuts are positions in the order of nodes. At a cut several values may be alive (branches); all of
them are outputs of the part before it and inputs of the part behind it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.cut import cut, with_known_constants
from verax.ir.graph import Graph, specialize
from verax.judge.decide.local import conform
from verax.judge.protocol import Runner
from verax.judge.regions.network import Progress, Survey, survey
from verax.records.verdict import Blame, Kind
from verax.reference.evaluate import bind_symbols

MAX_EVALUATIONS = 200
"""Parts that a search runs before it gives up dividing."""
MAX_UNDECIDED = 40
"""The same where nothing is known to be wrong, and parts are divided because they are blind."""
MAX_REFUSALS = 8
"""Cuts near the middle of a part that are tried before it is taken as a whole."""
Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class FaultyPart:
    """A part that is wrong by itself: its graph, its inputs, and its actual outputs.

    blame: as in a verdict; `region` there names the nodes when there are several.
    """

    blame: Blame
    graph: Graph
    inputs: Mapping[str, np.ndarray]
    actual: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Located:
    """Result of the search, in the order of the network.

    evaluations: parts run. refused: cuts that the subject would not run, with the reason.
    undecided: what could not be judged, with the reason (blind parts, exhausted searches).
    """

    faulty: tuple[FaultyPart, ...]
    evaluations: int
    refused: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)

    @property
    def blame(self) -> tuple[Blame, ...]:
        """The record of every faulty node or region."""
        return tuple(g.blame for g in self.faulty)


def locate(
    graph: Graph,
    runner: Runner,
    inputs: Mapping[str, np.ndarray],
    *,
    wrong: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Located:
    """Every faulty node of a subject that runs parts of `graph` (`Capabilities.truncates`).

    inputs: of the whole network, in declared types. wrong: whether its outputs are known to be a
    mistake, so that they need not be judged once more.
    progress: called with (nodes settled, nodes in all, what is being looked at).
    Raises what the subject raises when it cannot even run the whole network.
    """
    fixed = with_known_constants(specialize(graph, bind_symbols(graph, inputs)))
    return _PartSearch(fixed, runner, inputs, seed, progress).all(wrong)


@dataclass(frozen=True)
class _PartRun:
    """A run of the nodes from one cut to another, judged. after: values alive at the second cut."""

    graph: Graph
    inputs: Values
    actual: Values
    after: Values
    survey: Survey

    @property
    def kind(self) -> Kind:
        kinds = {f.kind for f in self.survey.findings}
        worst = (Kind.mistake, Kind.undecided, Kind.precision, Kind.rounding)
        return next((k for k in worst if k in kinds), Kind.identical)

    @property
    def clean(self) -> bool:
        return self.kind not in (Kind.mistake, Kind.undecided)


class _CoarseArithmetic(Exception):
    """A node by itself is right in a coarser arithmetic: parts must be judged in that
    arithmetic."""


class _PartSearch:
    """One search. A cut at position p lies before node p; 0 is the inputs, `size` the outputs."""

    def __init__(
        self,
        graph: Graph,
        runner: Runner,
        inputs: Mapping[str, np.ndarray],
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.graph, self.runner, self.seed = graph, runner, seed
        self.inputs = {v: np.asarray(inputs[v]) for v in graph.inputs}
        self.progress = progress
        self.size = len(graph.nodes)
        self.alive = _alive(graph)
        self.evaluations = 0
        self.coarse = False
        self.refused: dict[tuple[int, int], str] = {}
        self.undecided: dict[str, str] = {}
        self.faulty: list[FaultyPart] = []

    def all(self, wrong: bool) -> Located:
        """Resolve one fault after the other until the remaining nodes are clean."""
        start, values = 0, dict(self.inputs)
        while start < self.size:
            try:
                resolved = self.first(start, self.size, values, None) if wrong else None
                resolved = resolved or self.next(start, values)
            except _CoarseArithmetic:
                self.coarse = True
                continue
            if resolved is None:
                break
            (start, values), wrong = resolved, False
        self._show(self.size, "done")
        cuts = {
            f"{self._name(low)} to {self._name(high)}": reason
            for (low, high), reason in self.refused.items()
        }
        return Located(tuple(self.faulty), self.evaluations, cuts, self.undecided)

    def next(self, start: int, values: Values) -> tuple[int, Values] | None:
        """Judge all nodes from `start` on, and resolve the first fault in them."""
        remaining = self.run(start, self.size, values, power=True, must=start == 0)
        if remaining is None:
            reason = self.refused[start, self.size]
            self.undecided[self.graph.outputs[-1]] = f"behind {self._name(start)}: {reason}"
            return None
        return self.first(start, self.size, values, remaining)

    def first(
        self, low: int, high: int, values: Values, part_run: _PartRun | None
    ) -> tuple[int, Values] | None:
        """Resolve the first wrong or undecidable part from `low` to `high`: the cut after it and
        the values there; None when all is clean.

        part_run: these nodes judged together; None when they were not, but must hold a mistake.
        """
        if part_run is not None and part_run.clean:
            return None
        if high - low == 1:
            part_run = part_run or self.run(low, high, values)
            return None if part_run is None or part_run.clean else self._resolve(high, part_run)
        searching = part_run is None or part_run.kind is Kind.mistake
        if part_run is not None and not searching and self.evaluations >= MAX_UNDECIDED:
            return self._resolve(high, part_run)
        half, middle = self._half(low, high, values, power=not searching)
        if half is None:
            return None if part_run is None else self._resolve(high, part_run)
        resolved = self.first(low, middle, values, half)
        if resolved is None:
            later = None if searching else self.run(middle, high, half.after, power=True)
            if searching or later is not None:
                resolved = self.first(middle, high, half.after, later)
        # In a coarse arithmetic a part as a whole is judged too roughly to accuse it.
        if resolved is None and part_run is not None and searching and not self.coarse:
            return self._shortest_sequence(low, high, values, part_run)
        return resolved

    def _shortest_sequence(
        self, low: int, high: int, values: Values, part_run: _PartRun
    ) -> tuple[int, Values]:
        """Report the shortest sequence of nodes that is wrong, where no single node is.

        A faulty fusion looks so, and a mistake next to cuts that the subject refuses.
        """
        first, last, start = low, high - 1, values
        while first < last:
            middle = (first + last + 1) // 2
            before = self.run(low, middle, values)
            behind = None if before is None else self.run(middle, high, before.after)
            if before is not None and behind is not None and behind.kind is Kind.mistake:
                first, start, part_run = middle, before.after, behind
            else:
                last = middle - 1
        shortest, end = first + 1, high
        while shortest < end:
            middle = (shortest + end) // 2
            shorter = self.run(first, middle, start)
            if shorter is not None and shorter.kind is Kind.mistake:
                end, part_run = middle, shorter
            else:
                shortest = middle + 1
        return self._resolve(end, part_run)

    def _half(
        self, low: int, high: int, values: Values, *, power: bool
    ) -> tuple[_PartRun | None, int]:
        """Run from `low` to a cut near the middle that the subject accepts; None if none is."""
        for refusals, middle in enumerate(_from_the_middle(low, high)):
            if self.evaluations >= MAX_EVALUATIONS or refusals == MAX_REFUSALS:
                break
            part_run = self.run(low, middle, values, power=power)
            if part_run is not None:
                return part_run, middle
        return None, low

    def run(
        self, low: int, high: int, values: Values, *, power: bool = False, must: bool = False
    ) -> _PartRun | None:
        """Let the subject run nodes low .. high - 1 and judge its outputs; None if it refuses.

        power: whether to find out what the judgement is blind to. must: raise what the subject
        raises.
        """
        passed = {v: a for v, a in values.items() if v in self.alive[high]}
        produced = [
            v for n in self.graph.nodes[low:high] for v in n.outputs if v in self.alive[high]
        ]
        if not produced:
            nothing = dataclasses.replace(self.graph, inputs=(), outputs=(), nodes=())
            return _PartRun(nothing, {}, {}, passed, Survey())
        if (low, high) in self.refused:
            return None
        self._show(low, self._name(high))
        subgraph = cut(self.graph, values, produced)
        fed = {v: values[v] for v in subgraph.inputs}
        self.evaluations += 1
        try:
            results = self.runner.run(subgraph, fed)
        except VeraxError as error:
            if must:
                raise
            self.refused[low, high] = error.cause
            return None
        lacking = [v for v in produced if v not in results]
        if lacking:
            self.refused[low, high] = f"the subject gave no {', '.join(lacking)}"
            return None
        types = self.graph.types
        actual = {v: conform(np.asarray(results[v]), types[v].dtype) for v in produced}
        result = survey(
            subgraph,
            fed,
            actual,
            seed=self.seed,
            measure_power=power,
            find_precision=self.coarse,
        )
        judged = _PartRun(subgraph, fed, actual, {**passed, **actual}, result)
        if high - low == 1 and judged.kind is Kind.precision and not self.coarse:
            raise _CoarseArithmetic
        return judged

    def _resolve(self, end: int, part_run: _PartRun) -> tuple[int, Values]:
        """Report the part as faulty, or note that it cannot be judged; the search continues after
        it."""
        blames = part_run.survey.blame(part_run.graph)
        if part_run.kind is Kind.mistake and blames:
            blame = blames[0] if len(part_run.graph.nodes) == 1 else _as_region(blames, part_run)
            self.faulty.append(FaultyPart(blame, part_run.graph, part_run.inputs, part_run.actual))
        for finding in part_run.survey.findings:
            if finding.kind is Kind.undecided:
                self.undecided[finding.value] = finding.reason
        return end, part_run.after

    def _name(self, position: int) -> str:
        """Name of a cut: that of the node before it."""
        if position == 0:
            return "the inputs"
        node = self.graph.nodes[position - 1]
        return node.name or node.outputs[0]

    def _show(self, done: int, description: str) -> None:
        if self.progress is not None:
            self.progress(done, self.size, description)


def _as_region(blames: tuple[Blame, ...], part_run: _PartRun) -> Blame:
    """The record of all nodes of the part, at the value where the mistake is first visible."""
    names = tuple(n.name or n.outputs[0] for n in part_run.graph.nodes)
    reason = f"{blames[0].reason}; none of these nodes could be found wrong by itself"
    return dataclasses.replace(blames[0], region=names, reason=reason)


def _alive(graph: Graph) -> list[frozenset[str]]:
    """For each cut, the values made before it (or inputs) that something behind it needs."""
    needed = set(graph.outputs)
    alive = [frozenset(needed)]
    for node in reversed(graph.nodes):
        if needed & set(node.outputs):
            needed -= set(node.outputs)
            needed |= {v for v in node.inputs if v is not None and v not in graph.constants}
        alive.append(frozenset(needed))
    return alive[::-1]


def _from_the_middle(low: int, high: int) -> Iterator[int]:
    """Cuts strictly between `low` and `high`, those nearest to the middle first."""
    middle = (low + high) // 2
    yield from sorted(range(low + 1, high), key=lambda p: abs(p - middle))
