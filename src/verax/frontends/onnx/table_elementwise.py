"""ONNX elementwise operators: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import flag, scalar, text
from verax.frontends.onnx.rows import MICROSOFT, TABLE, require_test_mode, row
from verax.frontends.onnx.tensors import dtype_of
from verax.frontends.onnx.training import ADVICE
from verax.ir.types import DType
from verax.ops.pointwise.cast import has_saturation

SAME = (
    *("Neg", "Abs", "Sign", "Sqrt", "Reciprocal", "Min", "Max", "Sum", "Mean", "Where"),
    *("Identity", "GreaterOrEqual", "LessOrEqual", "IsNaN", "Not", "BitwiseAnd", "BitwiseOr"),
    *("BitwiseXor", "BitwiseNot", "Floor", "Ceil", "Round", "Exp", "Log", "Erf", "Sin", "Cos"),
    *("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Sigmoid"),
    *("Relu", "HardSwish", "Mish", "Softplus", "Softsign"),
)
TABLE.operators({name: name for name in SAME})
TABLE.operator("Mod", fmod=flag())
TABLE.operator("IsInf", detect_negative=flag(True), detect_positive=flag(True))
TABLE.operator("LeakyRelu", alpha=scalar(0.01))
TABLE.operator("Elu", alpha=scalar(1.0))
TABLE.operator("Celu", alpha=scalar(1.0))
TABLE.operator(
    "Selu", alpha=scalar(1.67326319217681884765625), gamma=scalar(1.05070102214813232421875)
)
TABLE.operator("ThresholdedRelu", alpha=scalar(1.0))
TABLE.operator("HardSigmoid", alpha=scalar(0.2), beta=scalar(0.5))
TABLE.operator("Swish", alpha=scalar(1.0))
TABLE.operator("Swish", "QuickGelu", domain=MICROSOFT, alpha=scalar(1.702))
TABLE.operator("Shrink", lambd=scalar(0.5), bias=scalar(0.0))
TABLE.operator("BitShift", direction=text(""))
TABLE.operator("Gelu", approximate=text("none"))
TABLE.operator("Gelu", domain=MICROSOFT, approximate="none")


@row("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def binary(c: Conversion) -> Result:
    """In opset 6 only the second input broadcasts, and `axis` says from where on."""
    if c.version >= 7:
        return c.operator(c.node.op_type)
    c.attributes.irrelevant("broadcast", "the shapes say whether the second input broadcasts")
    axis = c.integer("axis")
    second = c.required(1)
    if axis is not None:
        second = _aligned(c, 1, axis % max(1, c.rank(0)))
    return c.result(c.node.op_type, [c.required(0), second])


def _aligned(c: Conversion, index: int, axis: int) -> str:
    """An input with axes of size 1 after it, so that its first axis meets `axis` of input 0."""
    rank = c.rank(index)
    missing = c.rank(0) - axis - rank
    if missing < 0:
        c.refuse(f"input {index} does not fit axis {axis} of input 0")
    axes = c.ints(range(rank, rank + missing))
    return c.add("Unsqueeze", [c.required(index), axes]) if missing else c.required(index)


@row("PRelu")
def prelu(c: Conversion) -> Result:
    """In opset 6 a slope per channel has the channels as its only axis."""
    if c.version >= 7 or c.rank(1) != 1 or c.type(1).dims == (1,):
        return c.operator("PRelu")
    return c.result("PRelu", [c.required(0), _aligned(c, 1, 1)])


@row("Clip")
def clip(c: Conversion) -> Result:
    """Bounds are inputs since opset 11, attributes before."""
    if c.version >= 11:
        return c.operator("Clip")
    low, high = c.scalar("min"), c.scalar("max")
    bounds = [None if v is None else c.like(v) for v in (low, high)]
    return c.result("Clip", [c.required(0), *bounds])


@row("Cast")
def cast(c: Conversion) -> Result:
    to = dtype_of(c.integer("to", 0), c.node.place)
    return _cast_to(c, to)


@row("BitCast")
def bit_cast(c: Conversion) -> Result:
    return c.operator("BitCast", to=dtype_of(c.integer("to", 0), c.node.place))


@row("CastLike")
def cast_like(c: Conversion) -> Result:
    return _cast_to(c, c.type(1).dtype)


def _cast_to(c: Conversion, to: DType) -> Result:
    """`saturate` concerns floats of 8 bits, `round_mode` float8_e8m0fnu; elsewhere neither says
    anything."""
    a = c.attributes
    fields: dict[str, Any] = {}
    if has_saturation(to):
        fields["saturate"] = bool(c.integer("saturate", 1))
    else:
        a.irrelevant("saturate", f"it is about floats of 8 bits, and {to} is none")
    if to is DType.float8_e8m0fnu:
        fields["round_mode"] = c.text("round_mode", "up")
    else:
        a.irrelevant("round_mode", f"it is about float8_e8m0fnu, not about {to}")
    return c.apply("Cast", [c.required(0)], to=to, **fields)


@row("Dropout")
def dropout(c: Conversion) -> Result:
    """In inference a copy, and a mask that keeps everything."""
    if c.version < 7:
        require_test_mode(c)
    c.attributes.irrelevant("seed", "nothing is drawn in inference")
    c.attributes.irrelevant("ratio", "nothing is dropped in inference")
    trained = c.input(2) is not None and bool(c.constant_input(2, "training_mode"))
    ratio = c.known_value(1)
    if trained and (ratio is None or ratio.any()):
        c.refuse("training_mode is on, and training is not supported", ADVICE)
    if c.output_used(1) and c.version < 10:
        c.refuse("the mask output of opset 7 is not supported")
    return c.result("Dropout", [c.required(0)], mask=c.output_used(1))


MADE = {
    **{"value": None, "value_float": np.float32, "value_int": np.int64},
    **{"value_floats": np.float32, "value_ints": np.int64},
}
"""Attributes of Constant, of which one holds the value, and the element types of the numbers."""


@row("Constant")
def constant(c: Conversion) -> Result:
    a = c.attributes
    for name, dtype in MADE.items():
        if a.has(name):
            plural = {"value_floats": a.numbers, "value_ints": a.integers, "value": a.tensor}
            read = plural.get(name, a.scalar if name == "value_float" else a.integer)
            return c.named_constant(np.asarray(read(name), dtype))
    a.close()
    c.refuse("the node has no value")
