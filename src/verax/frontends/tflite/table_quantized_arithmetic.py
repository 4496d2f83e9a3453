"""TFLite operators on two quantized operands of one shape, as LiteRT's reference kernels compute
them: each operand is shifted up, scaled, and the result is scaled once more."""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import activation_range, centered, factors, of_tensor
from verax.frontends.tflite.rows import activation, row
from verax.numerics.fixed_point import (
    doubling_high_product,
    quantized_factor,
    reciprocal_of_one_plus,
    rounded_shift,
)

SUM_BITS = {"int8": 20, "uint8": 20, "int16": 15}
"""Bits that operands of sums are shifted up by before they are scaled."""
NEAR_POWER = 1e-3
"""How far the logarithm of a scale may be from a whole number for LiteRT to take it as one."""


def _is_power(scale: np.float32) -> bool:
    """Whether LiteRT takes a scale for a power of two."""
    exponent = math.log2(float(scale))
    return abs(exponent - round(exponent)) < NEAR_POWER


def _terms(c: Conversion, bits: int) -> tuple[list[str], float]:
    """Both operands in units of twice the larger scale, with `bits` more bits; that unit."""
    sides = [of_tensor(c, f"input{i}") for i in (0, 1)]
    unit = 2 * np.float64(max(scale for scale, _ in sides))
    terms = []
    for i, (scale, zero) in enumerate(sides):
        shifted = c.add("Mul", [centered(c, i, zero), c.constant(1 << bits, np.int32)])
        factor = factors(c, float(np.float64(scale) / unit))
        terms.append(c.add("Requantize", [shifted, *factor], output_dtype="int32"))
    return terms, float(unit)


@row("ADD", "SUB", quantized=True)
def add(c: Conversion) -> Result:
    scale, zero = of_tensor(c, "output0")
    dtype = str(c.type(0).dtype)
    scales = (of_tensor(c, "input0")[0], of_tensor(c, "input1")[0], scale)
    if dtype != "int16" or not all(map(_is_power, scales)):
        c.attributes.irrelevant("pot_scale_int16", "it needs 16 bits and powers of two as scales")
    elif c.flag("pot_scale_int16", True):
        c.attributes.refuse("pot_scale_int16", "16-bit sums in powers of two")
    bits = SUM_BITS[dtype]
    terms, unit = _terms(c, bits)
    total = c.add("Add" if c.node.op_type == "ADD" else "Sub", terms)
    return c.result(
        "Requantize",
        [total, *factors(c, unit / ((1 << bits) * float(scale)))],
        zero_point=zero,
        output_dtype=dtype,
        **activation_range(c, activation(c), scale, zero),
    )


@row("MUL", quantized=True)
def multiply(c: Conversion) -> Result:
    (a_scale, a_zero), (b_scale, b_zero) = of_tensor(c, "input0"), of_tensor(c, "input1")
    scale, zero = of_tensor(c, "output0")
    product = c.add("Mul", [centered(c, 0, a_zero), centered(c, 1, b_zero)])
    return c.result(
        "Requantize",
        [product, *factors(c, float(a_scale * b_scale / scale))],
        zero_point=zero,
        output_dtype=str(c.type(0).dtype),
        **activation_range(c, activation(c), scale, zero),
    )


@row("DIV", quantized=True)
def divide(c: Conversion) -> Result:
    """A table of all quotients of two bytes.

    LiteRT's answer is undefined where the divisor is zero (here it counts as the least above zero)
    and where its last shift exceeds 31 bits, far below one quantum (here zero).
    """
    (a_scale, a_zero), (b_scale, b_zero) = of_tensor(c, "input0"), of_tensor(c, "input1")
    scale, zero = of_tensor(c, "output0")
    dtype = c.type(0).dtype
    if dtype not in ("int8", "uint8"):
        c.refuse(f"quotients of {dtype} are not supported")
    info = np.iinfo(dtype.numpy)
    numbers = np.arange(info.min, info.max + 1)
    a, b = (numbers - a_zero)[:, None], (numbers - b_zero)[None]
    a, b = np.where(b < 0, -a, a), np.maximum(np.abs(b), 1)
    lead = 32 - np.frexp(b.astype(np.float64))[1]
    inverse = reciprocal_of_one_plus((b << lead) - 2**31)
    headroom = 31 - np.frexp(np.where(a < 0, ~a, a).astype(np.float64))[1]
    unscaled = doubling_high_product(a << headroom, inverse)
    multiplier, shift = quantized_factor(float(a_scale / (b_scale * scale)))
    down = np.clip(31 - lead + headroom - shift, 0, 62)
    quotients = rounded_shift(doubling_high_product(unscaled, multiplier), down) + zero
    limits = {"low": int(info.min), "high": int(info.max)}
    limits.update(activation_range(c, activation(c), scale, zero))
    low, high = max(limits["low"], int(info.min)), min(limits["high"], int(info.max))
    table = c.constant(np.clip(quotients, low, high).astype(dtype.numpy).ravel())
    rows, columns = (
        c.add("Sub", [c.add("Cast", [c.required(i)], to="int64"), c.constant(info.min, np.int64)])
        for i in (0, 1)
    )
    rows = c.add("Mul", [rows, c.constant(256, np.int64)])
    return c.result("Gather", [table, c.add("Add", [rows, columns])], axis=0)


@row("SQUARED_DIFFERENCE", quantized=True)
def squared_difference(c: Conversion) -> Result:
    scale, zero = of_tensor(c, "output0")
    if c.type(0).dtype != "int8":
        c.refuse(f"LiteRT has none for {c.type(0).dtype}")
    bits = 7
    terms, unit = _terms(c, bits)
    difference = c.add("Sub", terms)
    factor = unit * unit / ((1 << 2 * bits) * float(scale))
    return c.result(
        "Requantize",
        [c.add("Mul", [difference, difference]), *factors(c, factor)],
        zero_point=zero,
        output_dtype="int8",
    )


COMPARISONS = {
    "EQUAL": "Equal", "NOT_EQUAL": "Equal", "LESS": "Less", "LESS_EQUAL": "LessOrEqual",
    "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual",
}  # fmt: skip
COMPARED_BITS = 8


@row(*COMPARISONS, quantized=True)
def comparison(c: Conversion) -> Result:
    """Each operand times its scale, with 8 bits of fraction: nearer numbers are equal. LiteRT
    orders 16-bit operands by their integers, whatever their scales."""
    name = c.node.op_type
    if c.type(0).dtype == "int16" and "EQUAL" not in (name, name.removeprefix("NOT_")):
        for i in (0, 1):
            c.attributes.irrelevant(
                f"input{i}.scale", "LiteRT compares 16-bit integers as they are"
            )
            c.attributes.irrelevant(f"input{i}.zero_point", "likewise")
        return c.operator(COMPARISONS[name])
    sides = []
    for i in (0, 1):
        scale, zero = of_tensor(c, f"input{i}")
        shifted = c.add("Mul", [centered(c, i, zero), c.constant(1 << COMPARED_BITS, np.int32)])
        sides.append(
            c.add("Requantize", [shifted, *factors(c, float(scale))], output_dtype="int32")
        )
    if name == "NOT_EQUAL":
        return c.result("Not", [c.add("Equal", sides)])
    return c.result(COMPARISONS[name], sides)


@row("MAXIMUM", "MINIMUM", quantized=True)
def extreme(c: Conversion) -> Result:
    sides = {of_tensor(c, side) for side in ("input0", "input1", "output0")}
    if len(sides) > 1:
        c.refuse("its operands are quantized differently")
    return c.operator("Max" if c.node.op_type == "MAXIMUM" else "Min")
