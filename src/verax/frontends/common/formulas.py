"""Formulas that several formats have as operators of their own and Verax has not.

Each takes a node and values of the graph, appends what it needs, and gives the last step for a row
to return (or for `Conversion.append`). The steps and their order are the ones that the formats'
stored answers were held against; a format that computes otherwise says so in its own table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from verax.frontends.common.context import Applied, Conversion
from verax.ir.types import DType

# Arithmetic and comparisons


def square(c: Conversion, x: str) -> Applied:
    return c.apply("Mul", [x, x])


def squared_difference(c: Conversion, x: str, y: str) -> Applied:
    return square(c, c.add("Sub", [x, y]))


def not_equal(c: Conversion, x: str, y: str) -> Applied:
    return c.apply("Not", [c.add("Equal", [x, y])])


def rsqrt(c: Conversion, x: str, epsilon: float = 0.0) -> Applied:
    """1 / sqrt(x + epsilon), rounded three times. TensorFlow's own is the operator Rsqrt."""
    return c.apply("Reciprocal", [c.add("Sqrt", [shifted(c, x, epsilon)])])


def reciprocal(c: Conversion, x: str, epsilon: float = 0.0) -> Applied:
    """1 / (x + epsilon)."""
    return c.apply("Reciprocal", [shifted(c, x, epsilon)])


def shifted(c: Conversion, x: str, shift: float) -> str:
    """x + shift; x itself where the element type rounds the shift to 0."""
    rounded_shift = np.asarray(shift, c.type(x).dtype.numpy)
    return c.add("Add", [x, c.constant(rounded_shift)]) if rounded_shift else x


def exp2(c: Conversion, x: str) -> Applied:
    return c.apply("Pow", [c.like(2, x), x])


def logarithm(c: Conversion, x: str, base: int) -> Applied:
    return c.apply("Div", [c.add("Log", [x]), c.like(math.log(base), x)])


def erfc(c: Conversion, x: str) -> Applied:
    return c.apply("Sub", [c.like(1, x), c.add("Erf", [x])])


def is_finite(c: Conversion, x: str) -> Applied:
    return c.apply("Not", [c.add("Or", [c.add("IsNaN", [x]), c.add("IsInf", [x])])])


def truncated(c: Conversion, x: str) -> Applied:
    """Floats rounded towards zero."""
    return c.apply("Mul", [c.add("Sign", [x]), c.add("Floor", [c.add("Abs", [x])])])


def log_add_exp(c: Conversion, x: str, y: str) -> Applied:
    """max + log(1 + exp(min - max)); infinities that are equal differ by nothing."""
    apart = c.add("Neg", [c.add("Abs", [c.add("Sub", [x, y])])])
    apart = c.add("Where", [c.add("Equal", [x, y]), c.like(0, x), apart])
    return c.apply("Add", [c.add("Max", [x, y]), c.add("Softplus", [apart])])


def filled_like(c: Conversion, x: str, value: float) -> Applied:
    """A number in the shape and element type of x."""
    return c.apply("Expand", [c.like(value, x), c.add("Shape", [x])])


# Activations


def clipped(c: Conversion, x: str, low: float | None, high: float | None) -> Applied:
    """x clipped to low .. high; None: open."""
    return c.apply("Clip", [x, *(None if v is None else c.like(v, x) for v in (low, high))])


def relu6(c: Conversion, x: str) -> Applied:
    return clipped(c, x, 0, 6)


def hard_tanh(c: Conversion, x: str) -> Applied:
    return clipped(c, x, -1, 1)


def linear(c: Conversion, x: str, alpha: str, beta: str) -> Applied:
    """alpha x + beta."""
    return c.apply("Add", [c.add("Mul", [x, alpha]), beta])


def scaled_tanh(c: Conversion, x: str, alpha: str, beta: str) -> Applied:
    """alpha tanh(beta x)."""
    return c.apply("Mul", [c.add("Tanh", [c.add("Mul", [x, beta])]), alpha])


def scaled_softplus(c: Conversion, x: str, alpha: str, beta: str) -> Applied:
    """alpha log(1 + exp(beta x))."""
    return c.apply("Mul", [c.add("Softplus", [c.add("Mul", [x, beta])]), alpha])


