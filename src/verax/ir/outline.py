"""What records hold of a network, for reports to draw."""

from __future__ import annotations

from verax.ir.graph import Graph
from verax.records.network import MAX_NODES, MAX_TEXT, NetworkOutline, OutlinedNode


def outline(graph: Graph) -> NetworkOutline:
    """The network without its weights."""
    nodes = graph.nodes[:MAX_NODES]
    values = {v: None for v in graph.inputs}
    for node in nodes:
        values |= dict.fromkeys(v for v in (*node.inputs, *node.outputs) if v is not None)
    return NetworkOutline(
        graph.name,
        tuple(graph.inputs),
        tuple(graph.outputs),
        tuple(
            OutlinedNode(
                node.name or node.outputs[0],
                node.op.kind,
                tuple(v or "" for v in node.inputs),
                node.outputs,
                {k: cut(repr(v)) for k, v in node.op.attributes().items()},
            )
            for node in nodes
        ),
        {v: cut(str(graph.types[v])) for v in values if v in graph.types},
        len(graph.nodes) - len(nodes),
    )


def cut(text: str) -> str:
    """At most `MAX_TEXT` characters of a text."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
