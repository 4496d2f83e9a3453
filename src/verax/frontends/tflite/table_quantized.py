"""TFLite operators on quantized values other than products, as LiteRT's reference kernels compute
them."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.channels_last import (
    channels_first,
    constant_ints,
    finish_channels_last,
    pads,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.lookup import looked_up, rounded_once
from verax.frontends.tflite.quantization import (
    activation_range,
    centered,
    factors,
    of_tensor,
    quantization,
)
from verax.frontends.tflite.rows import ACTIVATIONS, MAX_POSITIONS, activation, row
from verax.frontends.tflite.table_windows import pool_fields
from verax.numerics.fixed_point import nearest


def _alike(c: Conversion, *sides: str) -> tuple[np.float32, int]:
    """Scale and zero point that all these operands must share."""
    parameters = {side: of_tensor(c, side) for side in sides}
    if len(set(parameters.values())) > 1:
        c.refuse("its operands are quantized differently")
    return parameters[sides[0]]


@row("QUANTIZE", quantized=True)
def quantize(c: Conversion) -> Result:
    """Of a float: round(x / scale) in float32, halves away from zero. Of an integer: a change of
    scale."""
    to, (scale, zero) = c.text("output_type"), of_tensor(c, "output0")
    if c.type(0).dtype == "float32":
        zero_point = c.constant(zero, to)
        operands = [c.required(0), c.constant(scale), zero_point]
        return c.result("QuantizeLinear", operands, halves="away")
    x_scale, x_zero = of_tensor(c, "input0")
    factor = np.float64(x_scale) / np.float64(scale)
    return c.result(
        "Requantize",
        [centered(c, 0, x_zero), *factors(c, float(factor))],
        zero_point=zero,
        output_dtype=to,
    )


@row("DEQUANTIZE", quantized=True)
def dequantize(c: Conversion) -> Result:
    q = quantization(c, "input0")
    dtype = c.type(0).dtype.numpy
    if q.scale.size == 1:
        parameters = [c.constant(q.scale[0]), c.constant(q.zero[0], dtype)]
    else:
        parameters = [c.constant(q.scale), c.constant(q.zero, dtype)]
    return c.result("DequantizeLinear", [c.required(0), *parameters], axis=q.axis)


@row("AVERAGE_POOL_2D", quantized=True)
def average_pool(c: Conversion) -> Result:
    scale, zero = _alike(c, "input0", "output0")
    limits = activation_range(c, activation(c), scale, zero)
    x = channels_first(c, c.required(0))
    return finish_channels_last(c, c.add("AveragePoolInteger", [x], **pool_fields(c), **limits))


@row("MAX_POOL_2D", quantized=True)
def max_pool(c: Conversion) -> Result:
    scale, zero = _alike(c, "input0", "output0")
    limits = activation_range(c, activation(c), scale, zero)
    y = c.add("MaxPool", [channels_first(c, c.required(0))], **pool_fields(c))
    return finish_channels_last(c, _clipped(c, y, limits))


def _clipped(c: Conversion, value: str, limits: dict[str, int]) -> str:
    if not limits:
        return value
    dtype = c.type(value).dtype.numpy
    info = np.iinfo(dtype)
    low = max(limits["low"], int(info.min))
    high = min(limits.get("high", int(info.max)), int(info.max))
    return c.add("Clip", [value, c.constant(low, dtype), c.constant(high, dtype)])


@row("SOFTMAX", quantized=True)
def softmax(c: Conversion) -> Result:
    c.attributes.irrelevant("input0.zero_point", "only differences of the input count")
    (scale, _), (out_scale, out_zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    dtype, beta = c.type(0).dtype, c.scalar("beta", 0.0)
    if dtype == "int16":
        demanded, factor = (2.0**-15, 0), float(np.float32(beta) * scale)
    else:
        demanded, factor = (2.0**-8, int(np.iinfo(dtype.numpy).min)), beta * float(scale)
    if (float(out_scale), out_zero) != demanded:
        c.attributes.refuse("output0.scale", "LiteRT demands the unit interval's own scale")
    return c.result("SoftmaxInteger", [c.required(0)], factor=factor, output_dtype=str(dtype))


@row("PAD", "PADV2", quantized=True)
def pad(c: Conversion) -> Result:
    """The padding of PAD is the zero point."""
    sides = ["input0", "output0"]
    if c.attributes.has("input2.scale"):
        sides.append("input2")
    _, zero = _alike(c, *sides)
    value = c.input(2) or c.like(zero)
    return c.result("Pad", [c.required(0), pads(c), value])


@row("CONCATENATION", quantized=True)
def quantized_concatenation(c: Conversion) -> Result:
    """Parts quantized otherwise than the result are converted, which LiteRT does for uint8 only."""
    c.attributes.expect("fused_activation_function", "NONE", reason="LiteRT demands it")
    axis, target = c.integer("axis", 0), of_tensor(c, "output0")
    converted = [_converted(c, i, target) for i in range(len(c.inputs))]
    return c.result("Concat", converted, axis=axis)


def _converted(c: Conversion, index: int, target: tuple[np.float32, int]) -> str:
    """An operand in the scale of the target, by a table of all results in float32."""
    value, (x_scale, x_zero) = c.required(index), of_tensor(c, f"input{index}")
    scale, zero = target
    if (x_scale, x_zero) == target:
        return value
    if c.type(index).dtype != "uint8":
        c.refuse("its operands are quantized differently, and LiteRT would not convert")
    factor = x_scale * (np.float32(1) / scale)
    results = nearest(np.arange(256).astype(np.float32) * factor + np.float32(-x_zero) * factor)
    return c.append(looked_up(c, results + zero, rounded_once(c, np.asarray, index), index))


@row("RELU", *ACTIVATIONS, quantized=True)
def clamp(c: Conversion) -> Result:
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    return c.result(
        "Requantize",
        [centered(c, 0, x_zero), *factors(c, float(x_scale / scale))],
        zero_point=zero,
        output_dtype=str(c.type(0).dtype),
        **activation_range(c, c.node.op_type, scale, zero),
    )


@row("NEG", quantized=True)
def negative(c: Conversion) -> Result:
    """LiteRT changes the sign of the integers, which is right around a zero point of 0 only."""
    if _alike(c, "input0", "output0")[1]:
        c.attributes.refuse("input0.zero_point", "LiteRT forgets it")
    return c.operator("Neg")


@row("LEAKY_RELU", quantized=True)
def leaky_relu(c: Conversion) -> Result:
    """Both sides have a factor of their own."""
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    alpha = np.float32(c.scalar("alpha", 0.0))
    if alpha < 0:
        c.attributes.refuse("alpha", "factors are not negative")
    x, fields = centered(c, 0, x_zero), {"zero_point": zero, "output_dtype": str(c.type(0).dtype)}
    above = c.add("Requantize", [x, *factors(c, float(x_scale / scale))], **fields)
    below = c.add("Requantize", [x, *factors(c, float(x_scale * alpha / scale))], **fields)
    positive = c.add("GreaterOrEqual", [x, c.constant(0, np.int32)])
    return c.result("Where", [positive, above, below])


@row("PRELU", quantized=True)
def prelu(c: Conversion) -> Result:
    """Below zero the product with alpha, in the scale of both."""
    (x_scale, x_zero), (alpha_scale, alpha_zero) = of_tensor(c, "input0"), of_tensor(c, "input1")
    scale, zero = of_tensor(c, "output0")
    fields = {"zero_point": zero, "output_dtype": str(c.type(0).dtype)}
    x = centered(c, 0, x_zero)
    product = c.add("Mul", [x, centered(c, 1, alpha_zero)])
    above = c.add("Requantize", [x, *factors(c, float(x_scale / scale))], **fields)
    factor = factors(c, float(x_scale * alpha_scale / scale))
    below = c.add("Requantize", [product, *factor], **fields)
    positive = c.add("GreaterOrEqual", [x, c.constant(0, np.int32)])
    return c.result("Where", [positive, above, below])


@row("RESIZE_BILINEAR", quantized=True)
def resize_bilinear(c: Conversion) -> Result:
    """Scale and zero point stay."""
    _alike(c, "input0", "output0")
    dtype = c.type(0).dtype
    if dtype not in ("int8", "int16"):
        c.refuse(f"resizing {dtype} is not supported")
    aligned, half = c.flag("align_corners"), c.flag("half_pixel_centers")
    if aligned and half:
        c.attributes.refuse("half_pixel_centers", "together with align_corners")
    sizes = constant_ints(c, 1, "the size")
    if len(sizes) != 2 or not all(1 <= size <= MAX_POSITIONS for size in sizes):
        c.refuse(f"the sizes {sizes}")
    fields = {"align_corners": aligned, "half_pixel_centers": half}
    return c.result("ResizeInteger", [c.required(0)], sizes=sizes, **fields)
