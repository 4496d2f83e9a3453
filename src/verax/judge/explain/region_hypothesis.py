"""A mistake in one of several nodes, of which only the last one's output is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Graph, Node
from verax.judge.explain.hypotheses.base import Prior

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RegionHypothesis:
    """A hypothesis on a region. step: index of the node from which values change; value: the output
    of that node under the hypothesis (a tuple: all of its outputs), from the inner values, in
    float64. sigma: of that output's own rounding, where it differs from the reference's. bare: its
    name without that of the node. is_whole: it concerns several nodes that form one function."""

    hypothesis: str
    words: str
    prior: Prior
    step: int
    value: Callable[[Values], np.ndarray | tuple[np.ndarray, ...] | None]
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sigma: np.ndarray | None = None
    fitted: int = 0
    bare: str = ""
    is_whole: bool = False


def region_nodes(graph: Graph, names: Collection[str], last: str) -> tuple[list[Node], set[str]]:
    """The nodes of these names in order, up to the value `last` and only those that it depends on,
    and the values from outside that they read."""
    nodes: list[Node] = []
    needed = {last}
    for node in reversed(graph.nodes):
        if (node.name or node.outputs[0]) in names and not needed.isdisjoint(node.outputs):
            nodes.insert(0, node)
            needed.update(v for v in node.inputs if v is not None)
    produced = {v for n in nodes for v in n.outputs}
    return nodes, {v for n in nodes for v in n.inputs if v is not None} - produced
