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
    graph output, unless that is the new value of a state: then what makes its input writes the
    state itself.
    """
    rewriter = Rewriter(graph, limit)
    new_state = _new_state(graph)
    renamed_outputs: set[str] = set()  # outputs whose names are given away, so that they have to go
    for node in graph.nodes:
        spent = limit is not None and len(rewriter.records) + len(renamed_outputs) >= limit
        plain = node.op.kind == "Identity" or (
            node.op.kind == "Dropout"
            and not any(graph.consumers.get(v) or v in graph.outputs for v in node.outputs[1:])
            and len(node.outputs) == 1
        )
        source = node.inputs[0] if node.inputs else None
        removable = plain and source is not None and not spent
        if node.outputs[0] in renamed_outputs or (
            removable and node.outputs[0] not in graph.outputs
        ):
            renamed_outputs.discard(node.outputs[0])
            mapped = rewriter.map(source)
            assert mapped is not None
            rewriter.replace(node, mapped, "remove_identity")
        elif spent or new_state.keys().isdisjoint(node.outputs):
            rewriter.keep(node)
        else:
            renamed_outputs |= {new_state[v] for v in node.outputs if v in new_state}
            inputs = [rewriter.map(v) for v in node.inputs]
            names = [new_state.get(v, v) for v in node.outputs]
            outputs = rewriter.add_all(node.op, inputs, node.name, names)
            rewriter.values.update(zip(node.outputs, outputs))
    return rewriter.finish()


def _new_state(graph: Graph) -> dict[str, str]:
    """By value that a node computes, the new value of a state that an Identity makes of it alone:
    the node can have that name."""
    renames: dict[str, str] = {}
    for new in graph.state.values():
        node = graph.producers.get(new)
        if node is None or node.op.kind != "Identity":
            continue
        source = node.inputs[0] or ""
        if source in graph.producers and source not in graph.outputs:
            renames.setdefault(source, new)
    return renames


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
