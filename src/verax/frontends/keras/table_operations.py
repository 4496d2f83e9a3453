"""Operations of `keras.ops` in functional models: arithmetic, comparisons, curves, reductions.

They follow NumPy: operands are broadcast, whole numbers beside floating ones become float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.rows import clipped, finish, operation
from verax.ir.types import DType

RANKED = (DType.bool_, DType.int32, DType.int64, DType.float32)
"""Element types that may meet, the later one winning."""


def operands(c: Conversion, count: int) -> list[str]:
    """The tensors that an operation is called on."""
    if len(c.inputs) != count:
        c.refuse(f"called on {len(c.inputs)} tensors")
    return [c.required(i) for i in range(count)]


def promoted(c: Conversion, values: Sequence[str], least: DType = DType.bool_) -> list[str]:
    """The values in the one element type that they meet in, no lesser than `least`."""
    types = [c.type(v).dtype for v in values]
    if len(set(types)) == 1 and types[0] not in RANKED[: RANKED.index(least)]:
        return list(values)
    if not set(types) <= set(RANKED):
        c.refuse(f"element types {' and '.join(sorted(set(types)))} together")
    common = RANKED[max(RANKED.index(t) for t in (*types, least))]
    return [v if t == common else c.add("Cast", [v], to=common) for v, t in zip(values, types)]


BINARY = {
    "Add": "Add", "Subtract": "Sub", "Multiply": "Mul", "Maximum": "Max", "Minimum": "Min",
    "Matmul": "MatMul", "Equal": "Equal", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual",
    "Less": "Less", "LessEqual": "LessOrEqual",
}  # fmt: skip


@operation(*BINARY)
def binary(c: Conversion) -> Result:
    return c.result(BINARY[c.node.op_type], promoted(c, operands(c, 2)))


@operation("Divide", "TrueDivide")
def divide(c: Conversion) -> Result:
    """Whole numbers give a float32."""
    return c.result("Div", promoted(c, operands(c, 2), DType.float32))


@operation("Power")
def power(c: Conversion) -> Result:
    base, exponent = promoted(c, operands(c, 2))
    known = c.builder.known.get(exponent)
    if known is not None and known.ndim == 0 and known == 2:
        return c.result("Mul", [base, base])
    return c.result("Pow", [base, exponent])


@operation("NotEqual")
def not_equal(c: Conversion) -> Result:
    return c.result("Not", [c.add("Equal", promoted(c, operands(c, 2)))])


LOGIC = {"LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor"}


@operation(*LOGIC)
def logic(c: Conversion) -> Result:
    given = [_truth(c, v) for v in operands(c, 2)]
    return c.result(LOGIC[c.node.op_type], given)


@operation("LogicalNot")
def logical_not(c: Conversion) -> Result:
    return c.result("Not", [_truth(c, operands(c, 1)[0])])


def _truth(c: Conversion, value: str) -> str:
    if c.type(value).dtype is DType.bool_:
        return value
    return c.add("Cast", [value], to=DType.bool_)


@operation("Where")
def where(c: Conversion) -> Result:
    condition, *values = operands(c, 3)
    return c.result("Where", [_truth(c, condition), *promoted(c, values)])


UNARY = {
    "Absolute": "Abs", "Abs": "Abs", "Negative": "Neg", "Ceil": "Ceil", "Floor": "Floor",
    "Sign": "Sign", "Relu": "Relu", "Isnan": "IsNaN", "Isinf": "IsInf",
}  # fmt: skip
"""Of any element type."""
FLOATING = {
    "Exp": "Exp", "Log": "Log", "Sqrt": "Sqrt", "Sin": "Sin", "Cos": "Cos", "Tan": "Tan",
    "Arcsin": "Asin", "Arccos": "Acos", "Arctan": "Atan", "Sinh": "Sinh", "Cosh": "Cosh",
    "Tanh": "Tanh", "Arcsinh": "Asinh", "Arccosh": "Acosh", "Arctanh": "Atanh",
    "Reciprocal": "Reciprocal", "Erf": "Erf", "Sigmoid": "Sigmoid", "Softplus": "Softplus",
    "Softsign": "Softsign", "HardSilu": "HardSwish", "Selu": "Selu",
}  # fmt: skip
"""Whole numbers become float32 first."""


@operation(*UNARY)
def unary(c: Conversion) -> Result:
    return c.result(UNARY[c.node.op_type], operands(c, 1))


def floating(c: Conversion) -> str:
    """The one operand, as a float32."""
    return promoted(c, operands(c, 1), DType.float32)[0]


@operation(*FLOATING)
def floating_unary(c: Conversion) -> Result:
    return c.result(FLOATING[c.node.op_type], [floating(c)])


@operation("StopGradient", "Copy")
def same(c: Conversion) -> Result:
    return finish(c, operands(c, 1)[0])


@operation("Square")
def square(c: Conversion) -> Result:
    (x,) = operands(c, 1)
    return c.result("Mul", [x, x])


@operation("Rsqrt")
def rsqrt(c: Conversion) -> Result:
    return c.result("Reciprocal", [c.add("Sqrt", [floating(c)])])


@operation("Round")
def rounded(c: Conversion) -> Result:
    """Halves to the even neighbour."""
    c.attributes.expect("decimals", 0)
    return c.result("Round", operands(c, 1))


@operation("Relu6")
def relu6(c: Conversion) -> Result:
    return finish(c, clipped(c, floating(c), 0.0, 6.0))


@operation("HardTanh")
def hard_tanh(c: Conversion) -> Result:
    return finish(c, clipped(c, floating(c), -1.0, 1.0))


@operation("Clip")
def clip(c: Conversion) -> Result:
    a = c.attributes
    low, high = a.number("x_min"), a.number("x_max")
    return finish(c, clipped(c, floating(c), low, high))


@operation("HardSigmoid")
def hard_sigmoid(c: Conversion) -> Result:
    return c.result("HardSigmoid", [floating(c)], alpha=1 / 6, beta=0.5)


@operation("Silu")
def silu(c: Conversion) -> Result:
    return c.result("Swish", [floating(c)], alpha=1.0)


@operation("Elu")
def elu(c: Conversion) -> Result:
    return c.result("Elu", [floating(c)], alpha=c.number("alpha", 1.0))


@operation("Celu")
def celu(c: Conversion) -> Result:
    return c.result("Celu", [floating(c)], alpha=c.number("alpha", 1.0))


@operation("LeakyRelu")
def leaky_relu(c: Conversion) -> Result:
    slope = c.number("negative_slope", 0.2)
    return c.result("LeakyRelu", [floating(c)], alpha=slope)


@operation("Gelu")
def gelu(c: Conversion) -> Result:
    kind = "tanh" if c.flag("approximate", True) else "none"
    return c.result("Gelu", [floating(c)], approximate=kind)


@operation("LogSigmoid")
def log_sigmoid(c: Conversion) -> Result:
    return c.result("Neg", [c.add("Softplus", [c.add("Neg", [floating(c)])])])


@operation("TanhShrink")
def tanh_shrink(c: Conversion) -> Result:
    x = floating(c)
    return c.result("Sub", [x, c.add("Tanh", [x])])


@operation("Softmax", "LogSoftmax")
def softmax(c: Conversion) -> Result:
    if not c.attributes.has("axis"):
        c.refuse("over all axes")
    return c.result(c.node.op_type, [floating(c)], axis=c.integer("axis"))


@operation("Normalize")
def normalize(c: Conversion) -> Result:
    """x / max(norm, epsilon), the norm of order 1 or 2."""
    a = c.attributes
    x, axis = floating(c), a.get("axis", -1)
    a.expect("order", 1, 2)
    kind = "ReduceL1" if a.values.get("order", 2) == 1 else "ReduceL2"
    return finish(c, normalized(c, x, axis, a.number("epsilon", 1e-12), kind))


def normalized(c: Conversion, x: str, axis: Any, epsilon: float, kind: str = "ReduceL2") -> str:
    """x over its norm along an axis or several, which counts for at least epsilon."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    norm = c.add(kind, [x, c.ints(axes)], keepdims=True)
    return c.add("Div", [x, c.add("Max", [norm, c.constant(epsilon, np.float32)])])


