"""Products of dequantized bytes are computed on the bytes."""

from __future__ import annotations

import numpy as np

from verax.compiler.passes.quantized import DequantizedFactor, factor_of, with_products
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.pointwise.arithmetic import Add, Mul, Sub
from verax.ops.pointwise.cast import Cast
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.integer_convolution import ConvInteger
from verax.records.trace import Trace

LARGEST = 2**31 - 1
"""Of a sum in 32 bits."""
TINY = float(np.finfo(np.float32).tiny)


def integer_products(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Sum the products of integers and multiply by the scales once, where both factors are bytes.

    Given:  %x = DequantizeLinear()(%q, %sx, %zx); %w = DequantizeLinear(axis=0)(%p, %sw);
            %y = Conv()(%x, %w, %b)
    Result: %s = ConvInteger()(%q, %p, %zx); %f = Cast(to='float32')(%s);
            %m = Mul()(%f, %sx %sw); %y = Add()(%m, %b)

    Likewise Gemm and MatMul with a matrix of weights on the right. The weights are constants with
    one scale, or one per output; the data has one scale. Sums that could leave 32 bits stay floats.

    Numeric effect: sums of integers are exact, so instead of one rounding per factor and per
    product there are four in all: of the sum, of the scales' product, of its product with the sum,
    and of the bias added. That is nearer to the meaning, and not the bits of float32 products.
    """
    return with_products(graph, limit, _product, "integer_products")


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "integer_products"
        input %q: uint8[2, 2, 3, 4]
        const %sx: float32[] = [0.02]
        const %zx: uint8[] = [113]
        const %p: int8[3, 2, 1, 2] = [1, -5, 3, 20, 7, 15, -128, 5, -2, 9, 127, 11]
        const %sw: float32[3] = [0.01, 0.005, 0.03]
        const %b: float32[3] = [0.5, -1.0, 0.25]
        %x: float32[2, 2, 3, 4] = DequantizeLinear()(%q, %sx, %zx)
        %w: float32[3, 2, 1, 2] = DequantizeLinear(axis=0)(%p, %sw)
        %y: float32[2, 3, 3, 3] = Conv()(%x, %w, %b)
        output %y
        """
    )


def _product(rewriter: Rewriter, node: Node) -> str | None:
    graph, op = rewriter.old, node.op
    if not isinstance(op, Conv | Gemm | MatMul):
        return None
    x, w = (factor_of(graph, v) for v in node.inputs[:2])
    if x is None or w is None or not x.is_single or x.q in graph.constants:
        return None
    weights = graph.constants.get(w.q)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    start = None if bias is None else _constant(graph, bias)
    if weights is None or (bias is not None and start is None):
        return None
    axis = 0
    if not isinstance(op, Conv):
        if not _is_plain(op) or weights.ndim != 2 or graph.types[x.q].rank < 2:
            return None
        axis = 0 if isinstance(op, Gemm) and op.trans_b else 1
    elif start is not None:
        start = start.reshape(-1, *(1,) * (weights.ndim - 2))
    if not w.is_single and w.axis != axis:
        return None
    shape = [-1 if a == axis else 1 for a in range(weights.ndim)]
    centered = weights.astype(np.int64) - w.zero.reshape(shape if w.zero.size > 1 else ())
    summed_axes = tuple(a for a in range(weights.ndim) if a != axis)
    scale = _scale(x, w, weights.ndim - 2 if isinstance(op, Conv) else 0)
    if (
        scale is None
        or np.abs(centered).sum(axis=summed_axes).max(initial=0) * _max_magnitude(graph, x)
        > LARGEST
    ):
        return None
    if isinstance(op, Conv):
        sums = _convolution(rewriter, node, x, w)
    else:
        matrix = centered.T if axis == 0 else centered
        sums = _matrix_product(rewriter, node, x, np.ascontiguousarray(matrix, np.int32))
    output = rewriter.add(Cast(to=DType.float32), [sums])
    last: list[tuple[Operator, np.ndarray]] = [(Mul(), scale)]
    if start is not None:
        last.append((Add(), start.astype(np.float32)))
    for i, (step, array) in enumerate(last):
        ends = i == len(last) - 1
        inputs = [output, rewriter.constant(array)]
        output = rewriter.add(
            step, inputs, node.name if ends else "", rewriter.names(node) if ends else ()
        )
    return output


