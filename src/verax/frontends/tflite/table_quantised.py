"""TFLite operators on quantised values other than products, as LiteRT's reference kernels compute
them."""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.channels_last import (
    channels_first,
    constant_ints,
    finish_channels_last,
    pads,
)
from verax.frontends.conversion import Conversion
from verax.frontends.tflite.quantisation import (
    activation_range,
    centred,
    factors,
    of_tensor,
    quantisation,
)
from verax.frontends.tflite.rows import ACTIVATIONS, Result, activation, row
from verax.frontends.tflite.table_elementwise import arg as position
from verax.frontends.tflite.table_elementwise import shape
from verax.frontends.tflite.table_movement import concatenation
from verax.frontends.tflite.table_windows import pool_fields
from verax.numerics.fixed_point import quantised_factor


def _alike(c: Conversion, *sides: str) -> tuple[np.float32, int]:
    """Scale and zero point that all these operands must share."""
    found = {side: of_tensor(c, side) for side in sides}
    if len(set(found.values())) > 1:
        c.refuse("its operands are quantised differently")
    return found[sides[0]]


@row("QUANTIZE", quantised=True)
def quantise(c: Conversion) -> Result:
    """Of a float: round(x / scale), ties to even. Of an integer: a change of scale."""
    to, (scale, zero) = c.attributes.text("output_type"), of_tensor(c, "output0")
    if c.type(0).dtype == "float32":
        zero_point = c.constant(zero, to)
        return c.result("QuantizeLinear", [c.required(0), c.constant(scale), zero_point])
    x_scale, x_zero = of_tensor(c, "input0")
    factor = np.float64(x_scale) / np.float64(scale)
    return c.result(
        "Requantize",
        [centred(c, 0, x_zero), *factors(c, float(factor))],
        zero_point=zero,
        output_dtype=to,
    )


@row("DEQUANTIZE", quantised=True)
def dequantise(c: Conversion) -> Result:
    q = quantisation(c, "input0")
    dtype = c.type(0).dtype.numpy
    if q.scale.size == 1:
        parameters = [c.constant(q.scale[0]), c.constant(q.zero[0], dtype)]
    else:
        parameters = [c.constant(q.scale), c.constant(q.zero, dtype)]
    return c.result("DequantizeLinear", [c.required(0), *parameters], axis=q.axis)


SUM_BITS = {"int8": 20, "uint8": 20, "int16": 15}
"""Bits that operands of sums are shifted up by before they are scaled."""


@row("ADD", "SUB", quantised=True)
def add(c: Conversion) -> Result:
    """Both operands are brought to half the larger scale, with more bits; then to the output's."""
    (a_scale, a_zero), (b_scale, b_zero) = of_tensor(c, "input0"), of_tensor(c, "input1")
    scale, zero = of_tensor(c, "output0")
    dtype = str(c.type(0).dtype)
    powers = all(np.frexp(s)[0] == np.float32(0.5) for s in (a_scale, b_scale, scale))
    if dtype != "int16" or not powers:
        c.attributes.irrelevant("pot_scale_int16", "it needs 16 bits and powers of two as scales")
    elif c.attributes.flag("pot_scale_int16", True):
        c.attributes.refuse("pot_scale_int16", "16-bit sums in powers of two")
    bits = SUM_BITS[dtype]
    twice = 2 * np.float64(max(a_scale, b_scale))
    terms = []
    for i, (own, own_zero) in enumerate(((a_scale, a_zero), (b_scale, b_zero))):
        shifted = c.add("Mul", [centred(c, i, own_zero), c.constant(1 << bits, np.int32)])
        factor = factors(c, float(np.float64(own) / twice))
        terms.append(c.add("Requantize", [shifted, *factor], output_dtype="int32"))
    total = c.add("Add" if c.node.op_type == "ADD" else "Sub", terms)
    return c.result(
        "Requantize",
        [total, *factors(c, float(twice / ((1 << bits) * np.float64(scale))))],
        zero_point=zero,
        output_dtype=dtype,
        **activation_range(c, activation(c), scale, zero),
    )


@row("AVERAGE_POOL_2D", quantised=True)
def average_pool(c: Conversion) -> Result:
    scale, zero = _alike(c, "input0", "output0")
    limits = activation_range(c, activation(c), scale, zero)
    x = channels_first(c, c.required(0))
    return finish_channels_last(c, c.add("AveragePoolInteger", [x], **pool_fields(c), **limits))


