"""Nodes that compute the same thing from the same values."""

from __future__ import annotations

from verax.ir.graph import Graph
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.records.trace import Trace


def merge_common(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Compute equal nodes once.

    Given:  %b = Relu()(%a); %c = Relu()(%a); %d = Add()(%b, %c)
    Result: %b = Relu()(%a); %d = Add()(%b, %b)

    Numeric effect: none; operators are pure functions. Nodes that make graph outputs are kept.
    """
    rewriter = Rewriter(graph, limit)
    computed: dict[tuple[Operator, tuple[str | None, ...]], tuple[str, ...]] = {}
    for node in graph.nodes:
        key = (node.op, tuple(rewriter.map(v) for v in node.inputs))
        is_output = any(v in graph.outputs for v in node.outputs)
        if key in computed and not is_output and not rewriter.spent:
            rewriter.replace(node, computed[key], "merge_common")
        else:
            rewriter.keep(node)
            computed.setdefault(
                key, tuple(v for v in map(rewriter.map, node.outputs) if v is not None)
            )
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "merge_common"
        input %a: float32[2, 3]
        %b: float32[2, 3] = Relu()(%a)
        %c: float32[2, 3] = Relu()(%a)
        %d: float32[2, 3] = Add()(%b, %c)
        output %d
        """
    )
