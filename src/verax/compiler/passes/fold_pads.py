"""Explicit padding in front of a convolution or a pool becomes its own."""

from __future__ import annotations

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.windows.borders import Border, border_of, with_border
from verax.ops.windows.integer_convolution import ConvInteger
from verax.records.trace import Trace


def fold_pads(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Fold a Pad on spatial axes into the convolutions and pools that read it.

    Given:  %p = Pad(mode='constant')(%x, [0,0,0,0, 0,0,1,1]); %y = Conv(strides=(2, 2))(%p, %w)
    Result: %y = Conv(strides=(2, 2), pads=((0, 1), (0, 1)))(%x, %w)

    Numeric effect: none. A convolution's canonical order takes padded positions in as zeros, which
    is what they are after the Pad. Both ends of each axis are kept apart, so asymmetric padding
    stays asymmetric. Likewise ConvInteger, whose padding is its zero point; AveragePool, which then
    counts its padding, and LpPool: zeros change no sum; MaxPool behind a Pad of -inf (or the
    smallest integer), of which nothing is below. Negative pads, other fill values, other axes, and
    pools whose windows would be others are left alone.
    """
    rewriter = Rewriter(graph, limit)
    padded: dict[str, tuple[str, Border]] = {}
    for node in graph.nodes:
        border = border_of(graph, node)
        source = node.inputs[0] if node.inputs else None
        value = node.outputs[0]
        if (
            border is not None
            and source is not None
            and not rewriter.spent
            and value not in graph.outputs
            and all(
                _folded(graph, n, value, source, border) for n in graph.consumers.get(value, ())
            )
        ):
            padded[value] = (source, border)
            rewriter.drop(node, "fold_pads")
        elif source in padded:
            assert source is not None
            origin, border = padded[source]
            op = _folded(graph, node, source, origin, border)
            assert op is not None
            inputs = [rewriter.map(origin), *(rewriter.map(v) for v in node.inputs[1:])]
            outputs = rewriter.new.add_all(op, inputs, node.outputs, node.name)
            rewriter.values.update(zip(node.outputs, outputs))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "fold_pads"
        input %x: float32[2, 1, 5, 7]
        const %pads: int64[8] = [0, 0, 0, 0, 0, 0, 1, 1]
        const %w: float32[1, 1, 2, 2] = [1.0, -0.5, 0.25, 2.0]
        %p: float32[2, 1, 6, 8] = Pad()(%x, %pads)
        %y: float32[2, 1, 3, 4] = Conv(strides=(2, 2))(%p, %w)
        output %y
        """
    )


def _folded(graph: Graph, node: Node, value: str, source: str, border: Border) -> Operator | None:
    """What reads `source` in the place of `node`, which reads `value`, with its border; or None."""
    if node.inputs[0] != value or value in node.inputs[1:]:
        return None
    zero = 0
    if isinstance(node.op, ConvInteger) and len(node.inputs) > 2 and node.inputs[2] is not None:
        point = graph.constants.get(node.inputs[2])
        if point is None:
            return None
        zero = int(np.reshape(point, ()))
    return with_border(node.op, border, graph.types[source].dims[2:], zero)
