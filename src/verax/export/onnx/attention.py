"""Attention in its parts: ONNX has it as one operator since operator set 23, with other axes.

And the Softmax that gives zeros for a line of -inf ("safe softmax"), which ONNX has as no operator.
"""

from __future__ import annotations

import numpy as np

from verax.export.onnx.emission import (
    NodeGroup,
    OnnxEmission,
    reduced,
    written_for,
)
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.ops.sums.attention import PARTS, Attention


@written_for("Attention")
def attention(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """MatMul, Mul, Add or Where, Softmax, MatMul. Shared heads are gathered."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, Attention)
    rank, dtype = g.type(0).rank, g.type(0).dtype
    swapped = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
    operands, heads = [], []
    for i, operand in enumerate("qkv"):
        inside = operand in op.heads_inside
        x = g.input(i)
        operands.append(g.add("Transpose", x, perm=swapped) if inside else x)
        heads.append(g.type(i).dims[-2 if inside else -3] if rank > 2 else 1)
    for i in (1, 2):
        if heads[i] in (1, heads[0]):
            continue
        if not all(isinstance(h, int) for h in heads):
            return g.refuse("shares heads, whose number is not known")
        own, query_heads = int(heads[i]), int(heads[0])  # type: ignore[arg-type]
        index = g.constant(np.repeat(np.arange(own), query_heads // own))
        operands[i] = g.add("Gather", operands[i], index, axis=rank - 3)
    q, k, v = operands
    transposed_keys = g.add("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.add("MatMul", q, transposed_keys)
    if op.scale != 1:
        scores = g.add("Mul", scores, g.constant(op.scale, dtype.numpy))
    if op.divisor != 1:
        scores = g.add("Div", scores, g.constant(op.divisor, dtype.numpy))
    hidden = g.constant(op.hidden, dtype.numpy)
    if g.has(3) and g.type(3).dtype is DType.bool_:
        scores = g.add("Where", g.input(3), scores, hidden)
    elif g.has(3):
        scores = g.add("Add", scores, g.input(3))
    if op.causal:
        n, m = (g.type(i).dims[-3 if PARTS[i] in op.heads_inside else -2] for i in (0, 1))
        if not isinstance(n, int) or not isinstance(m, int):
            return g.refuse("is causal, and its lengths are not known")
        scores = g.add("Where", g.constant(np.tri(n, m), bool), scores, hidden)
    shares = safe_softmax(g, scores, -1, dtype, version) if op.masked_to_zero else (
        g.add("Softmax", scores, axis=-1)
    )  # fmt: skip
    if op.nan_to_zero:
        shares = g.add("Where", g.add("IsNaN", shares), g.constant(0, dtype.numpy), shares)
    y = g.add("MatMul", shares, v)
    return g.finish(g.add("Transpose", y, perm=swapped) if "y" in op.heads_inside else y)


def safe_softmax(g: NodeGroup, scores: str, axis: int, dtype: DType, version: int) -> str:
    """Softmax along an axis, and zeros for a line that is -inf throughout: Softmax with a Where
    that asks the line's maximum. IsNaN would be shorter, and would make zeros of other NaN, too."""
    top = reduced(g, "ReduceMax", scores, [axis], version)
    masked = g.add("Equal", top, g.constant(-np.inf, dtype.numpy))
    shares = g.add("Softmax", scores, axis=axis)
    return g.add("Where", masked, g.constant(0, dtype.numpy), shares)
