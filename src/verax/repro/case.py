"""A minimal case from a guilty part: the subject is run on it alone, and must still be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.cut import cut, with_known_constants
from verax.ir.graph import Graph, Node, specialize
from verax.judge.decide.local import conform
from verax.judge.locate.truncate import FaultyPart
from verax.judge.protocol import Runner
from verax.judge.regions.network import survey
from verax.records.verdict import Blame, Kind
from verax.reference.evaluate import bind_symbols, evaluate
from verax.repro.shrink import SmallCase, shrink

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
    actual: Values
    alone: bool
    words: str


def minimal_case(
    graph: Graph,
    subject: Runner,
    faulty: FaultyPart,
    inputs: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
) -> MinimalCase:
    """The smallest part around `faulty` on which the subject is wrong when it runs it alone.

    graph, inputs: the whole network and its inputs, for when more of it is needed. Raises
    `VeraxError` when the meaning of the part cannot be evaluated.
    """
    maker = _Maker(graph, subject, inputs, seed)
    recorded = SmallCase(faulty.graph, dict(faulty.inputs), dict(faulty.actual))
    if not subject.capabilities.truncates:
        words = "the subject cannot be run on a part of the network: its answer was recorded inside"
        return _finished(faulty, recorded, False, words)
    for candidate, words in maker.candidates(faulty):
        actual = maker.wrong(candidate.graph, candidate.inputs)
        if actual is None:
            continue
        full_case = SmallCase(candidate.graph, candidate.inputs, actual)
        small = shrink(full_case, maker.wrong, weights=not subject.capabilities.own_weights)
        note = f"; kept of it: {small.words}" if small.retained else ""
        return _finished(faulty, small, True, words + note)
    words = (
        "run by itself, this part is right: the mistake needs more of the network around it; what "
        "the subject gave inside the network is recorded"
    )
    return _finished(faulty, recorded, False, words)


def _finished(faulty: FaultyPart, small: SmallCase, alone: bool, words: str) -> MinimalCase:
    expected = evaluate(small.graph, small.inputs)
    return MinimalCase(
        faulty.blame, small.graph, small.inputs, dict(expected), small.actual, alone, words
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
        self.graph = with_known_constants(specialize(graph, bind_symbols(graph, self.inputs)))

    def wrong(self, graph: Graph, inputs: Values) -> Values | None:
        """The subject's outputs on a graph if they are a mistake, else None."""
        try:
            results = self.subject.run(graph, inputs)
            actual = {
                v: conform(np.asarray(results[v]), graph.types[v].dtype)
                for v in graph.outputs
                if v in results
            }
            result = survey(
                graph,
                inputs,
                actual,
                seed=self.seed,
                measure_power=False,
                find_precision=False,
            )
        except VeraxError:
            return None
        return actual if any(f.kind is Kind.mistake for f in result.findings) else None

    def candidates(self, faulty: FaultyPart) -> Iterator[tuple[SmallCase, str]]:
        """The part itself, then larger and larger parts that end where it ends."""
        count = len(faulty.graph.nodes)
        size = "one operator" if count == 1 else f"{count} operators"
        own = SmallCase(faulty.graph, dict(faulty.inputs), dict(faulty.actual))
        yield own, f"{size} on the inputs that it had inside the network"
        for more in GROWTH:
            larger = self._grown(faulty, more)
            if larger is not None:
                yield larger, f"{size} and up to {more} before it: by itself it is right"

    def _grown(self, faulty: FaultyPart, more: int) -> SmallCase | None:
        """The part with `more` nodes before it, on the subject's own values there."""
        nodes = _before(self.graph, set(faulty.graph.outputs), len(faulty.graph.nodes) + more)
        produced = {v for n in nodes for v in n.outputs}
        read = {v for n in nodes for v in n.inputs if v is not None}
        needed = [v for v in read - produced if v not in self.graph.constants]
        try:
            subgraph = cut(self.graph, needed, faulty.graph.outputs)
            values = dict(self.inputs)
            inner = [v for v in subgraph.inputs if v not in values]
            if inner:
                values |= self.subject.run(cut(self.graph, self.inputs, inner), self.inputs)
            return SmallCase(subgraph, {v: np.asarray(values[v]) for v in subgraph.inputs}, {})
        except (VeraxError, KeyError):
            return None


def _before(graph: Graph, outputs: set[str], count: int) -> list[Node]:
    """The last `count` nodes that lead to `outputs`."""
    nodes: list[Node] = []
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if len(nodes) < count and needed & set(node.outputs):
            nodes.append(node)
            needed |= {v for v in node.inputs if v is not None}
    return nodes