def _is_plain(op: Operator) -> bool:
    """Whether it is y = a b + c."""
    return isinstance(op, MatMul) or (
        isinstance(op, Gemm) and op.alpha == op.beta == 1 and not op.trans_a
    )


def _constant(graph: Graph, value: str) -> np.ndarray | None:
    """A float32 constant, dequantized where the graph dequantizes it; None for any other value."""
    if value in graph.constants:
        return graph.constants[value]
    node = graph.producers.get(value)
    constants = [] if node is None else graph.constant_inputs(node)
    if (
        node is None
        or node.op.kind != "DequantizeLinear"
        or constants[0] is None
        or constants[1] is None
    ):
        return None
    single = all(k is None or k.size == constants[0].size or k.size == 1 for k in constants)
    if constants[0].ndim != 1 or not single or constants[1].dtype != np.float32:
        return None
    zero = 0 if len(constants) < 3 or constants[2] is None else constants[2].astype(np.int64)
    if len(node.inputs) > 2 and node.inputs[2] is not None and constants[2] is None:
        return None
    differences = constants[0].astype(np.int64) - zero
    product = differences.astype(np.float64) * constants[1].astype(np.float64)
    return np.asarray(product.astype(np.float32))


def _scale(x: DequantizedFactor, w: DequantizedFactor, axes: int) -> np.ndarray | None:
    """Product of the scales, shaped as channels with `axes` behind them; None out of range."""
    product = x.scale.reshape(()).astype(np.float64) * w.scale.astype(np.float64).reshape(-1)
    if not (product.min(initial=1) >= TINY and product.max(initial=1) < 2.0**100):
        return None
    rounded = product.astype(np.float32)
    return rounded.reshape(()) if rounded.size == 1 else rounded.reshape(-1, *(1,) * axes)


def _max_magnitude(graph: Graph, x: DequantizedFactor) -> int:
    """The largest |q - zero| that the element type of the data allows."""
    info, zero = np.iinfo(graph.types[x.q].dtype.numpy), int(x.zero.reshape(()))
    return max(int(info.max) - zero, zero - int(info.min))


def _convolution(rewriter: Rewriter, node: Node, x: DequantizedFactor, w: DequantizedFactor) -> str:
    assert isinstance(node.op, Conv)
    op = ConvInteger(
        kernel_shape=node.op.kernel_shape,
        strides=node.op.strides,
        pads=node.op.pads,
        dilations=node.op.dilations,
        groups=node.op.groups,
    )
    zeros = []
    for factor in (x, w):
        dtype = rewriter.old.types[factor.q].dtype.numpy
        zero = factor.zero.astype(dtype)
        zero = zero.reshape(()) if zero.size == 1 else zero
        zeros.append(rewriter.constant(zero) if factor.zero.any() else None)
    while zeros and zeros[-1] is None:
        zeros.pop()
    return rewriter.add(op, [rewriter.map(x.q), rewriter.map(w.q), *zeros])


def _matrix_product(
    rewriter: Rewriter, node: Node, x: DequantizedFactor, matrix: np.ndarray
) -> str:
    rows = rewriter.add(Cast(to=DType.int32), [rewriter.map(x.q)])
    if x.zero.any():
        zero = rewriter.constant(x.zero.astype(np.int32).reshape(()))
        rows = rewriter.add(Sub(), [rows, zero])
    return rewriter.add(MatMul(), [rows, rewriter.constant(matrix)])