def thresholded(c: Conversion, x: str, alpha: str) -> Applied:
    """x where it is at least alpha, else 0. ThresholdedRelu drops x = alpha as well."""
    return c.apply("Where", [c.add("GreaterOrEqual", [x, alpha]), x, c.like(0, x)])


def clamped_leaky_relu(c: Conversion, x: str, alpha: float, beta: str) -> Applied:
    """min(beta, x) for x >= 0, min(beta, alpha x) below."""
    return c.apply("Min", [c.add("LeakyRelu", [x], alpha=alpha), beta])


def log_sigmoid(c: Conversion, x: str) -> Applied:
    return c.apply("Neg", [c.add("Softplus", [c.add("Neg", [x])])])


def tanh_shrink(c: Conversion, x: str) -> Applied:
    return c.apply("Sub", [x, c.add("Tanh", [x])])


def squareplus(c: Conversion, x: str) -> Applied:
    """(x + sqrt(x^2 + 4)) / 2."""
    root = c.add("Sqrt", [c.add("Add", [c.append(square(c, x)), c.like(4, x)])])
    return c.apply("Div", [c.add("Add", [x, root]), c.like(2, x)])


# Sums over axes


def any_or_all(c: Conversion, x: str, kind: str, axes: str | None, **fields: bool) -> Applied:
    """Bool reduction over `axes`: any with kind "ReduceMax", all with "ReduceMin"."""
    integers = c.add("Cast", [x], to=DType.int32)
    return c.apply("Cast", [c.add(kind, [integers, axes], **fields)], to=DType.bool_)


def variance(c: Conversion, x: str, axes: str) -> tuple[str, str]:
    """x less its mean over axes, and the mean square of that; the axes stay."""
    centered = c.add("Sub", [x, c.add("ReduceMean", [x, axes])])
    return centered, c.add("ReduceMean", [c.append(square(c, centered)), axes])


def standardised(c: Conversion, x: str, axes: Sequence[int], epsilon: float) -> Applied:
    """(x - mean) / sqrt(variance + epsilon) over axes."""
    centered, spread = variance(c, x, c.ints(axes))
    return c.apply("Div", [centered, root_of(c, spread, epsilon)])


def over_length(c: Conversion, x: str, axes: Sequence[int], epsilon: float) -> Applied:
    """x / sqrt(sum of squares + epsilon) over axes."""
    return c.apply("Div", [x, root_of(c, c.add("ReduceSumSquare", [x, c.ints(axes)]), epsilon)])


def over_norm(
    c: Conversion, x: str, axes: Sequence[int], min_norm: float, kind: str = "ReduceL2"
) -> Applied:
    """x / max(norm of x along `axes`, min_norm)."""
    norm = c.add(kind, [x, c.ints(axes)], keepdims=True)
    return c.apply("Div", [x, c.add("Max", [norm, c.like(min_norm, x)])])


def root_of(c: Conversion, x: str, epsilon: float) -> str:
    """sqrt(x + epsilon)."""
    return c.add("Sqrt", [c.add("Add", [x, c.like(epsilon, x)])])


# Products


def transposed_matrix(c: Conversion, x: str) -> str:
    """The last two axes exchanged: as data where x is a constant matrix, else by a node."""
    array, rank = c.builder.constants.get(x), c.rank(x)
    if array is not None and rank == 2:
        return c.constant(np.ascontiguousarray(array.T))
    return c.add("Transpose", [x], perm=(*range(rank - 2), rank - 1, rank - 2))


def matrix_product(c: Conversion, x: str, y: str, flip_x: bool, flip_y: bool) -> Applied:
    """x y, each with its last two axes exchanged if so said."""
    rank = {v: c.rank(v) for v in (x, y)}
    sides = [
        c.add("Transpose", [v], perm=(*range(rank[v] - 2), rank[v] - 1, rank[v] - 2)) if flip else v
        for v, flip in ((x, flip_x), (y, flip_y))
    ]
    return c.apply("MatMul", sides)


def dense(c: Conversion, x: str, weight: str, bias: str | None) -> Applied:
    """x [..., in] times the transpose of weight [out, in], plus bias [out]."""
    if c.rank(x) == 2:
        return c.apply("Gemm", [x, weight, bias], trans_b=True)
    product = [x, transposed_matrix(c, weight)]
    if bias is None:
        return c.apply("MatMul", product)
    return c.apply("Add", [c.add("MatMul", product), bias])
