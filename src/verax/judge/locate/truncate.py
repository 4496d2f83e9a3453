"""Where a mistake is, when the subject shows nothing inside: a search over parts of the network.

The subject is handed a part: the nodes between two cuts, with the values at the first cut as its
inputs and those at the second as its outputs. Halving the part that holds a mistake finds it in
about log2(n) runs. Every part starts from values that the subject itself gave before, so the
judgement of a short part is as sharp as the check of a node by itself, and behind a guilty node the
search goes on from what that node gave: a second mistake is found as the first was.

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
from verax.ir.graph import Graph, specialise
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
class Guilty:
    """A part that is wrong by itself: its graph, the inputs it was given, and what it answered.

    blame: as in a verdict; `region` there names the nodes when there are several.
    """

    blame: Blame
    graph: Graph
    inputs: Mapping[str, np.ndarray]
    given: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Located:
    """What the search found, in the order of the network.

    evaluations: parts run. refused: cuts that the subject would not run, with the reason.
    undecided: what could not be judged, with the reason (blind parts, exhausted searches).
    """

    guilty: tuple[Guilty, ...]
    evaluations: int
    refused: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)

    @property
    def blame(self) -> tuple[Blame, ...]:
        """Every guilty node or region."""
        return tuple(g.blame for g in self.guilty)


def locate(
    graph: Graph,
    runner: Runner,
    inputs: Mapping[str, np.ndarray],
    *,
    wrong: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Located:
    """Every guilty node of a subject that runs parts of `graph` (`Capabilities.truncates`).

    inputs: of the whole network, in declared types. wrong: whether its outputs are known to be a
    mistake, so that they need not be judged once more.
    progress: called with (nodes settled, nodes in all, what is being looked at).
    Raises what the subject raises when it cannot even run the whole network.
    """
    fixed = with_known_constants(specialise(graph, bind_symbols(graph, inputs)))
    return _Search(fixed, runner, inputs, seed, progress).all(wrong)


@dataclass(frozen=True)
class _Part:
    """What a run of the nodes from one cut to another showed. `after`: values alive behind it."""

    graph: Graph
    inputs: Values
    given: Values
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


class _Coarse(Exception):
    """A node by itself is right in a coarser arithmetic: parts must be judged with that in mind."""


class _Search:
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
        self.guilty: list[Guilty] = []

    def all(self, wrong: bool) -> Located:
        """Settle one thing after the other until the rest is clean."""
        start, values = 0, dict(self.inputs)
        while start < self.size:
            try:
                found = self.first(start, self.size, values, None) if wrong else None
                found = found or self.next(start, values)
            except _Coarse:
                self.coarse = True
                continue
            if found is None:
                break
            (start, values), wrong = found, False
        self._show(self.size, "done")
        cuts = {
            f"{self._name(low)} to {self._name(high)}": why
            for (low, high), why in self.refused.items()
        }
        return Located(tuple(self.guilty), self.evaluations, cuts, self.undecided)

    def next(self, start: int, values: Values) -> tuple[int, Values] | None:
        """Judge all that lies behind `start`, and settle the first thing in it."""
        rest = self.run(start, self.size, values, power=True, must=start == 0)
        if rest is None:
            why = self.refused[start, self.size]
            self.undecided[self.graph.outputs[-1]] = f"behind {self._name(start)}: {why}"
            return None
        return self.first(start, self.size, values, rest)

    def first(
        self, low: int, high: int, values: Values, part: _Part | None
    ) -> tuple[int, Values] | None:
        """Settle the first wrong or undecidable thing from `low` to `high`.

        part: how these nodes were judged together; None when they were not, but must hold a
        mistake. -> the cut behind what was settled and the values there; None when all is clean.
        """
        if part is not None and part.clean:
            return None
        if high - low == 1:
            part = part or self.run(low, high, values)
            return None if part is None or part.clean else self._settle(high, part)
        searching = part is None or part.kind is Kind.mistake
        if part is not None and not searching and self.evaluations >= MAX_UNDECIDED:
            return self._settle(high, part)
        half, middle = self._half(low, high, values, power=not searching)
        if half is None:
            return None if part is None else self._settle(high, part)
        found = self.first(low, middle, values, half)
        if found is None:
            known = None if searching else self.run(middle, high, half.after, power=True)
            if searching or known is not None:
                found = self.first(middle, high, half.after, known)
        # In a coarse arithmetic a part as a whole is judged too roughly to accuse it.
        if found is None and part is not None and searching and not self.coarse:
            return self._together(low, high, values, part)
        return found

    def _together(self, low: int, high: int, values: Values, part: _Part) -> tuple[int, Values]:
        """No node of `part` is wrong by itself: blame the shortest run of nodes that is.

        That is how a faulty fusion looks, and a mistake behind cuts that the subject refuses.
        """
        first, last, start = low, high - 1, values
        while first < last:
            middle = (first + last + 1) // 2
            before = self.run(low, middle, values)
            behind = None if before is None else self.run(middle, high, before.after)
            if before is not None and behind is not None and behind.kind is Kind.mistake:
                first, start, part = middle, before.after, behind
            else:
                last = middle - 1
        shortest, end = first + 1, high
        while shortest < end:
            middle = (shortest + end) // 2
            shorter = self.run(first, middle, start)
            if shorter is not None and shorter.kind is Kind.mistake:
                end, part = middle, shorter
            else:
                shortest = middle + 1
        return self._settle(end, part)

    def _half(
        self, low: int, high: int, values: Values, *, power: bool
    ) -> tuple[_Part | None, int]:
        """Run from `low` to a cut near the middle that the subject accepts; None if none is."""
        for tried, middle in enumerate(_from_the_middle(low, high)):
            if self.evaluations >= MAX_EVALUATIONS or tried == MAX_REFUSALS:
                break
            part = self.run(low, middle, values, power=power)
            if part is not None:
                return part, middle
        return None, low

    def run(
        self, low: int, high: int, values: Values, *, power: bool = False, must: bool = False
    ) -> _Part | None:
        """Let the subject run nodes low .. high - 1 and judge what it gave; None if it refuses.

        power: whether to find out what the judgement is blind to. must: raise what the subject
        raises.
        """
        passed = {v: a for v, a in values.items() if v in self.alive[high]}
        made = [v for n in self.graph.nodes[low:high] for v in n.outputs if v in self.alive[high]]
        if not made:
            nothing = dataclasses.replace(self.graph, inputs=(), outputs=(), nodes=())
            return _Part(nothing, {}, {}, passed, Survey())
        if (low, high) in self.refused:
            return None
        self._show(low, self._name(high))
        part = cut(self.graph, values, made)
        taken = {v: values[v] for v in part.inputs}
        self.evaluations += 1
        try:
            shown = self.runner.run(part, taken)
        except VeraxError as error:
            if must:
                raise
            self.refused[low, high] = error.cause
            return None
        lacking = [v for v in made if v not in shown]
        if lacking:
            self.refused[low, high] = f"the subject gave no {', '.join(lacking)}"
            return None
        types = self.graph.types
        given = {v: conform(np.asarray(shown[v]), types[v].dtype) for v in made}
        found = survey(
            part,
            taken,
            given,
            seed=self.seed,
            measure_power=power,
            find_precision=self.coarse,
        )
        judged = _Part(part, taken, given, {**passed, **given}, found)
        if high - low == 1 and judged.kind is Kind.precision and not self.coarse:
            raise _Coarse
        return judged

    def _settle(self, end: int, part: _Part) -> tuple[int, Values]:
        """Blame the part, or note that it cannot be judged; the search goes on behind it."""
        blames = part.survey.blame(part.graph)
        if part.kind is Kind.mistake and blames:
            blame = blames[0] if len(part.graph.nodes) == 1 else _as_region(blames, part)
            self.guilty.append(Guilty(blame, part.graph, part.inputs, part.given))
        for found in part.survey.findings:
            if found.kind is Kind.undecided:
                self.undecided[found.value] = found.reason
        return end, part.after

    def _name(self, position: int) -> str:
        """A cut is called after the node before it."""
        if position == 0:
            return "the inputs"
        node = self.graph.nodes[position - 1]
        return node.name or node.outputs[0]

    def _show(self, done: int, what: str) -> None:
        if self.progress is not None:
            self.progress(done, self.size, what)


def _as_region(blames: tuple[Blame, ...], part: _Part) -> Blame:
    """All nodes of the part, blamed at the value where the mistake shows first."""
    names = tuple(n.name or n.outputs[0] for n in part.graph.nodes)
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
