"""ATen operators on single elements: arithmetic with type promotion, functions, activations."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from verax.frontends.common import formulas, shapes
from verax.frontends.common.context import Result
from verax.frontends.common.table import Fields, scalar, text
from verax.frontends.torch.arguments import Ref
from verax.frontends.torch.rows import NO_MEANING, TABLE, Aten, row
from verax.ir.types import DType

Number = bool | int | float


# Type promotion: bool < integers < floats; within a category tensors with axes decide, then
# zero-dimensional ones, then Python numbers.


def _category(dtype: DType) -> int:
    return 0 if dtype is DType.bool_ else 2 if dtype.is_float else 1


def _common_type(a: DType, b: DType) -> DType:
    """The smallest type of the same category that holds both."""
    if {a, b} == {DType.float16, DType.bfloat16}:
        return DType.float32
    if a.is_float:
        order = [DType.float16, DType.bfloat16, DType.float32, DType.float64]
        return max(a, b, key=order.index)
    return DType(str(np.promote_types(a.numpy, b.numpy)))


def _number_type(value: Number) -> DType:
    if isinstance(value, bool):
        return DType.bool_
    return DType.int64 if isinstance(value, int) else DType.float32


def promoted(t: Aten, operands: list[str | Number]) -> DType:
    """Element type in which torch computes with these tensors and numbers."""
    tiers: list[list[DType]] = [[], [], []]
    for x in operands:
        if not isinstance(x, str):
            tiers[2].append(_number_type(x))
        else:
            tiers[0 if t.rank(x) else 1].append(t.type(x).dtype)
    dtype: DType | None = None
    for tier in tiers:
        if not tier:
            continue
        top = max(map(_category, tier))
        own = functools.reduce(_common_type, [d for d in tier if _category(d) == top])
        if dtype is None or top > _category(dtype):
            dtype = own
    assert dtype is not None
    return dtype


def operand(t: Aten, name: str) -> str | Number:
    """A tensor's value, or a number."""
    value = t.a.values.get(name)
    if isinstance(value, Ref):
        return t.tensor(name)
    return t.scalar(name)


def in_type(t: Aten, x: str | Number, dtype: DType) -> str:
    """An operand as a value of element type `dtype`."""
    return t.cast(x, dtype) if isinstance(x, str) else t.constant(x, dtype.numpy)


def binary(t: Aten, kind: str, first: str = "self", second: str = "other") -> Result:
    """A node on two operands in their common type."""
    a, b = operand(t, first), operand(t, second)
    dtype = promoted(t, [a, b])
    return t.result(kind, [in_type(t, a, dtype), in_type(t, b, dtype)])


