"""A minimal case from a guilty part: the subject is run on it alone, and must still be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.cut import cut, with_known_constants
from verax.ir.graph import Graph, Node, specialise
from verax.judge.decide.local import conform
from verax.judge.locate.truncate import FaultyPart
from verax.judge.protocol import Runner
from verax.judge.regions.network import survey
from verax.records.verdict import Blame, Kind
from verax.reference.evaluate import bind_symbols, evaluate
from verax.repro.shrink import Small, shrink

GROWTH = (1, 3, 7)
"""Nodes before a guilty one that are added when it shows nothing by itself."""
Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class MinimalCase:
    """What shows a mistake, as small as it could be made.

    graph, inputs: what is computed, from what; expected: its float64 values by meaning; given: the
    subject's. alone: whether the subject gave them when it ran this graph by itself; otherwise
    they come from inside the whole network. words: how the case was made.
    """

    blame: Blame
    graph: Graph
    inputs: Values
    expected: Values
    given: Values
    alone: bool
    words: str


def minimal_case(
    graph: Graph,
    subject: Runner,
    guilty: FaultyPart,
    inputs: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
) -> MinimalCase:
    """The smallest part around `guilty` on which the subject is wrong when it runs it alone.

    graph, inputs: the whole network and its inputs, for when more of it is needed. Raises
    `VeraxError` when the meaning of the part cannot be evaluated.
    """
    maker = _Maker(graph, subject, inputs, seed)
    recorded = Small(guilty.graph, dict(guilty.inputs), dict(guilty.actual))
    if not subject.capabilities.truncates:
        words = "the subject cannot be run on a part of the network: its answer was recorded inside"
        return _finished(guilty, recorded, False, words)
    for found, words in maker.candidates(guilty):
        given = maker.wrong(found.graph, found.inputs)
        if given is None:
            continue
        whole = Small(found.graph, found.inputs, given)
        small = shrink(whole, maker.wrong, weights=not subject.capabilities.own_weights)
        kept = f"; kept of it: {small.words}" if small.kept else ""
        return _finished(guilty, small, True, words + kept)
    words = (
        "run by itself, this part is right: the mistake needs more of the network around it; what "
        "the subject gave inside the network is recorded"
    )
    return _finished(guilty, recorded, False, words)


def _finished(guilty: FaultyPart, small: Small, alone: bool, words: str) -> MinimalCase:
    expected = evaluate(small.graph, small.inputs)
    return MinimalCase(
        guilty.blame, small.graph, small.inputs, dict(expected), small.given, alone, words
    )


class _Maker:
    """Runs parts by themselves."""

    def __init__(
        self,
        graph: Graph,
        subject: Runner,
        inputs: Mapping[str, np.ndarray],
        seed: int,
    ) -> None:
        self.subject, self.seed = subject, seed
        self.inputs = {v: np.asarray(inputs[v]) for v in graph.inputs}
        self.graph = with_known_constants(specialise(graph, bind_symbols(graph, self.inputs)))

    def wrong(self, graph: Graph, inputs: Values) -> Values | None:
        """What the subject gives on a graph, if that is a mistake."""
        try:
            shown = self.subject.run(graph, inputs)
            given = {
                v: conform(np.asarray(shown[v]), graph.types[v].dtype)
                for v in graph.outputs
                if v in shown
            }
            found = survey(
                graph,
                inputs,
                given,
                seed=self.seed,
                measure_power=False,
                find_precision=False,
            )
        except VeraxError:
            return None
        return given if any(f.kind is Kind.mistake for f in found.findings) else None

    def candidates(self, guilty: FaultyPart) -> Iterator[tuple[Small, str]]:
        """The part itself, then larger and larger parts that end where it ends."""
        count = len(guilty.graph.nodes)
        what = "one operator" if count == 1 else f"{count} operators"
        own = Small(guilty.graph, dict(guilty.inputs), dict(guilty.actual))
        yield own, f"{what} on the inputs that it had inside the network"
        for more in GROWTH:
            part = self._grown(guilty, more)
            if part is not None:
                yield part, f"{what} and up to {more} before it: by itself it is right"

    def _grown(self, guilty: FaultyPart, more: int) -> Small | None:
        """The part with `more` nodes before it, on the subject's own values there."""
        nodes = _before(self.graph, set(guilty.graph.outputs), len(guilty.graph.nodes) + more)
        made = {v for n in nodes for v in n.outputs}
        read = {v for n in nodes for v in n.inputs if v is not None}
        needed = [v for v in read - made if v not in self.graph.constants]
        try:
            part = cut(self.graph, needed, guilty.graph.outputs)
            values = dict(self.inputs)
            inner = [v for v in part.inputs if v not in values]
            if inner:
                values |= self.subject.run(cut(self.graph, self.inputs, inner), self.inputs)
            return Small(part, {v: np.asarray(values[v]) for v in part.inputs}, {})
        except (VeraxError, KeyError):
            return None


def _before(graph: Graph, outputs: set[str], count: int) -> list[Node]:
    """The last `count` nodes that lead to `outputs`."""
    found: list[Node] = []
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if len(found) < count and needed & set(node.outputs):
            found.append(node)
            needed |= {v for v in node.inputs if v is not None}
    return found
