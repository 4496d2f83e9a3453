"""Products of factors that are both quantized in blocks are computed on the integers."""

from __future__ import annotations

import numpy as np

from verax.compiler.passes.quantized import BYTES, with_products
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.movement.reshaping import Reshape
from verax.ops.movement.slicing import Slice
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.block_scaled import BlockScaledMatMul
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.ops.quantized.quantization import DequantizeLinear
from verax.ops.sums.linear import MatMul
from verax.records.trace import Trace

VECTOR = 16
"""A block has a multiple of so many elements."""


def block_products(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Sum the integers of a block exactly, where both factors have a scale for each block.

    Given:  %q, %s = DynamicQuantizeGroups(axis=2, symmetric=True)(%x);
            %a = Reshape()(Mul()(Cast()(%q), %s), [0, -1]);
            %w = DequantizeLinear(axis=0, block_size=16)(%p, %t); %y = MatMul()(%a, %w)
    Result: %q, %s = DynamicQuantizeGroups(axis=2, symmetric=True)(%x);
            %c = Cast(to='int8')(%q); %y = BlockScaledMatMul()(%c, %s, %p, %t)

    The weights are constants; their blocks are those of the data, of a multiple of 16 elements.

    Numeric effect: sums of integers are exact, so instead of a rounding per factor and per product
    there are four for each block: of its sum, of the product of both scales, of their product and
    of the addition.
    """
    return with_products(graph, limit, _product, "block_products")


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "block_products"
        input %x: float32[3, 1, 16]
        const %p: uint8[16, 1] = [1, 15, 3, 0, 7, 2, 9, 4, 5, 8, 12, 6, 10, 11, 13, 14]
        const %t: float32[1, 1] = [0.02]
        const %z: uint8[1, 1] = [7]
        const %rows: int64[2] = [0, -1]
      %q: int16[3, 1, 16], %s: float32[3, 1, 1] = DynamicQuantizeGroups(axis=2, symmetric=True)(%x)
        %f: float32[3, 1, 16] = Cast(to='float32')(%q)
        %m: float32[3, 1, 16] = Mul()(%f, %s)
        %a: float32[3, 16] = Reshape()(%m, %rows)
        %w: float32[16, 1] = DequantizeLinear(axis=0, block_size=16)(%p, %t, %z)
        %y: float32[3, 1] = MatMul()(%a, %w)
        output %y
        """
    )


def _product(rewriter: Rewriter, node: Node) -> str | None:
    graph = rewriter.old
    if not isinstance(node.op, MatMul):
        return None
    data, weights = node.inputs[0] or "", graph.producers.get(node.inputs[1] or "")
    if weights is None or not isinstance(weights.op, DequantizeLinear):
        return None
    codes, scale, zero = (*graph.constant_inputs(weights), None)[:3]
    if codes is None or scale is None or (zero is None and len(weights.inputs) > 2):
        return None
    if codes.ndim != 2 or DType.of(codes) not in BYTES or scale.dtype != np.float32:
        return None
    size = weights.op.block_size
    if weights.op.axis not in (0, -2) or not size or size % VECTOR or scale.ndim != 2:
        return None
    quantized = _quantized(graph, data, size, codes.shape[0])
    if quantized is None:
        return None
    q = rewriter.add(Cast(to=DType.int8), [rewriter.map(quantized.outputs[0])])
    inputs = [q, rewriter.map(quantized.outputs[1]), *(rewriter.map(v) for v in weights.inputs)]
    return rewriter.add(BlockScaledMatMul(), inputs, node.name, rewriter.names(node))


def _quantized(graph: Graph, value: str, size: int, k: int) -> Node | None:
    """The quantization of data [..., k] in blocks of `size`, where `value` is its dequantized
    result."""
    node = graph.producers.get(value)
    if node is not None and isinstance(node.op, Slice):
        if not _cuts_the_end(graph, node, k):
            return None
        node = graph.producers.get(node.inputs[0] or "")
    if node is None or not isinstance(node.op, Reshape):
        return None
    product = graph.producers.get(node.inputs[0] or "")
    if product is None or not isinstance(product.op, Mul):
        return None
    cast, scale = product.inputs
    numbers = graph.producers.get(cast or "")
    if numbers is None or not isinstance(numbers.op, Cast):
        return None
    quantized = graph.producers.get(numbers.inputs[0] or "")
    if quantized is None or not isinstance(quantized.op, DynamicQuantizeGroups):
        return None
    if tuple(quantized.outputs) != (numbers.inputs[0], scale):
        return None
    dims, rows = graph.types[quantized.outputs[0]].dims, graph.types[node.outputs[0]].dims
    op = quantized.op
    if not op.symmetric or op.axis != len(dims) - 1 or dims[-1] != size or len(dims) < 2:
        return None
    flat = (*dims[:-2], dims[-2] * size)
    return quantized if tuple(rows) == flat and dims[-2] == -(-k // size) else None


def _cuts_the_end(graph: Graph, node: Node, k: int) -> bool:
    """True if the node takes the first k of the last axis and all of the others."""
    start, end, *further = graph.constant_inputs(node)[1:]
    before, after = (graph.types[v or ""].dims for v in (node.inputs[0], node.outputs[0]))
    if start is None or end is None or start.size != 1 or before[:-1] != after[:-1]:
        return False
    return int(start.flat[0]) == 0 and after[-1] == k and len(further) < 2