@row("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "rsub.Tensor")
def add(t: Aten) -> Result:
    """self +- alpha other; rsub is other - alpha self."""
    a, b, alpha = operand(t, "self"), operand(t, "other"), t.scalar("alpha", 1)
    dtype = promoted(t, [a, b])
    if t.kind == "rsub":
        a, b = b, a
    y = in_type(t, b, dtype)
    if alpha != 1:
        y = t.add("Mul", [y, t.constant(alpha, dtype.numpy)])
    return t.result("Add" if t.kind == "add" else "Sub", [in_type(t, a, dtype), y])


@row("mul.Tensor", "mul.Scalar")
def mul(t: Aten) -> Result:
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    kind = "And" if dtype is DType.bool_ else "Mul"
    return t.result(kind, [in_type(t, a, dtype), in_type(t, b, dtype)])


@row(
    *("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "floor_divide.default"),
    *("true_divide.Tensor", "true_divide.Scalar"),
)
def div(t: Aten) -> Result:
    """True division gives floats; a rounding mode keeps the type."""
    a, b = operand(t, "self"), operand(t, "other")
    mode = "floor" if t.kind == "floor_divide" else t.text("rounding_mode")
    dtype = promoted(t, [a, b])
    if mode is None:
        dtype = dtype if dtype.is_float else DType.float32
        return t.result("Div", [in_type(t, a, dtype), in_type(t, b, dtype)])
    x, y = in_type(t, a, dtype), in_type(t, b, dtype)
    if mode == "floor":
        return t.result("FloorDiv", [x, y])
    if mode != "trunc":
        t.a.refuse("rounding_mode", "supported: floor, trunc")
    quotient = t.apply("Div", [x, y])
    return formulas.truncated(t, t.append(quotient)) if dtype.is_float else quotient


@row("trunc.default", "frac.default")
def trunc(t: Aten) -> Result:
    x = t.tensor("self")
    if not t.type(x).dtype.is_float and t.kind == "trunc":
        return t.apply("Identity", [x])
    truncated = formulas.truncated(t, x)
    return truncated if t.kind == "trunc" else t.apply("Sub", [x, t.append(truncated)])


@row("remainder.Tensor", "remainder.Scalar", "fmod.Tensor", "fmod.Scalar")
def remainder(t: Aten) -> Result:
    """remainder has the divisor's sign, fmod the dividend's."""
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    x, y = in_type(t, a, dtype), in_type(t, b, dtype)
    return t.result("Mod", [x, y], fmod=t.kind == "fmod")


@row("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(t: Aten) -> Result:
    a, b = operand(t, "self"), operand(t, "exponent")
    dtype = promoted(t, [a, b])
    x = in_type(t, a, dtype)
    if b == 2:
        return formulas.square(t, x)
    if dtype.is_float and b == 0.5:  # a root, which is NaN of -inf, where a power is +inf
        return t.result("Sqrt", [x])
    if dtype.is_float and b == -0.5:
        return formulas.rsqrt(t, x)
    return t.apply("Pow", [x, in_type(t, b, dtype)])


COMPARISONS = {
    **{"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"},
    "ne": "Equal",
}


@row(*(f"{name}.{overload}" for name in COMPARISONS for overload in ("Tensor", "Scalar")))
def compare(t: Aten) -> Result:
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    inputs = [in_type(t, a, dtype), in_type(t, b, dtype)]
    if t.kind == "ne":
        return formulas.not_equal(t, *inputs)
    return t.result(COMPARISONS[t.kind], inputs)


@row("maximum.default", "minimum.default", "max.other", "min.other")
def extreme(t: Aten) -> Result:
    return binary(t, "Max" if t.kind.startswith("max") else "Min")


BITS = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor")}


@row(
    *(f"bitwise_{name}.{overload}" for name in BITS for overload in ("Tensor", "Scalar")),
    *(f"__{name}__.{overload}" for name in BITS for overload in ("Tensor", "Scalar")),
)
def bits(t: Aten) -> Result:
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    logical, bitwise = BITS[t.kind.removeprefix("bitwise_").strip("_")]
    kind = logical if dtype is DType.bool_ else bitwise
    return t.result(kind, [in_type(t, a, dtype), in_type(t, b, dtype)])


def truth(t: Aten, value: str) -> str:
    """Whether elements differ from 0."""
    return t.cast(value, DType.bool_)


@row("logical_and.default", "logical_or.default", "logical_xor.default")
def logic(t: Aten) -> Result:
    kind = t.kind.removeprefix("logical_").title()
    return t.result(kind, [truth(t, t.tensor("self")), truth(t, t.tensor("other"))])


SHIFTS = ("left_shift", "right_shift")


@row(*(f"bitwise_{s}.{o}" for s in SHIFTS for o in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")))
@row(*(f"__{s}shift__.{o}" for s in "lr" for o in ("Tensor", "Scalar")))
def shifted(t: Aten) -> Result:
    """Bits moved by as many places as the other integer says."""
    x, by = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [x, by])
    direction = "LEFT" if t.kind in ("bitwise_left_shift", "__lshift__") else "RIGHT"
    operands = [t.cast(in_type(t, v, dtype), dtype) for v in (x, by)]
    return t.result("BitShift", operands, direction=direction)


@row("angle.default")
def angle(t: Aten) -> Result:
    """Half a turn for negative numbers, none for others."""
    x = t.tensor("self")
    half = t.add("Where", [t.add("Less", [x, t.like(0, x)]), t.like(math.pi, x), t.like(0, x)])
    return t.result("Where", [t.add("IsNaN", [x]), x, half])


@row("logical_not.default", "bitwise_not.default")
def negation(t: Aten) -> Result:
    x = t.tensor("self")
    if t.kind == "bitwise_not" and t.type(x).dtype is not DType.bool_:
        return t.result("BitwiseNot", [x])
    return t.result("Not", [truth(t, x)])


@row("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def select(t: Aten) -> Result:
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    condition = truth(t, t.tensor("condition"))
    return t.result("Where", [condition, in_type(t, a, dtype), in_type(t, b, dtype)])


@row("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(t: Aten) -> Result:
    x, value = t.tensor("self"), operand(t, "value")
    dtype = t.type(x).dtype
    return t.result("Where", [t.tensor("mask"), in_type(t, value, dtype), x])


# Functions of one element

FUNCTIONS = {
    **{"sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan"},
    **{"asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh"},
    **{"asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "tanh": "Tanh"},
    **{"sigmoid": "Sigmoid", "reciprocal": "Reciprocal", "mish": "Mish"},
    **{
        "log1p": "Log1p",
        "erfinv": "ErfInv",
        "expm1": "Expm1",
        "selu": "Selu",
        "hardswish": "HardSwish",
        "silu": "Swish",
    },
}
"""Functions that give floats of integers too."""
SAME = {
    **{"relu": "Relu", "abs": "Abs", "neg": "Neg", "floor": "Floor", "ceil": "Ceil"},
    **{"isnan": "IsNaN", "isinf": "IsInf", "clone": "Identity"},
}


@row(*(f"{name}.default" for name in FUNCTIONS))
def function(t: Aten) -> Result:
    x = t.tensor("self")
    dtype = t.type(x).dtype
    return t.result(FUNCTIONS[t.kind], [x if dtype.is_float else t.cast(x, DType.float32)])


@row(*(f"{name}.default" for name in SAME))
def same(t: Aten) -> Result:
    t.irrelevant("memory_format", reason=NO_MEANING)
    x = t.tensor("self")
    is_integer = not t.type(x).dtype.is_float and t.kind in ("floor", "ceil")
    return t.result("Identity" if is_integer else SAME[t.kind], [x])


@row("sign.default")
def sign(t: Aten) -> Result:
    """PyTorch's is 0 of NaN, where the operator's is NaN."""
    x = t.tensor("self")
    if not t.type(x).dtype.is_float:
        return t.result("Identity" if t.type(x).dtype is DType.bool_ else "Sign", [x])
    return t.result("Where", [t.add("IsNaN", [x]), t.like(0, x), t.add("Sign", [x])])


@row("round.default")
def round_(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result("Round" if t.type(x).dtype.is_float else "Identity", [x])


TABLE.formula(formulas.rsqrt, "rsqrt.default")
TABLE.formula(formulas.exp2, "exp2.default")
TABLE.formula(formulas.logarithm, "log2.default", base=2)
TABLE.formula(formulas.logarithm, "log10.default", base=10)
TABLE.formula(formulas.square, "square.default")
TABLE.formula(formulas.log_sigmoid, "log_sigmoid.default")
TABLE.formula(formulas.relu6, "relu6.default")
TABLE.operator("HardSigmoid", "hardsigmoid.default", alpha=1 / 6, beta=0.5)
TABLE.operator("LeakyRelu", "leaky_relu.default", alpha=scalar(0.01, "negative_slope"))
TABLE.operator("Celu", "celu.default", alpha=scalar(1.0))
TABLE.operator("Gelu", "gelu.default", approximate=text("none"))


# Activations


def _clip(t: Aten, x: str, low: Any, high: Any) -> Result:
    dtype = t.type(x).dtype
    bounds: list[str | None] = [None if v is None else in_type(t, v, dtype) for v in (low, high)]
    return t.result("Clip", [x, *bounds] if bounds[1] else [x, bounds[0]])


@row("clamp.default", "clamp_min.default", "clamp_max.default")
def clamp(t: Aten) -> Result:
    x, bounds = t.tensor("self"), [t.scalar("min"), t.scalar("max")]
    dtype = promoted(t, [x, *(v for v in bounds if v is not None)])
    return _clip(t, t.cast(x, dtype), *bounds)


@row("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
def clamp_tensor(t: Aten) -> Result:
    x, low, high = t.tensor("self"), t.maybe("min"), t.maybe("max")
    dtype = promoted(t, [v for v in (x, low, high) if v is not None])
    y = t.cast(x, dtype)
    if low is not None:
        y = t.add("Max", [y, t.cast(low, dtype)])
    return t.result("Identity", [y]) if high is None else t.result("Min", [y, t.cast(high, dtype)])


LIMITS: Fields = {"low": scalar(-1.0, "min_val"), "high": scalar(1.0, "max_val")}
TABLE.formula(formulas.clipped, "hardtanh.default", **LIMITS)


@row("prelu.default", "_prelu_kernel.default")
def prelu(t: Aten) -> Result:
    """A slope per channel, which is axis 1."""
    x, slope = t.tensor("self"), t.tensor("weight")
    if t.rank(slope) == 1 and t.rank(x) > 2:
        slope = t.add("Unsqueeze", [slope, t.ints(range(1, t.rank(x) - 1))])
    return t.result("PRelu", [x, slope])


@row("elu.default")
def elu(t: Aten) -> Result:
    """scale * (x above zero, alpha * (exp(input_scale * x) - 1) below)."""
    if t.scalar("input_scale", 1) != 1:
        t.a.refuse("input_scale")
    x, scale = t.tensor("self"), t.scalar("scale", 1)
    y = t.apply("Elu", [x], alpha=float(t.scalar("alpha", 1.0)))
    return y if scale == 1 else t.apply("Mul", [t.append(y), t.like(scale, x)])


@row("glu.default")
def glu(t: Aten) -> Result:
    x = t.tensor("self")
    axis = t.axis("dim", x, -1)
    size = t.known_size(x, axis, "where its halves meet")
    if size % 2:
        t.refuse(f"the size {size} of its axis cannot be halved")
    bounds = ((0, size // 2), (size // 2, size))
    chunks = [t.append(shapes.sliced(t, x, (axis,), (a,), (b,))) for a, b in bounds]
    return t.apply("Mul", [chunks[0], t.add("Sigmoid", [chunks[1]])])


@row("softplus.default")
def softplus(t: Aten) -> Result:
    """log(1 + exp(beta x)) / beta, and x where beta x exceeds the threshold."""
    x, beta = t.tensor("self"), t.scalar("beta", 1)
    scaled = x if beta == 1 else t.add("Mul", [x, t.like(beta, x)])
    y = t.add("Softplus", [scaled])
    if beta != 1:
        y = t.add("Div", [y, t.like(beta, x)])
    above = t.add("Greater", [scaled, t.like(t.scalar("threshold", 20), x)])
    return t.apply("Where", [above, x, y])


@row("threshold.default")
def threshold(t: Aten) -> Result:
    """`value` up to the threshold; NaN passes."""
    x = t.tensor("self")
    below = t.add("LessOrEqual", [x, t.like(t.scalar("threshold"), x)])
    return t.apply("Where", [below, t.like(t.scalar("value"), x), x])