@row("MAX_POOL_2D", quantised=True)
def max_pool(c: Conversion) -> Result:
    scale, zero = _alike(c, "input0", "output0")
    limits = activation_range(c, activation(c), scale, zero)
    y = c.add("MaxPool", [channels_first(c, c.required(0))], **pool_fields(c))
    return finish_channels_last(c, _clipped(c, y, limits))


def _clipped(c: Conversion, value: str, limits: dict[str, int]) -> str:
    if not limits:
        return value
    dtype = c.builder.types[value].dtype.numpy
    info = np.iinfo(dtype)
    low = max(limits["low"], int(info.min))
    high = min(limits.get("high", int(info.max)), int(info.max))
    return c.add("Clip", [value, c.constant(low, dtype), c.constant(high, dtype)])


@row("SOFTMAX", quantised=True)
def softmax(c: Conversion) -> Result:
    c.attributes.irrelevant("input0.zero_point", "only differences of the input count")
    (scale, _), (out_scale, out_zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    dtype, beta = c.type(0).dtype, c.attributes.number("beta", 0.0)
    if dtype == "int16":
        demanded, factor = (2.0**-15, 0), float(np.float32(beta) * scale)
    else:
        demanded, factor = (2.0**-8, int(np.iinfo(dtype.numpy).min)), beta * float(scale)
    if (float(out_scale), out_zero) != demanded:
        c.attributes.refuse("output0.scale", "LiteRT demands the unit interval's own scale")
    return c.result("SoftmaxInteger", [c.required(0)], factor=factor, output_dtype=str(dtype))


@row("PAD", "PADV2", quantised=True)
def pad(c: Conversion) -> Result:
    """The padding of PAD is the zero point."""
    sides = ["input0", "output0"]
    if c.attributes.has("input2.scale"):
        sides.append("input2")
    _, zero = _alike(c, *sides)
    value = c.input(2) or c.constant(zero, c.type(0).dtype.numpy)
    return c.result("Pad", [c.required(0), pads(c), value])


@row("CONCATENATION", quantised=True)
def quantised_concatenation(c: Conversion) -> Result:
    _alike(c, *(f"input{i}" for i in range(len(c.inputs))), "output0")
    c.attributes.expect("fused_activation_function", "NONE", why="LiteRT demands it")
    return concatenation(c)


@row("MAXIMUM", "MINIMUM", quantised=True)
def extreme(c: Conversion) -> Result:
    _alike(c, "input0", "input1", "output0")
    return c.operator("Max" if c.node.op_type == "MAXIMUM" else "Min")


@row("RELU", *ACTIVATIONS, quantised=True)
def clamp(c: Conversion) -> Result:
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    return c.result(
        "Requantize",
        [centred(c, 0, x_zero), *factors(c, float(x_scale / scale))],
        zero_point=zero,
        output_dtype=str(c.type(0).dtype),
        **activation_range(c, c.node.op_type, scale, zero),
    )


@row("LEAKY_RELU", quantised=True)
def leaky_relu(c: Conversion) -> Result:
    """Both sides have a factor of their own."""
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    alpha = np.float32(c.attributes.number("alpha", 0.0))
    if alpha < 0:
        c.attributes.refuse("alpha", "factors are not negative")
    x, fields = centred(c, 0, x_zero), {"zero_point": zero, "output_dtype": str(c.type(0).dtype)}
    above = c.add("Requantize", [x, *factors(c, float(x_scale / scale))], **fields)
    below = c.add("Requantize", [x, *factors(c, float(x_scale * alpha / scale))], **fields)
    positive = c.add("GreaterOrEqual", [x, c.constant(0, np.int32)])
    return c.result("Where", [positive, above, below])


@row("MEAN", quantised=True)
def mean(c: Conversion) -> Result:
    """The count divides the multiplier."""
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    axes = constant_ints(c, 1, "the axes")
    sizes = [c.type(0).dims[a] for a in {a % c.rank() for a in axes}]
    if not all(isinstance(n, int) for n in sizes):
        c.refuse("the sizes that a mean is taken over are not known: give shapes")
    count = math.prod(n for n in sizes if isinstance(n, int))
    if not count or not axes:
        c.refuse("a mean of nothing")
    sums = c.add(
        "ReduceSum", [centred(c, 0, x_zero), c.ints(axes)], keepdims=c.attributes.flag("keep_dims")
    )
    multiplier, shift = quantised_factor(float(np.float64(x_scale) / np.float64(scale)))
    up = min(count.bit_length() - 1, 32, 31 + shift)
    pair = ((multiplier << up) // count, shift - up)
    return c.result(
        "Requantize",
        [sums, *(c.constant(v, np.int32) for v in pair)],
        zero_point=zero,
        output_dtype=str(c.type(0).dtype),
    )


@row("PRELU", quantised=True)
def prelu(c: Conversion) -> Result:
    """Below zero the product with alpha, in the scale of both."""
    (x_scale, x_zero), (alpha_scale, alpha_zero) = of_tensor(c, "input0"), of_tensor(c, "input1")
    scale, zero = of_tensor(c, "output0")
    fields = {"zero_point": zero, "output_dtype": str(c.type(0).dtype)}
    x = centred(c, 0, x_zero)
    product = c.add("Mul", [x, centred(c, 1, alpha_zero)])
    above = c.add("Requantize", [x, *factors(c, float(x_scale / scale))], **fields)
    factor = factors(c, float(x_scale * alpha_scale / scale))
    below = c.add("Requantize", [product, *factor], **fields)
    positive = c.add("GreaterOrEqual", [x, c.constant(0, np.int32)])
    return c.result("Where", [positive, above, below])


@row("RESIZE_BILINEAR", quantised=True)
def resize_bilinear(c: Conversion) -> Result:
    """Weights have 10 bits per axis; scale and zero point stay."""
    _alike(c, "input0", "output0")
    if c.type(0).dtype != "int8":
        c.refuse(f"resizing {c.type(0).dtype} is not supported")
    aligned, half = c.attributes.flag("align_corners"), c.attributes.flag("half_pixel_centers")
    if aligned and half:
        c.attributes.refuse("half_pixel_centers", "together with align_corners")
    value = c.add("Cast", [c.required(0)], to="int32")
    for axis, size in zip((1, 2), constant_ints(c, 1, "the size")):
        whole = c.type(0).dims[axis]
        if not isinstance(whole, int) or size < 1:
            c.refuse("the sizes must be known")
        low, high, weight = _interpolation(whole, size, aligned, half)
        lanes = (-1, *(1,) * (3 - axis))
        terms = []
        for index, factor in ((low, (1 << 10) - weight), (high, weight)):
            seen = c.add("Gather", [value, c.ints(index.tolist())], axis=axis)
            terms.append(c.add("Mul", [seen, c.constant(factor.reshape(lanes), np.int32)]))
        value = c.add("Add", terms)
    # Twice the sum times 2^-21, of which the first rounding is exact: halves away from zero.
    twice = c.add("Add", [value, value])
    return c.result("Requantize", [twice, *factors(c, 2.0**-21)], axis=3)


def _interpolation(
    whole: int, size: int, aligned: bool, half: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper neighbour of each output position, and the upper one's weight of 10 bits."""
    if aligned and size > 1:
        scale = ((whole - 1 << 10) + (size - 1) // 2) // (size - 1)
    else:
        scale = ((whole << 10) + size // 2) // size
    at = np.arange(size, dtype=np.int64) * scale
    if half:
        at += scale // 2 - (1 << 9)
    low = np.maximum(at >> 10, 0)  # negative positions are above -1: their floor and C's differ by
    high = np.minimum(-(-at >> 10), whole - 1)  # what the bounds cut off
    return low, np.maximum(high, 0), at - (low << 10)


@row("ARG_MAX", "ARG_MIN", quantised=True)
def arg(c: Conversion) -> Result:
    for name in ("scale", "zero_point"):
        c.attributes.irrelevant(f"input0.{name}", "order is that of the integers")
    return position(c)


@row("SHAPE", quantised=True)
def shape_of(c: Conversion) -> Result:
    for name in ("scale", "zero_point", "quantized_dimension"):
        c.attributes.irrelevant(f"input0.{name}", "only the sizes count")
    return shape(c)
