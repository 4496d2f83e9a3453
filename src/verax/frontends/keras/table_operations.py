"""Operations of `keras.ops` in functional models: arithmetic, comparisons, curves, reductions.

They follow NumPy: operands are broadcast, whole numbers beside floating ones become float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.context import Applied, Conversion, Result
from verax.frontends.common.table import Reader, fields_of, scalar
from verax.frontends.keras.rows import OPERATIONS, operation
from verax.ir.types import DType

RANKED = (DType.bool_, DType.int32, DType.int64, DType.float32)
"""Element types that may meet, the later one winning."""


def operands(c: Conversion, count: int) -> list[str]:
    """The tensors that an operation is called on."""
    if len(c.inputs) != count:
        c.refuse(f"called on {len(c.inputs)} tensors")
    return [c.required(i) for i in range(count)]


def operand(c: Conversion) -> str:
    return operands(c, 1)[0]


def promoted(c: Conversion, values: Sequence[str], min_type: DType = DType.bool_) -> list[str]:
    """The values cast to their common element type, which is at least `min_type`."""
    types = [c.type(v).dtype for v in values]
    if len(set(types)) == 1 and types[0] not in RANKED[: RANKED.index(min_type)]:
        return list(values)
    if not set(types) <= set(RANKED):
        c.refuse(f"element types {' and '.join(sorted(set(types)))} together")
    common = RANKED[max(RANKED.index(t) for t in (*types, min_type))]
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
    exponent_value = c.builder.known.get(exponent)
    if exponent_value is not None and exponent_value.ndim == 0 and exponent_value == 2:
        return c.result("Mul", [base, base])
    return c.result("Pow", [base, exponent])


@operation("NotEqual")
def not_equal(c: Conversion) -> Result:
    return formulas.not_equal(c, *promoted(c, operands(c, 2)))


LOGIC = {"LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor"}


@operation(*LOGIC)
def logic(c: Conversion) -> Result:
    truths = [c.cast(v, DType.bool_) for v in operands(c, 2)]
    return c.result(LOGIC[c.node.op_type], truths)


@operation("LogicalNot")
def logical_not(c: Conversion) -> Result:
    return c.result("Not", [c.cast(operand(c), DType.bool_)])


@operation("Where")
def select(c: Conversion) -> Result:
    condition, *values = operands(c, 3)
    return c.result("Where", [c.cast(condition, DType.bool_), *promoted(c, values)])


UNARY = {
    "Absolute": "Abs", "Abs": "Abs", "Negative": "Neg", "Ceil": "Ceil", "Floor": "Floor",
    "Sign": "Sign", "Relu": "Relu", "Isnan": "IsNaN", "Isinf": "IsInf",
}  # fmt: skip
"""Of any element type."""
OPERATIONS.operators(UNARY)
FLOATING = {
    "Exp": "Exp", "Log": "Log", "Sqrt": "Sqrt", "Sin": "Sin", "Cos": "Cos", "Tan": "Tan",
    "Arcsin": "Asin", "Arccos": "Acos", "Arctan": "Atan", "Sinh": "Sinh", "Cosh": "Cosh",
    "Tanh": "Tanh", "Arcsinh": "Asinh", "Arccosh": "Acosh", "Arctanh": "Atanh",
    "Reciprocal": "Reciprocal", "Erf": "Erf", "Sigmoid": "Sigmoid", "Softplus": "Softplus",
    "Softsign": "Softsign", "HardSilu": "HardSwish", "Selu": "Selu",
}  # fmt: skip
"""Whole numbers become float32 first."""


def floating(c: Conversion) -> str:
    """The one operand, as a float32."""
    return promoted(c, operands(c, 1), DType.float32)[0]


OPERATIONS.operator("Identity", "StopGradient", "Copy")


OPERATIONS.formula(formulas.square, "Square")


def _floating(formula: Callable[..., Applied], name: str, **numbers: Reader) -> None:
    """A row of a formula on one operand, which becomes a float32 first."""
    operation(name)(lambda c: formula(c, floating(c), **fields_of(c, numbers)))


_floating(formulas.rsqrt, "Rsqrt")
_floating(formulas.relu6, "Relu6")
_floating(formulas.hard_tanh, "HardTanh")
_floating(formulas.log_sigmoid, "LogSigmoid")
_floating(formulas.tanh_shrink, "TanhShrink")
_floating(formulas.clipped, "Clip", low=scalar(name="x_min"), high=scalar(name="x_max"))


def _curve(kind: str, name: str, **fields: Any) -> None:
    """As `_floating`, of an operator."""
    operation(name)(lambda c: c.apply(kind, [floating(c)], **fields_of(c, fields)))


for _name, _kind in FLOATING.items():
    _curve(_kind, _name)
_curve("HardSigmoid", "HardSigmoid", alpha=1 / 6, beta=0.5)
_curve("Swish", "Silu", alpha=1.0)
_curve("Elu", "Elu", alpha=scalar(1.0))
_curve("Celu", "Celu", alpha=scalar(1.0))
_curve("LeakyRelu", "LeakyRelu", alpha=scalar(0.2, "negative_slope"))


@operation("Round")
def rounded(c: Conversion) -> Result:
    """Halves to the even neighbor."""
    c.attributes.expect("decimals", 0)
    return c.result("Round", operands(c, 1))


@operation("Gelu")
def gelu(c: Conversion) -> Result:
    kind = "tanh" if c.flag("approximate", True) else "none"
    return c.result("Gelu", [floating(c)], approximate=kind)


@operation("Softmax", "LogSoftmax")
def softmax(c: Conversion) -> Result:
    if not c.attributes.has("axis"):
        c.refuse("over all axes")
    return c.result(c.node.op_type, [floating(c)], axis=c.integer("axis"))


@operation("Normalize")
def normalize(c: Conversion) -> Result:
    """x / max(norm, epsilon), the norm of order 1 or 2."""
    a = c.attributes
    axes, epsilon = axes_of(c, "axis", -1), a.scalar("epsilon", 1e-12)
    a.expect("order", 1, 2)
    kind = "ReduceL1" if a.values.get("order", 2) == 1 else "ReduceL2"
    return formulas.over_norm(c, floating(c), axes or (), epsilon, kind)


def axes_of(c: Conversion, name: str, default: int | None = None) -> tuple[int, ...] | None:
    """An attribute that is an axis or several."""
    axes = c.attributes.get(name, default)
    return (axes,) if type(axes) is int else axes


# Reductions

REDUCTIONS = {
    "Sum": "ReduceSum", "Max": "ReduceMax", "Amax": "ReduceMax", "Min": "ReduceMin",
    "Amin": "ReduceMin", "Prod": "ReduceProd",
}  # fmt: skip


def reduced_axes(c: Conversion) -> tuple[str, bool]:
    """The axes, all of them when none are given, as a constant; and whether they are kept."""
    axes = axes_of(c, "axis")
    return c.ints(range(c.rank()) if axes is None else axes), c.flag("keepdims")


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
    y = c.apply("ReduceMean", [c.append(formulas.square(c, left)), axes], keepdims=keep)
    return y if c.node.op_type == "Var" else c.apply("Sqrt", [c.append(y)])


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
    dtype = c.choice("dtype", RANKED)
    return c.result("Cast", operands(c, 1), to=DType(dtype))


@operation("Einsum")
def einsum(c: Conversion) -> Result:
    values = promoted(c, c.operands)
    return c.result("Einsum", values, equation=c.text("subscripts", ""))