# Reductions

REDUCTIONS = {
    "Sum": "ReduceSum", "Max": "ReduceMax", "Amax": "ReduceMax", "Min": "ReduceMin",
    "Amin": "ReduceMin", "Prod": "ReduceProd",
}  # fmt: skip


def reduced_axes(c: Conversion) -> tuple[str, bool]:
    """The axes, all of them when none are given, as a constant; and whether they are kept."""
    axis = c.attributes.get("axis")
    axes = tuple(range(c.rank())) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return c.ints(axes), c.flag("keepdims")


@operation(*REDUCTIONS)
def reduction(c: Conversion) -> Result:
    axes, keep = reduced_axes(c)
    kind = REDUCTIONS[c.node.op_type]
    return c.result(kind, [*operands(c, 1), axes], keepdims=keep)


@operation("Mean", "Logsumexp")
def floating_reduction(c: Conversion) -> Result:
    axes, keep = reduced_axes(c)
    kind = "ReduceMean" if c.node.op_type == "Mean" else "ReduceLogSumExp"
    return c.result(kind, [floating(c), axes], keepdims=keep)


@operation("Var", "Std")
def variance(c: Conversion) -> Result:
    """The mean square of what is left of the mean; Std is its root."""
    axes, keep = reduced_axes(c)
    x = floating(c)
    left = c.add("Sub", [x, c.add("ReduceMean", [x, axes], keepdims=True)])
    y = c.add("ReduceMean", [c.add("Mul", [left, left]), axes], keepdims=keep)
    return finish(c, c.add("Sqrt", [y]) if c.node.op_type == "Std" else y)


@operation("Argmax", "Argmin")
def arg(c: Conversion) -> Result:
    """The first of equals, as an int32."""
    axis = c.integer("axis")
    if axis is None:
        c.refuse("over all axes")
    kind = {"Argmax": "ArgMax", "Argmin": "ArgMin"}[c.node.op_type]
    keep = c.flag("keepdims")
    y = c.add(kind, operands(c, 1), axis=axis, keepdims=keep)
    return c.result("Cast", [y], to=DType.int32)


@operation("Cumsum")
def cumulative_sum(c: Conversion) -> Result:
    axis = c.integer("axis")
    if axis is None:
        c.refuse("over all axes")
    return c.result("CumSum", [*operands(c, 1), c.constant(axis, np.int64)])


@operation("Cast")
def cast(c: Conversion) -> Result:
    wanted = c.text("dtype")
    if wanted not in RANKED:
        c.attributes.refuse("dtype", "only bool, int32, int64 and float32 are supported")
    return c.result("Cast", operands(c, 1), to=DType(wanted))


@operation("Einsum")
def einsum(c: Conversion) -> Result:
    values = promoted(c, [c.required(i) for i in range(len(c.inputs))])
    return c.result("Einsum", values, equation=c.text("subscripts", ""))
