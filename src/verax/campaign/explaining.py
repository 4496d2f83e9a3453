"""Whether the judge's explanations of an injected fault are true.

An explanation names a rival meaning. It is the truth when that rival, on inputs that it has never
seen, gives what the planted node gives there: not by its name, but as a function. Explanations that
fit the network's own input and fail on fresh ones only coincide there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.campaign.faults import NodeRewrite, apply, evaluate_rewrite
from verax.campaign.placements import Placement
from verax.ir.graph import Graph, Node
from verax.judge.decide.local import check_node
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import explain, fits, suspect_of
from verax.records.verdict import Kind

FRESH = 2
"""Inputs on which an explanation is tried again."""


@dataclass(frozen=True)
class Explained:
    """names: of the explanations, best first; true: those that hold on fresh inputs too."""

    names: tuple[str, ...]
    true: frozenset[str]

    @property
    def is_found(self) -> bool:
        """Whether the truth is among them."""
        return bool(self.true)

    @property
    def first(self) -> bool:
        """Whether the truth stands first."""
        return bool(self.names) and self.names[0] in self.true

    @property
    def wrong(self) -> bool:
        """Whether there are explanations and none of them is true."""
        return bool(self.names) and not self.true


def explained(placement: Placement, arrays: Sequence[Any], actual: np.ndarray) -> Explained:
    """Explanations of the faulty node's output for `arrays`, and which of them are true."""
    graph = placement.network.graph
    node = next(n for n in graph.nodes if n.name == placement.node)
    types = graph.output_types(node)
    names = tuple(e.hypothesis for e in explain(node, arrays, actual, types))
    true = set(names)
    random = np.random.default_rng(placement.network.seed)
    for _ in range(FRESH if names else 0):
        fresh_arrays = fresh(graph, node, arrays, random)
        suspect = suspect_of(
            node, fresh_arrays, faulty_output(placement, node, fresh_arrays), types
        )
        if suspect is None:
            return Explained(names, frozenset())
        if check_node(node, fresh_arrays, [suspect.actual], types)[0].kind is not Kind.mistake:
            continue  # the mistake does not show on these numbers: they tell nothing
        among = [h for h in hypotheses(suspect) if h.name in true]
        true = {fit.hypothesis.name for fit in fits(suspect, among)}
    return Explained(names, frozenset(true))


def fresh(
    graph: Graph, node: Node, arrays: Sequence[Any], random: np.random.Generator
) -> list[Any]:
    """The same numbers in another order and with random signs, where they are not constants."""
    listed: list[Any] = []
    for name, array in zip(node.inputs, arrays):
        if array is None or name in graph.constants or array.dtype.kind != "f":
            listed.append(array)
            continue
        signs = np.where(random.random(array.shape) < 0.5, -1, 1).astype(array.dtype)
        listed.append(signs * random.permutation(array.reshape(-1)).reshape(array.shape))
    return listed


def faulty_output(placement: Placement, node: Node, arrays: Sequence[Any]) -> np.ndarray:
    """The faulty node's output for other arrays, in float32."""
    if isinstance(placement.change, NodeRewrite):
        return evaluate_rewrite(placement.change, node, arrays)
    correct = apply(node.op, arrays)
    return np.asarray(placement.change(list(arrays), correct.copy()), np.float32)
