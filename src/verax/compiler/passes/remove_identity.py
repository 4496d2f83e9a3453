"""Identity and inference-time Dropout pass their input on."""

from __future__ import annotations

from verax.ir.graph import Graph
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.records.trace import Trace


def remove_identity(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove nodes that hand their input on unchanged.

    Given:  %b = Identity()(%a); %c = Relu()(%b)
    Result: %c = Relu()(%a)

    Numeric effect: none. A Dropout whose mask is read is kept, and so is a node that makes a
    graph output.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        plain = node.op.kind == "Identity" or (
            node.op.kind == "Dropout"
            and not any(graph.consumers.get(v) or v in graph.outputs for v in node.outputs[1:])
            and len(node.outputs) == 1
        )
        source = node.inputs[0] if node.inputs else None
        is_output = node.outputs[0] in graph.outputs
        if not plain or source is None or is_output or rewriter.spent:
            rewriter.keep(node)
        else:
            mapped = rewriter.map(source)
            assert mapped is not None
            rewriter.replace(node, mapped, "remove_identity")
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "remove_identity"
        input %a: float32[2, 3]
        %b: float32[2, 3] = Identity()(%a)
        %c: float32[2, 3] = Relu()(%b)
        output %c
        """
    )
