"""Explicit zero padding in front of a convolution becomes the convolution's own."""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.movement.padding import Pad
from verax.ops.windows.convolution import Conv
from verax.ops.windows.integer_convolution import ConvInteger
from verax.records.trace import Trace


def fold_pads(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Fold a Pad of zeros on spatial axes into the convolutions that read it.

    Given:  %p = Pad(mode='constant')(%x, [0,0,0,0, 0,0,1,1]); %y = Conv(strides=(2, 2))(%p, %w)
    Result: %y = Conv(strides=(2, 2), pads=((0, 1), (0, 1)))(%x, %w)

    Numeric effect: none. A convolution's canonical order takes padded positions in as zeros, which
    is what they are after the Pad. Both ends of each axis are kept apart, so asymmetric padding
    stays asymmetric. Likewise ConvInteger, whose padding is its zero point. Negative pads, other
    fill values and other axes are left alone.
    """
    rewriter = Rewriter(graph, limit)
    padded: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {}
    for node in graph.nodes:
        widths = _zero_padding(graph, node)
        source = node.inputs[0] if node.inputs else None
        value = node.outputs[0]
        if (
            widths is not None
            and source is not None
            and not rewriter.spent
            and value not in graph.outputs
            and all(_takes_pads(graph, n, value) for n in graph.consumers.get(value, ()))
        ):
            padded[value] = (source, widths)
            rewriter.drop(node, "fold_pads")
        elif source in padded:
            assert isinstance(node.op, Conv | ConvInteger) and source is not None
            origin, widths = padded[source]
            own = node.op.pads or ((0, 0),) * len(widths)
            assert not isinstance(own, str)
            pads = tuple((a + c, b + d) for (a, b), (c, d) in zip(own, widths))
            op = dataclasses.replace(node.op, pads=pads)
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


def _takes_pads(graph: Graph, node: Node, value: str) -> bool:
    if isinstance(node.op, ConvInteger):
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        own = 0 if zero is None else graph.constants.get(zero)
        if own is None or _fill(graph, graph.producers[value]) != int(np.reshape(own, ())):
            return False
    elif _fill(graph, graph.producers[value]) != 0:
        return False
    return (
        isinstance(node.op, Conv | ConvInteger)
        and not isinstance(node.op.pads, str)
        and node.inputs[0] == value
        and value not in node.inputs[1:]
    )


def _fill(graph: Graph, node: Node) -> float:
    """What a Pad of constants adds."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return 0.0 if value is None else float(np.reshape(graph.constants[value], ()))


def _zero_padding(graph: Graph, node: Node) -> tuple[tuple[int, int], ...] | None:
    """(begin, end) numbers per spatial axis that a Pad adds, None for any other node."""
    op = node.op
    if not isinstance(op, Pad) or op.mode != "constant" or len(node.inputs) < 2:
        return None
    constants = graph.constant_inputs(node)
    rank = graph.types[node.outputs[0]].rank
    if any(v is not None and c is None for v, c in zip(node.inputs[1:], constants[1:])):
        return None
    pads = constants[1]
    value = constants[2] if len(constants) > 2 else None
    axes = constants[3] if len(constants) > 3 else None
    if pads is None or rank < 3 or (value is not None and value.size != 1):
        return None
    chosen = [int(a) % rank for a in axes.ravel()] if axes is not None else list(range(rank))
    widths = {a: (0, 0) for a in range(rank)}
    for i, axis in enumerate(chosen):
        widths[axis] = (int(pads[i]), int(pads[i + len(chosen)]))
    if widths[0] != (0, 0) or widths[1] != (0, 0) or any(w < 0 for p in widths.values() for w in p):
        return None
    return tuple(widths[a] for a in range(2, rank))
