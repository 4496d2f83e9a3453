"""Nodes and constants that no output depends on."""

from __future__ import annotations

import dataclasses

from verax.ir.graph import Graph
from verax.ir.rewrite import rewrite_of
from verax.ir.text import parse_graph
from verax.records.trace import Rewrite, Trace, numbered


def remove_dead_code(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove nodes and constants that no graph output depends on.

    Given:  %b = Relu()(%a); %c = Abs()(%a); output %b
    Result: %b = Relu()(%a); output %b

    Numeric effect: none.
    """
    needed = set(graph.outputs)
    live_nodes = []
    records: list[Rewrite] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs) or len(records) == limit:
            live_nodes.append(node)
            needed.update(v for v in node.inputs if v is not None)
        else:
            records.append(rewrite_of(node, "remove_dead_code"))
    constants = {v: a for v, a in graph.constants.items() if v in needed}
    alive = {*graph.inputs, *constants, *(v for n in live_nodes for v in n.outputs)}
    types = {v: t for v, t in graph.types.items() if v in alive}
    result = dataclasses.replace(
        graph, nodes=tuple(reversed(live_nodes)), constants=constants, types=types
    )
    return result, Trace({v: v for v in alive}, numbered(records))


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "remove_dead_code"
        input %a: float32[2, 3]
        %b: float32[2, 3] = Relu()(%a)
        %c: float32[2, 3] = Abs()(%a)
        output %b
        """
    )
