"""Ends of kernels that lie in the padding for every output are cut off."""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.windows.convolution import Conv
from verax.ops.windows.windows import Windows
from verax.records.trace import Trace


def trim_kernels(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Cut off the ends of a convolution's kernel that meet padding alone, whichever the output.

    Given:  %y = Conv(pads=((3, 3), (3, 3)), dilations=(3, 3))(%x, %w), %x: [.., 2, 3], %w: 3 x 3
    Result: %y = Conv(dilations=(3, 3))(%x, the middle of %w)

    DeepLab's dilations of 24 and 36 leave one of nine positions on small images. Weights are
    constants, all finite; an axis whose pads would become negative is left alone.

    Numeric effect: products with zeros are left out, which changes the sign of a zero at most: a
    sum that has underflowed to -0 becomes +0 when +0 is added.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        tap_ranges = None if rewriter.spent else _reached_taps(graph, node)
        if tap_ranges is None:
            rewriter.keep(node)
            continue
        assert isinstance(node.op, Conv)
        windows = _windows(graph, node)
        pads = tuple(
            (begin - lo * d, end - (k - hi) * d)
            for (begin, end), (lo, hi), k, d in zip(
                windows.pads, tap_ranges, windows.kernel_shape, windows.dilations, strict=True
            )
        )
        shape = tuple(hi - lo for lo, hi in tap_ranges)
        op = dataclasses.replace(node.op, pads=pads, kernel_shape=shape)
        weights = graph.constants[node.inputs[1] or ""]
        middle = weights[(slice(None),) * 2 + tuple(slice(lo, hi) for lo, hi in tap_ranges)]
        inputs = [rewriter.map(v) for v in node.inputs]
        inputs[1] = rewriter.constant(np.ascontiguousarray(middle))
        output = rewriter.add(op, inputs, node.name, rewriter.names(node))
        rewriter.replace(node, output, "trim_kernels")
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "trim_kernels"
        input %x: float32[2, 1, 2, 3]
        const %w: float32[1, 1, 3, 3] = [1.0, -0.5, 0.25, 2.0, 3.0, -1.0, 0.5, 4.0, -2.0]
        %y: float32[2, 1, 2, 3] = Conv(pads=((3, 3), (3, 3)), dilations=(3, 3))(%x, %w)
        output %y
        """
    )


def _windows(graph: Graph, node: Node) -> Windows:
    assert isinstance(node.op, Conv)
    x, w = (graph.types[v or ""] for v in node.inputs[:2])
    return node.op.spatial(x, w)


def _reached_taps(graph: Graph, node: Node) -> list[tuple[int, int]] | None:
    """(first, end) of the kernel positions per axis that meet data; None where all must stay."""
    if not isinstance(node.op, Conv) or node.inputs[1] not in graph.constants:
        return None
    types = [t for t in graph.input_types(node) if t is not None]
    if not all(t.is_static for t in types):
        return None
    windows = _windows(graph, node)
    if not types[0].is_fixed and _surely_reached(windows):
        return None
    tap_ranges = [
        _reached(*axis)
        for axis in zip(
            map(int, windows.input),
            map(int, windows.output),
            windows.kernel_shape,
            windows.strides,
            windows.dilations,
            windows.pads,
            strict=True,
        )
    ]
    if all(hi - lo == k for (lo, hi), k in zip(tap_ranges, windows.kernel_shape, strict=True)):
        return None
    return tap_ranges if np.isfinite(graph.constants[node.inputs[1] or ""]).all() else None


def _surely_reached(windows: Windows) -> bool:
    """Whether every position meets data, along each axis, whatever the size comes to."""
    axes = windows.kernel_shape, windows.strides, windows.dilations, windows.pads
    return all(n >= _enough(*axis) for n, axis in zip(windows.input, zip(*axes), strict=True))


def _enough(kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
    """From how many elements of an axis on every position meets some: the last one those of the
    first output, or a whole window lies on data, wherever windows begin; and the first one those of
    the output whose window begins there."""
    extent, (begin, end) = (kernel - 1) * dilation, pads
    full = extent + stride
    if begin > extent:
        return full
    return min(full, max(stride, extent - begin + 1, extent - end + stride))


def _reached(
    input: int, output: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]
) -> tuple[int, int]:
    """The first position of an axis that some output meets inside the input, and one past the last;
    all positions where there is none, or where pads would become negative."""
    first = np.arange(kernel) * dilation - pads[0]  # what the first output meets
    # outputs from the first that lies at 0 or behind to the last that lies before the end
    low, high = np.maximum(0, -(first // stride)), (input - 1 - first) // stride
    (live,) = np.nonzero(np.minimum(high, output - 1) >= low)
    if not live.size:
        return 0, kernel
    lo, hi = int(live[0]), int(live[-1]) + 1
    if pads[0] < lo * dilation or pads[1] < (kernel - hi) * dilation:
        return 0, kernel
    return lo, hi
