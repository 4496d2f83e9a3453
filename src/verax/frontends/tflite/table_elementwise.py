"""TFLite's elementwise operators and reductions on floating-point numbers."""

from __future__ import annotations

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.channels_last import constant_array, constant_ints
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import scalar
from verax.frontends.tflite.rows import ACTIVATIONS, FLOATS, activation, finish_activated, row

PLAIN = {
    "ABS": "Abs", "CEIL": "Ceil", "COS": "Cos", "ELU": "Elu", "EQUAL": "Equal", "EXP": "Exp",
    "FLOOR": "Floor", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual",
    "HARD_SWISH": "HardSwish", "LESS": "Less", "LESS_EQUAL": "LessOrEqual", "LOG": "Log",
    "LOGICAL_AND": "And", "LOGICAL_NOT": "Not", "LOGICAL_OR": "Or", "LOGISTIC": "Sigmoid",
    "MAXIMUM": "Max", "MINIMUM": "Min", "NEG": "Neg", "POW": "Pow", "PRELU": "PRelu",
    "RELU": "Relu", "ROUND": "Round", "SIGN": "Sign", "SIN": "Sin", "SQRT": "Sqrt", "TANH": "Tanh",
}  # fmt: skip
"""Operators without options that mean what the Verax operator means."""


FLOATS.operators(PLAIN)


ARITHMETIC = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div"}


@row(*ARITHMETIC)
def arithmetic(c: Conversion) -> Result:
    c.attributes.irrelevant("pot_scale_int16", "it concerns 16-bit operands")
    inputs = [c.required(0), c.required(1)]
    return finish_activated(c, activation(c), ARITHMETIC[c.node.op_type], inputs)


for _name, (_low, _high) in ACTIVATIONS.items():
    FLOATS.formula(formulas.clipped, _name, low=_low, high=_high)


@row("GELU")
def gelu(c: Conversion) -> Result:
    return c.operator("Gelu", approximate="tanh" if c.flag("approximate") else "none")


FLOATS.operator("LeakyRelu", "LEAKY_RELU", alpha=scalar(0.0))
FLOATS.operator("LogSoftmax", "LOG_SOFTMAX", axis=-1)
FLOATS.formula(formulas.rsqrt, "RSQRT")
FLOATS.formula(formulas.square, "SQUARE")
FLOATS.formula(formulas.squared_difference, "SQUARED_DIFFERENCE")
FLOATS.formula(formulas.not_equal, "NOT_EQUAL")


@row("SELECT", "SELECT_V2", moves=True)
def select(c: Conversion) -> Result:
    if c.node.op_type == "SELECT" and c.rank(0) not in (0, c.rank(1)):
        c.refuse("a condition per row is not supported")
    return c.operator("Where")


@row("CAST")
def cast(c: Conversion) -> Result:
    c.irrelevant("in_data_type", "out_data_type", reason="LiteRT goes by the types of the tensors")
    return c.operator("Cast", to=c.text("output_type"))


@row("DEQUANTIZE")
def dequantize_half(c: Conversion) -> Result:
    """float16 weights, stored small and used as float32: exact, and folded when constant."""
    array = constant_array(c, c.required(0))
    if c.type(0).dtype != "float16":
        c.refuse(f"operands of {c.type(0).dtype} without a scale are not supported")
    if array is None:
        return c.operator("Cast", to="float32")
    return c.named_constant(array.astype(np.float32))


@row("SOFTMAX")
def softmax(c: Conversion) -> Result:
    """softmax(beta x) along the last axis."""
    beta, x = c.scalar("beta", 0.0), c.required(0)
    if beta != 1.0:
        x = c.add("Mul", [x, c.constant(beta, np.float32)])
    return c.result("Softmax", [x], axis=-1)


@row("L2_NORMALIZATION")
def l2_normalization(c: Conversion) -> Result:
    """x / max(|x|, 1e-6), |x| being the Euclidean length along the last axis."""
    c.attributes.expect(
        "fused_activation_function", "NONE", reason="only None is known to be honored"
    )
    return formulas.over_norm(c, c.required(0), (-1,), 1e-6)


REDUCTIONS = {
    "MEAN": "ReduceMean",
    "SUM": "ReduceSum",
    "REDUCE_PROD": "ReduceProd",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
}


@row("REDUCE_MAX", "REDUCE_MIN", moves=True)
def selection(c: Conversion) -> Result:
    return reduction(c)


@row("MEAN", "SUM", "REDUCE_PROD")
def reduction(c: Conversion) -> Result:
    """Over the axes of operand 1; none of them means none."""
    return c.result(
        REDUCTIONS[c.node.op_type],
        [c.required(0), c.ints(constant_ints(c, 1, "the axes"))],
        keepdims=c.flag("keep_dims"),
        noop_with_empty_axes=True,
    )


@row("ARG_MAX", "ARG_MIN")
def arg(c: Conversion) -> Result:
    """The first of equals wins."""
    (axis,) = constant_ints(c, 1, "the axis")
    kind = "ArgMax" if c.node.op_type == "ARG_MAX" else "ArgMin"
    to = c.choice("output_type", ("int32", "int64"), "float32")
    return _cast_result(c, c.add(kind, [c.required(0)], axis=axis, keepdims=False), to)


@row("SHAPE")
def shape(c: Conversion) -> Result:
    to = c.choice("out_type", ("int32", "int64"), "float32")
    return _cast_result(c, c.add("Shape", [c.required(0)]), to)


def _cast_result(c: Conversion, value: str, to: str) -> Result:
    return c.result("Identity" if to == "int64" else "Cast", [value], **_to(to))


def _to(to: str) -> dict[str, str]:
    return {} if to == "int64" else {"to": to}
