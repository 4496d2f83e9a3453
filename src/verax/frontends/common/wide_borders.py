"""A border out of proportion, written in a file as a Pad before a pool, becomes the pool's own.

Exporters write a pool whose window hangs far over its data as a Pad to the window's size: 1280 x
1280 around 7 x 7 at the end of EfficientNet, 8 GB that neither the meaning nor a program needs. It
is taken away while the file is read, for every format, so that reference, judge and every level see
what the pool sees. Modest borders stay as the file has them: the compiler folds those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ops.movement.padding import Pad
from verax.ops.movement.reshaping import Transpose
from verax.ops.windows.borders import border_of, with_border
from verax.ops.windows.windows import border_is_modest


def take_wide_borders(graph: Graph) -> tuple[Graph, Mapping[str, str]]:
    """(graph, old value -> new value): Pads far larger than their input that only pools read become
    borders of these pools.

    A Transpose may stand between the two, as it does where channels come last.
    """
    if not any(isinstance(node.op, Pad) for node in graph.nodes):
        return graph, {}
    absorbed: dict[str, tuple[Operator, Node, Node | None]] = {}
    for node in graph.nodes:
        match = _match_border(graph, node)
        if match is not None:
            absorbed[node.outputs[0]] = match
    if not absorbed:
        return graph, {}
    gone = {
        n.outputs[0] for _, pad, turn in absorbed.values() for n in (pad, turn) if n is not None
    }
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0]
        if value in gone:
            rewriter.drop(node, "border")
        elif value in absorbed:
            op, pad, turn = absorbed[value]
            x = rewriter.map(pad.inputs[0])
            if turn is not None:
                x = rewriter.add(turn.op, [x], turn.name, turn.outputs)
            outputs = rewriter.add_all(op, [x], node.name, node.outputs)
            rewriter.values.update(zip(node.outputs, outputs))
        else:
            rewriter.keep(node)
    graph, trace = rewriter.finish()
    return graph, trace.values


def _match_border(graph: Graph, node: Node) -> tuple[Operator, Node, Node | None] | None:
    """The pool with the border as its own, the Pad, and the Transpose between them if any."""
    pad = _single(graph, node.inputs[0] if node.inputs else None)
    turn = None
    if pad is not None and isinstance(pad.op, Transpose):
        turn, pad = pad, _single(graph, pad.inputs[0])
    border = None if pad is None else border_of(graph, pad)
    if pad is None or border is None:
        return None
    source = graph.types[pad.inputs[0] or ""]
    dims = source.dims
    if turn is not None:
        assert isinstance(turn.op, Transpose)
        perm = turn.op.perm or tuple(reversed(range(len(dims))))
        border, dims = border.transposed(perm), tuple(dims[a] for a in perm)
    output = graph.types[node.outputs[0]].dims[2:]
    inner = [d for d in dims[2:] if isinstance(d, int)]
    after = [d for d in output if isinstance(d, int)]
    if len(inner) != len(dims[2:]) or len(after) != len(output):
        return None
    lead = math.prod(d for d in dims[:2] if isinstance(d, int))
    reach = [n + a + b for n, (a, b) in zip(inner, border.widths[2:])]
    if border_is_modest(lead, tuple(inner), tuple(after), reach):
        return None
    op = with_border(node.op, border, inner)
    return None if op is None or len(node.inputs) != 1 else (op, pad, turn)


def _single(graph: Graph, value: str | None) -> Node | None:
    """The node that makes a value which one node reads and the network does not give."""
    if value is None or value in graph.outputs or value in graph.updates.values():
        return None
    return graph.producers.get(value) if len(graph.consumers.get(value, ())) == 1 else None
