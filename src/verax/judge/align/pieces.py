"""Pieces of a network: the nodes between values that are known to agree and one value.

A piece is evaluated on numbers of our own choosing instead of those that the network makes, which
shows its behavior on any numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.types import TensorType
from verax.judge.align.corners import CornerCoverage, scalars
from verax.judge.align.values import Values, unit_of
from verax.numerics import statistics as st
from verax.reference.evaluate import evaluate_node

SAMPLES = 3
"""Evaluations with jittered weights by which the spread of a piece is measured."""


class NetworkPiece:
    """The nodes that make `value` from `leaves`, in order.

    leaves: values that are fed, inputs of the graph among them; everything else that the nodes
    read does not depend on an input, and is what it was.
    """

    def __init__(
        self,
        graph: Graph,
        values: Values,
        varying: Container[str],
        value: str,
        stops: Container[str],
        max_nodes: int,
    ) -> None:
        self.graph, self.values, self.value = graph, values, value
        self.leaves: list[str] = []
        within: set[str] = set()
        waiting, seen = [value], {value}
        while waiting:
            name = waiting.pop()
            node = graph.producers.get(name)
            if node is None or (name in stops and name != value):
                self.leaves.append(name)
                continue
            within.add(name)
            for v in node.inputs:
                if v is not None and v in varying and v not in seen:
                    seen.add(v)
                    waiting.append(v)
            if len(within) > max_nodes:
                break
        self.too_long = len(within) > max_nodes
        order = positions(graph)
        unique = {graph.producers[v].outputs[0]: graph.producers[v] for v in within}
        self.nodes = sorted(unique.values(), key=lambda n: order[n.outputs[0]])
        self.leaves.sort(key=lambda v: order.get(v, -1))

    def run(self, fed: Mapping[str, Any], sides: CornerCoverage | None = None) -> np.ndarray:
        """The value on the leaves `fed`. sides: collects the sides of corners that numbers
        reach."""
        return self._run(dict(fed), sides)

    def _run(self, computed: dict[str, Any], sides: CornerCoverage | None = None) -> np.ndarray:
        for node in self.nodes:
            arrays = [None if v is None else self._get(computed, v) for v in node.inputs]
            if sides is not None:
                sides.add(self.graph, node, arrays)
            types = tuple(
                None if v is None or a is None else TensorType(self.graph.types[v].dtype, a.shape)
                for v, a in zip(node.inputs, arrays)
            )
            results = evaluate_node(node, arrays, types, self.graph.output_types(node))
            for name, array in zip(node.outputs, results):
                computed.setdefault(name, array)
        return np.asarray(computed[self.value])

    def _get(self, computed: Mapping[str, Any], name: str) -> Any:
        return computed[name] if name in computed else self.values[name]

    def end_at_value(self) -> None:
        """Make the value itself the only leaf, so that nothing is computed."""
        self.nodes, self.leaves, self.too_long = [], [self.value], False

    def spread(
        self, fed: Mapping[str, Any], seed: int, rounded: Container[str]
    ) -> np.ndarray | None:
        """Standard deviation of each element when the weights are rounded a few times more; None
        where there are none. rounded: see `values.roundable`."""
        named = [v for n in self.nodes for v in n.inputs if v is not None]
        weights = [v for v in dict.fromkeys(named) if v in rounded]
        if not weights:
            return None
        at = self.run(fed)
        random = np.random.default_rng(seed)
        unit = unit_of(self.graph) * st.CONSTANT_ROUNDINGS
        total = np.zeros(at.shape)
        for _ in range(SAMPLES):
            jittered = {
                v: self.values[v] * (1 + unit * random.standard_normal(self.values[v].shape))
                for v in weights
            }
            with np.errstate(all="ignore"):
                total += np.nan_to_num(np.square(self._run({**jittered, **fed}) - at))
        return st.sampled_sigma(total / SAMPLES)

    def scalars(self) -> Iterator[float]:
        """Numbers that the operators hold and that say where something changes."""
        for node in self.nodes:
            constants = [self.graph.constants.get(v or "") for v in node.inputs]
            yield from scalars(node, constants)


def positions(graph: Graph) -> dict[str, int]:
    """Where in the order of nodes each value is made; inputs and constants are not listed."""
    return {v: i for i, n in enumerate(graph.nodes) for v in n.outputs}


def movable(node: Node) -> bool:
    """Whether random numbers say something about a node at all: not where bodies run."""
    return node.op.kind not in ("Loop", "NonMaxSuppression", "MultiBoxDetection", "BoxNMS")
