"""Operators on numbers of 16 bits that have a kernel for float32 only are computed there."""

from __future__ import annotations

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import HALVES, DType
from verax.ops.movement.scatter import ScatterElements, ScatterND
from verax.ops.pointwise.cast import Cast
from verax.records.trace import Trace

WIDENED = frozenset({
    "Attention", "AveragePool", "BatchNormalization", "BoxNMS", "Conv", "ConvTranspose", "Einsum",
    "GRU", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GridSample",
    "GroupNormalization", "InstanceNormalization", "LRN", "LSTM", "LayerNormalization",
    "LogSoftmax", "LpNormalization", "LpPool", "MatMul", "MaxPool", "MaxRoiPool",
    "MeanVarianceNormalization", "RMSNormalization", "RNN", "Resize", "RoiAlign",
    "ScatterElements", "ScatterND", "Softmax",
})  # fmt: skip
"""Operators whose kernels take no halves; all of them promise `Operator.in_float32`."""


def widen_halves(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Compute products, pools, normalisations and the like of float16 and bfloat16 in float32.

    Given:  %y = Conv()(%x, %w) of float16
    Result: %y = Cast(to='float16')(Conv()(Cast(to='float32')(%x), %v))   with %v = %w in float32

    What stands between two of them, rounded to 16 bits step by step, is computed where the first
    one ends.

    Numeric effect: none. What such an operator promises in 16 bits is what it promises in float32,
    rounded once.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        if rewriter.spent or not _is_widened(graph, node):
            rewriter.keep(node)
            continue
        inputs = [_widened(rewriter, v) for v in node.inputs]
        wide = rewriter.add_all(node.op, inputs)
        names = rewriter.names(node)
        made = [
            rewriter.add(Cast(to=graph.types[old].dtype), [new], node.name if not i else "", [name])
            if graph.types[old].dtype in HALVES
            else new
            for i, (old, new, name) in enumerate(zip(node.outputs, wide, names, strict=True))
        ]
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


def _is_widened(graph: Graph, node: Node) -> bool:
    """Whether the node computes in 16 bits, and nothing but that changes in float32."""
    if node.op.kind not in WIDENED or not HALVES & {graph.types[v].dtype for v in node.outputs}:
        return False
    if any(isinstance(a, DType) and a in HALVES for a in node.op.attributes().values()):
        return False  # it would go on making numbers of 16 bits
    return not isinstance(node.op, ScatterElements | ScatterND) or node.op.reduction != "none"


def _widened(rewriter: Rewriter, value: str | None) -> str | None:
    """The value in float32: a constant now, anything else when it is there."""
    if value is None or rewriter.old.types[value].dtype not in HALVES:
        return rewriter.map(value)
    constant = rewriter.old.constants.get(value)
    if constant is not None:
        return rewriter.constant(constant.astype(np.float32))
    return rewriter.add(Cast(to=DType.float32), [rewriter.map(value)])
