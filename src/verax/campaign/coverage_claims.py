"""What a verdict says that it would have seen, held against errors of just that size.

A verdict states in how many nodes an error of a stated size would have shown, seen from where the
subject let the judge look: its outputs alone, some recorded values, or all of them. Here such an
error is put into one of these nodes, drawn for each element or as one factor of the whole value,
carried on by our own arithmetic, and judged. A claim is true if the answer is no rounding then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.campaign.random_networks import Network
from verax.ir.graph import Graph, Node, specialize
from verax.judge import check
from verax.records.verdict import Coverage, Kind, Power, Verdict
from verax.reference.evaluate import bind_symbols, promised
from verax.runners.arrays import ArraysRunner

VIEWS = {"outputs": 0, "recorded": 3, "watched": 1}
"""Where the judge looks from: inner values of every so manieth place, none for 0."""
UNSEEN = (Kind.identical, Kind.rounding)
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Claim:
    """An error that a verdict says it would see. factor: whether all elements have the same one."""

    view: str
    value: str
    size: float
    factor: bool


class Claims:
    """One network, judged from one view on its promised bits, and what that verdict claims."""

    def __init__(self, network: Network, view: str) -> None:
        self.graph = specialize(network.graph, bind_symbols(network.graph, network.inputs))
        self.inputs, self.view = network.inputs, view
        inner = [v for n in self.graph.nodes for v in n.outputs if v not in self.graph.outputs]
        self.values = promised(self.graph, self.inputs, keep=[*inner, *self.graph.outputs])
        step = VIEWS[view]
        self.shown = {*self.graph.outputs, *(inner[::step] if step else ())}
        self.verdict = self.judged(self.values)

    def draw(
        self, random: np.random.Generator, count: int, *, smallest: bool = False
    ) -> Iterator[Claim]:
        """At most `count` claims of the verdict, chosen by chance: of the size of its sentence, or
        of the smallest visible errors of its record."""
        if self.verdict.coverage is None or self.verdict.kind not in UNSEEN:
            return
        claims = list(self._of_record() if smallest else self._of_sentence(self.verdict.coverage))
        for i in random.permutation(len(claims))[:count]:
            yield claims[i]

    def _of_sentence(self, coverage: Coverage) -> Iterator[Claim]:
        for value in dict.fromkeys(p.value for p in self._smallest()):
            node = self.graph.producers[value]
            if _name(node) in coverage.blind:
                continue
            yield Claim(self.view, value, coverage.level, False)
            if _name(node) not in coverage.hidden_factors:
                yield Claim(self.view, value, coverage.level, True)

    def _of_record(self) -> Iterator[Claim]:
        for power in self._smallest():
            whole, each = power.smallest_factor, power.smallest_visible
            for size, factor in ((each, False), (each if whole is None else whole, True)):
                if 0 < size < 1:
                    yield Claim(self.view, power.value, size, factor)

    def _smallest(self) -> Iterator[Power]:
        """What the record says of every float value that is not all zeros."""
        measured = {p.value for p in self.verdict.power}
        alone = [
            Power(f.value, f.node, f.visible) for f in self.verdict.nodes if f.value not in measured
        ]
        for power in (*self.verdict.power, *alone):
            values = self.values[power.value]
            if values.dtype.kind == "f" and values.any():
                yield power

    def is_true(self, claim: Claim, random: np.random.Generator) -> bool:
        """Whether the error that is claimed to be seen is."""
        return self.judged(self._carried_on(claim, random)).kind not in UNSEEN

    def judged(self, values: Arrays, require_power: float | None = None) -> Verdict:
        """The verdict on these values, as far as the view shows them."""
        given = {v: values[v] for v in self.shown}
        runner = ArraysRunner(given, "recorded")
        return check(
            self.graph,
            runner,
            self.inputs,
            twice=False,
            explain=False,
            require_power=require_power,
        )

    def _carried_on(self, claim: Claim, random: np.random.Generator) -> dict[str, np.ndarray]:
        """Every value of the network, with the error put into one."""
        true = self.values[claim.value]
        error = np.float64(1) if claim.factor else random.standard_normal(true.shape)
        wrong = (true.astype(np.float64) * (1 + claim.size * error)).astype(true.dtype)
        values = {**self.values, claim.value: wrong}
        changed = {claim.value}
        for node in self.graph.nodes:
            if claim.value in node.outputs or changed.isdisjoint(v for v in node.inputs if v):
                continue
            subgraph, available = _alone(self.graph, node), {**values, **self.inputs}
            values.update(promised(subgraph, {v: available[v] for v in subgraph.inputs}))
            changed.update(node.outputs)
        return values


def _alone(graph: Graph, node: Node) -> Graph:
    """One node as a network."""
    read = [v for v in dict.fromkeys(node.inputs) if v is not None and v not in graph.constants]
    return dataclasses.replace(
        graph, nodes=(node,), inputs=tuple(read), outputs=tuple(v for v in node.outputs if v)
    )


def _name(node: Node) -> str:
    return node.name or node.outputs[0]


def false_claims(
    networks: Sequence[Network], count: int, seed: int = 0, *, smallest: bool = False
) -> tuple[int, list[tuple[str, Claim]]]:
    """How many claims of these networks were tried, at most `count` of each in each view, and
    those that were not true, with the network's name. smallest: as in `Claims.draw`."""
    tried, false = 0, []
    for i, network in enumerate(networks):
        for view in VIEWS:
            claims = Claims(network, view)
            random = np.random.default_rng([seed, i, len(view)])
            for claim in claims.draw(random, count, smallest=smallest):
                tried += 1
                if not claims.is_true(claim, random):
                    false.append((network.graph.name, claim))
    return tried, false
