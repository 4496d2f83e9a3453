"""Operators on numbers of 16 bits that have a kernel for float32 only are computed there."""

from __future__ import annotations

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.pointwise.cast import Cast
from verax.ops.sums.normalization import BatchNormalization
from verax.records.trace import Trace

HALVES = (DType.float16, DType.bfloat16)
WIDENED = frozenset({
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool",
    "GlobalMaxPool", "InstanceNormalization", "LogSoftmax", "MatMul", "MaxPool", "Softmax",
})  # fmt: skip
"""Operators whose float inputs and outputs have one type."""


def widen_halves(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Compute products, pools and normalisations of float16 and bfloat16 in float32.

    Given:  %y = Conv()(%x, %w) of float16
    Result: %y = Cast(to='float16')(Conv()(Cast(to='float32')(%x), %v))   with %v = %w in float32

    What stands between two of them, rounded to 16 bits step by step, is computed where the first
    one ends.

    Numeric effect: sums are rounded to float32 as they are made and then once to 16 bits, instead
    of to float64 and once to 16 bits: they differ where a sum lies within float32's rounding of the
    middle between two numbers of 16 bits. The largest of a window is the same.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        half = None if rewriter.spent else _half(graph, node)
        if half is None:
            rewriter.keep(node)
            continue
        inputs = [_widened(rewriter, v) for v in node.inputs]
        wide = rewriter.add(node.op, inputs)
        made = rewriter.add(Cast(to=half), [wide], node.name, rewriter.names(node))
        rewriter.replace(node, made, "widen_halves")
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "widen_halves"
        input %x: float16[2, 2, 5, 7]
        const %w: float16[3, 2, 1, 2] = [1, -0.5, 0.25, 2, 0.75, 1.5, -1, 0.5, -2, 0.5, 1, 0.25]
        %y: float16[2, 3, 5, 6] = Conv()(%x, %w)
        output %y
        """
    )


def _half(graph: Graph, node: Node) -> DType | None:
    """The type of 16 bits that the node computes in; None for any other node."""
    if node.op.kind not in WIDENED or len(node.outputs) != 1:
        return None
    if isinstance(node.op, BatchNormalization) and node.op.training_mode:
        return None
    half = graph.types[node.outputs[0]].dtype
    floats = {t.dtype for t in graph.input_types(node) if t is not None and t.dtype.is_float}
    return half if half in HALVES and floats == {half} else None


def _widened(rewriter: Rewriter, value: str | None) -> str | None:
    """The value in float32: a constant now, anything else when it is there."""
    if value is None or not rewriter.old.types[value].dtype.is_float:
        return rewriter.map(value)
    constant = rewriter.old.constants.get(value)
    if constant is not None:
        return rewriter.constant(constant.astype(np.float32))
    return rewriter.add(Cast(to=DType.float32), [rewriter.map(value)])
