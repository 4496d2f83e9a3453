"""Products in bfloat16, where the user allows them: both factors are rounded to 8 bits."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from verax.ir.amplification import amplifiers
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.numerics.formats import BFLOAT16, round_to
from verax.ops.pointwise.factors import SMALLEST_FACTOR, SMALLEST_START, Bfloat16Factor
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv
from verax.records.trace import Trace

FEWEST_TERMS = 16
"""Products of shorter sums (depthwise convolutions, say) are left alone: no instruction helps."""


def choose_bfloat16(
    graph: Graph, limit: int | None = None, keep: Collection[str] = ()
) -> tuple[Graph, Trace]:
    """Take the factors of convolutions and matrix products in bfloat16, and add in float32.

    Given:  %y = MatMul()(%x, %w) with a constant %w
    Result: %y = MatMul()(Bfloat16Factor()(%x), %v) with %v = %w in bfloat16

    It runs only where bf16 is allowed. Convolutions that are computed by Winograd's algorithm stay
    so, and so do nodes named in `keep`, and sums of fewer than 16 products of a channel. A node
    whose result reaches an operator that amplifies errors without bound, before it is added to
    something of its own size, stays in float32 (`ir.amplification`). Weights take half of the
    memory where they are read to be multiplied once; on processors with AVX512_BF16 both factors
    do, and kernels add two products at a time (`place.products.bf16_storage`).

    Numeric effect: every factor errs by up to 2^-8 of its size, and counts as 0 below 2^-56; a sum
    by up to 2^-7 of the sum of its products' sizes. The sums are those of float32, one FMA per
    product in the operator's order: products of such factors are exact, and no subnormal number can
    occur, so that instructions which would flush them give the same bits.
    """
    rewriter = Rewriter(graph, limit)
    rounded: dict[str, str] = {}
    selected = {
        node.outputs[0]: ()
        for node in graph.nodes
        if node.name not in keep and node.outputs[0] not in keep and is_taken(graph, node)
    }
    amplified = amplifiers(graph, selected)
    for node in graph.nodes:
        if rewriter.spent or node.outputs[0] not in selected:
            rewriter.keep(node)
            continue
        if node.outputs[0] in amplified:
            reached = amplified[node.outputs[0]].place
            rewriter.refuse(node, f"choose_bfloat16: {reached} would amplify errors")
            continue
        x, w, *start_inputs = node.inputs
        assert x is not None and w is not None
        if x not in rounded:
            rounded[x] = rewriter.add(Bfloat16Factor(), [rewriter.map(x)])
        weights = rewriter.constant(factors(graph.constants[w]))
        start = [
            None if v is None else rewriter.constant(starts(graph.constants[v]))
            for v in start_inputs
        ]
        inputs = [rounded[x], weights, *start]
        output = rewriter.add(node.op, inputs, node.name, rewriter.names(node))
        rewriter.replace(node, output, "choose_bfloat16")
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    values = ", ".join(str((7 * i % 23 - 11) / 8.03) for i in range(48))
    return parse_graph(
        f"""
        graph "choose_bfloat16"
        input %x: float32[2, 16]
        const %w: float32[16, 3] = [{values}]
        %y: float32[2, 3] = MatMul()(%x, %w)
        output %y
        """
    )


def factors(weights: np.ndarray) -> np.ndarray:
    """float32 `weights` [any shape] rounded to bfloat16 as `Bfloat16Factor` rounds them."""
    narrowed = round_to(weights, BFLOAT16)
    return np.where(np.abs(narrowed) < SMALLEST_FACTOR, 0.0, narrowed).astype(np.float32)


def starts(bias: np.ndarray) -> np.ndarray:
    """What sums start from, without what could make one of them subnormal."""
    return np.where(np.abs(bias) < SMALLEST_START, np.float32(0), bias)


def is_taken(graph: Graph, node: Node) -> bool:
    """Whether the factors of this node are rounded."""
    if not isinstance(node.op, Conv | MatMul | Gemm) or node.inputs[0] in graph.constants:
        return False
    if any(v is not None and v not in graph.constants for v in node.inputs[1:]):
        return False
    types = [t for t in graph.input_types(node) if t is not None]
    if any(t.dtype is not DType.float32 for t in types):
        return False
    if isinstance(node.op, Gemm) and len(types) > 2 and (node.op.alpha, node.op.beta) != (1, 1):
        return False
    w = types[1].shape
    if isinstance(node.op, Conv):
        return w[1] >= FEWEST_TERMS
    if isinstance(node.op, Gemm):
        return w[1 if node.op.trans_b else 0] >= FEWEST_TERMS
    return w[-2 if len(w) > 1 else 0] >= FEWEST_TERMS
