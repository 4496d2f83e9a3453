"""Integer convolutions that have room for one window only, as streaming networks have them.

A wake-word network takes a few frames at a time: every convolution over its past gives one pixel.
Around each of them bytes would be turned into planes of channels, widened and put in blocks, which
takes longer than the few thousand products. Nothing has to be turned for one window.
"""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.passes.quantized import swept, zero_point_of
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.shapes import sizes_array
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.movement.reshaping import Reshape, Transpose
from verax.ops.pointwise.arithmetic import Mul, Sub
from verax.ops.pointwise.cast import Cast
from verax.ops.sums.reduction import ReduceSum
from verax.ops.windows.integer_convolution import ConvInteger
from verax.records.trace import Trace

MOST_TERMS = 2**15
"""Products of a byte less a zero point and a weight, below 2^16, that int32 holds the sum of."""


def flatten_windows(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Take a convolution of bytes that has one window as a product, or as a sum over pixels.

    Given:  %t = Transpose(perm=(0, 3, 1, 2))(%x); %y = ConvInteger()(%t, %w, %z)
    Result: %r = Reshape()(%x, [n, h w c, 1, 1]); %y = ConvInteger()(%r, %v, %z)

    %v holds the weights of %w in the order of %x. With a filter for each channel, channels last and
    no zero points of the weights, %y becomes the sum of (%x - %z) %v over pixels, which a Transpose
    follows that moves nothing.

    Numeric effect: none; integers are added exactly, in any order.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        if rewriter.spent or not _has_one_window(graph, node):
            rewriter.keep(node)
        elif node.op.groups == 1:  # type: ignore[attr-defined]
            _as_product(rewriter, node)
        elif _is_depthwise(graph, node):
            _as_sum(rewriter, node)
        else:
            rewriter.keep(node)
    return swept(graph, *rewriter.finish())


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "flatten_windows"
        input %x: int8[1, 2, 1, 3]
        const %z: int8[] = [-5]
        const %w: int8[2, 3, 2, 1] = [1, -5, 3, 20, 7, 15, -128, 5, -2, 9, 127, 11]
        %t: int8[1, 3, 2, 1] = Transpose(perm=(0, 3, 1, 2))(%x)
        %y: int32[1, 2, 1, 1] = ConvInteger()(%t, %w, %z)
        output %y
        """
    )


def _has_one_window(graph: Graph, node: Node) -> bool:
    """A convolution of bytes with constant weights as large as the image, which has more than one
    pixel and no border."""
    if not isinstance(node.op, ConvInteger) or node.inputs[1] not in graph.constants:
        return False
    data, result = graph.types[node.inputs[0] or ""], graph.types[node.outputs[0]]
    kernel = graph.constants[node.inputs[1] or ""].shape[2:]
    if data.dtype not in (DType.int8, DType.uint8) or not (data.is_static and result.is_static):
        return False
    image = data.shape[2:]
    fits = kernel == image and set(result.shape[2:]) == {1} and math.prod(image) > 1
    return fits and not _has_border(node.op) and not _is_dilated(node.op, kernel)


def _has_border(op: ConvInteger) -> bool:
    return isinstance(op.pads, str) or any(begin or end for begin, end in op.pads)


def _is_dilated(op: ConvInteger, kernel: tuple[int, ...]) -> bool:
    return any(d > 1 and k > 1 for d, k in zip(op.dilations, kernel))


def _is_depthwise(graph: Graph, node: Node) -> bool:
    """As many filters as channels, and sums that `_as_sum` can take."""
    assert isinstance(node.op, ConvInteger)
    _, channels, *pixels = graph.types[node.inputs[0] or ""].shape
    return (
        node.op.groups == channels == len(graph.constants[node.inputs[1] or ""])
        and len(node.inputs) < 4
        and zero_point_of(graph, node) is not None
        and math.prod(pixels) < MOST_TERMS
        and node.op.output_dtype is DType.int32
        and _channels_last(graph, node) is not None
    )


def _channels_last(graph: Graph, node: Node) -> str | None:
    """The value with channels last that a Transpose turns into the convolution's data."""
    transpose = graph.producers.get(node.inputs[0] or "")
    if transpose is None or not isinstance(transpose.op, Transpose):
        return None
    rank = graph.types[node.inputs[0] or ""].rank
    return transpose.inputs[0] if transpose.op.perm == (0, rank - 1, *range(1, rank - 1)) else None


def _as_product(rewriter: Rewriter, node: Node) -> None:
    """A convolution of one pixel, whose channels are all elements of the window."""
    graph, op = rewriter.old, node.op
    assert isinstance(op, ConvInteger)
    last = _channels_last(graph, node)
    weights = graph.constants[node.inputs[1] or ""]
    if last is not None:
        weights = np.moveaxis(weights, 1, -1)
    rank = weights.ndim
    flat = np.ascontiguousarray(weights).reshape(len(weights), -1, *(1,) * (rank - 2))
    shape = sizes_array((graph.types[node.inputs[0] or ""].shape[0], *flat.shape[1:]))
    data = rewriter.map(node.inputs[0] if last is None else last)
    pixel = rewriter.add(Reshape(), [data, rewriter.constant(shape)])
    zeros = [rewriter.map(v) for v in node.inputs[2:]]
    output = rewriter.add(
        ConvInteger(output_dtype=op.output_dtype),
        [pixel, rewriter.constant(flat), *zeros],
        node.name,
        rewriter.names(node),
    )
    rewriter.replace(node, output, "flatten_windows")


def _as_sum(rewriter: Rewriter, node: Node) -> None:
    """The sum over pixels of products, channels last."""
    graph = rewriter.old
    rank = graph.types[node.inputs[0] or ""].rank
    weights = np.moveaxis(graph.constants[node.inputs[1] or ""], (1, 0), (0, -1)).astype(np.int32)
    wide = rewriter.add(Cast(to=DType.int32), [rewriter.map(_channels_last(graph, node))])
    if zero := zero_point_of(graph, node):
        wide = rewriter.add(Sub(), [wide, rewriter.constant(np.array(zero, np.int32))])
    products = rewriter.add(Mul(), [wide, rewriter.constant(np.ascontiguousarray(weights))])
    axes = rewriter.constant(np.arange(1, rank - 1))
    summed = rewriter.add(ReduceSum(), [products, axes])
    first = Transpose(perm=(0, rank - 1, *range(1, rank - 1)))
    output = rewriter.add(first, [summed], node.name, rewriter.names(node))
    rewriter.replace(node, output, "flatten_windows")
