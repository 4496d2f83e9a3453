"""ONNX elementwise operators: arithmetic, comparison, logic, activations, casts."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion
from verax.frontends.onnx.rows import (
    Result,
    plain,
    require_test_mode,
    row,
    with_flags,
    with_numbers,
)
from verax.frontends.onnx.tensors import dtype_of
from verax.ir.types import DType

plain("Neg", "Abs", "Sign", "Sqrt", "Reciprocal")
plain("Min", "Max", "Sum", "Mean", "Where", "Identity")
plain("GreaterOrEqual", "LessOrEqual", "IsNaN")
plain("Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
plain("Floor", "Ceil", "Round", "Exp", "Log", "Erf")
plain("Sin", "Cos", "Tan", "Asin", "Acos", "Atan")
plain("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh")
plain("Sigmoid", "Relu", "HardSwish", "Mish", "Softplus", "Softsign")
with_flags("Mod", fmod=False)
with_flags("IsInf", detect_negative=True, detect_positive=True)
with_numbers("LeakyRelu", alpha=0.01)
with_numbers("Elu", alpha=1.0)
with_numbers("Celu", alpha=1.0)
with_numbers("Selu", alpha=1.67326319217681884765625, gamma=1.05070102214813232421875)
with_numbers("ThresholdedRelu", alpha=1.0)
with_numbers("HardSigmoid", alpha=0.2, beta=0.5)
with_numbers("Swish", alpha=1.0)
with_numbers("Shrink", lambd=0.5, bias=0.0)


@row("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def binary(c: Conversion) -> Result:
    """In opset 6 only the second input broadcasts, and `axis` says from where on."""
    if c.version >= 7:
        return c.operator(c.node.op_type)
    c.attributes.irrelevant("broadcast", "the shapes say whether the second input broadcasts")
    axis = c.attributes.integer("axis")
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


@row("BitShift")
def bit_shift(c: Conversion) -> Result:
    return c.operator("BitShift", direction=c.attributes.text("direction", ""))


@row("Gelu")
def gelu(c: Conversion) -> Result:
    return c.operator("Gelu", approximate=c.attributes.text("approximate", "none"))


@row("Gelu", domain="com.microsoft")
def microsoft_gelu(c: Conversion) -> Result:
    """The exact form."""
    return c.operator("Gelu", approximate="none")


@row("QuickGelu", domain="com.microsoft")
def quick_gelu(c: Conversion) -> Result:
    return c.operator("Swish", alpha=c.attributes.number("alpha", 1.702))


@row("Clip")
def clip(c: Conversion) -> Result:
    """Bounds are inputs since opset 11, attributes before."""
    if c.version >= 11:
        return c.operator("Clip")
    low, high = c.attributes.number("min"), c.attributes.number("max")
    dtype = c.type(0).dtype.numpy
    bounds = [None if v is None else c.constant(v, dtype) for v in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    return c.result("Clip", [c.required(0), *bounds])


@row("Cast")
def cast(c: Conversion) -> Result:
    c.attributes.irrelevant("saturate", "it concerns 8-bit floats only")
    c.attributes.irrelevant("round_mode", "it concerns float8e8m0 only")
    to = dtype_of(c.attributes.integer("to", 0), c.node.place)
    return c.operator("Cast", to=to)


@row("CastLike")
def cast_like(c: Conversion) -> Result:
    c.attributes.irrelevant("saturate", "it concerns 8-bit floats only")
    c.attributes.irrelevant("round_mode", "it concerns float8e8m0 only")
    return c.result("Cast", [c.required(0)], to=c.type(1).dtype)


@row("Dropout")
def dropout(c: Conversion) -> Result:
    """In inference a copy, and a mask that keeps everything."""
    if c.version < 7:
        require_test_mode(c)
    c.attributes.irrelevant("seed", "nothing is drawn in inference")
    c.attributes.irrelevant("ratio", "nothing is dropped in inference")
    if c.input(2) is not None and bool(c.constant_input(2, "training_mode")):
        c.refuse("training_mode is on, and training is not supported")
    if c.output_used(1) and c.version < 10:
        c.refuse("the mask output of opset 7 is not supported")
    return c.result("Dropout", [c.required(0)], mask=c.output_used(1))


@row("Constant")
def constant(c: Conversion) -> Result:
    """One of several attributes holds the value."""
    if c.attributes.has("value"):
        return c.named_constant(c.attributes.tensor("value"))
    if c.attributes.has("value_float"):
        return c.named_constant(np.float32(c.attributes.number("value_float")))
    if c.attributes.has("value_int"):
        return c.named_constant(np.int64(c.attributes.integer("value_int")))
    if c.attributes.has("value_floats"):
        return c.named_constant(np.array(c.attributes.numbers("value_floats"), np.float32))
    if c.attributes.has("value_ints"):
        return c.named_constant(np.array(c.attributes.integers("value_ints"), np.int64))
    c.attributes.close()
    c.refuse("the node has no value")


def _optional_dtype(c: Conversion, name: str) -> DType | None:
    """An element type that may be left open (0)."""
    code = c.attributes.integer(name, 0)
    return dtype_of(code, c.node.place) if code else None


@row("QuantizeLinear")
def quantize_linear(c: Conversion) -> Result:
    c.attributes.irrelevant("saturate", "it concerns 8-bit floats only")
    return c.operator(
        "QuantizeLinear",
        axis=c.attributes.integer("axis", 1),
        block_size=c.attributes.integer("block_size", 0),
        output_dtype=_optional_dtype(c, "output_dtype"),
        precision=_optional_dtype(c, "precision"),
    )


@row("DequantizeLinear")
def dequantize_linear(c: Conversion) -> Result:
    return c.operator(
        "DequantizeLinear",
        axis=c.attributes.integer("axis", 1),
        block_size=c.attributes.integer("block_size", 0),
        output_dtype=_optional_dtype(c, "output_dtype"),
    )


plain("DynamicQuantizeLinear")
