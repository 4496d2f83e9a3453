"""TFLite reductions of quantized values, as LiteRT's reference kernels compute them."""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.common.channels_last import constant_ints
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import centered, factors, of_tensor
from verax.frontends.tflite.rows import row
from verax.frontends.tflite.table_elementwise import arg as position
from verax.frontends.tflite.table_elementwise import shape
from verax.numerics.fixed_point import quantized_factor


def _sums(c: Conversion) -> tuple[str, tuple[int, ...]]:
    """Exact sums without zero points, and the axes that they run over."""
    axes = constant_ints(c, 1, "the axes")
    x = centered(c, 0, of_tensor(c, "input0")[1])
    keep = c.flag("keep_dims")
    fields = {"keepdims": keep, "noop_with_empty_axes": True}
    return c.add("ReduceSum", [x, c.ints(axes)], **fields), axes


@row("MEAN", quantized=True)
def mean(c: Conversion) -> Result:
    """The count divides the multiplier."""
    (x_scale, _), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    sums, axes = _sums(c)
    count = math.prod(c.known_sizes(0, {a % c.rank() for a in axes}, "the mean"))
    if not count or not axes:
        c.refuse("a mean of nothing")
    multiplier, shift = quantized_factor(float(np.float64(x_scale) / np.float64(scale)))
    up = min(count.bit_length() - 1, 32, 31 + shift)
    pair = ((multiplier << up) // count, shift - up)
    return c.result(
        "Requantize",
        [sums, *(c.constant(v, np.int32) for v in pair)],
        zero_point=zero,
        output_dtype=str(c.type(0).dtype),
    )


@row("SUM", quantized=True)
def total(c: Conversion) -> Result:
    """LiteRT's reference kernel takes every type for uint8; this is what it computes for that."""
    (x_scale, _), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    sums, _ = _sums(c)
    return c.result(
        "Requantize",
        [sums, *factors(c, float(np.float64(x_scale) / np.float64(scale)))],
        zero_point=zero,
        output_dtype=str(c.type(0).dtype),
    )


@row("L2_NORMALIZATION", quantized=True)
def l2_normalization(c: Conversion) -> Result:
    """x over its Euclidean length along the last axis, in units of 1/128."""
    c.attributes.expect(
        "fused_activation_function", "NONE", reason="only None is known to be honored"
    )
    c.attributes.irrelevant("input0.scale", "it cancels")
    (_, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    dtype = c.type(0).dtype
    if (
        dtype not in ("int8", "uint8")
        or scale != np.float32(1 / 128)
        or (zero != (0 if dtype == "int8" else 128))
    ):
        c.attributes.refuse("output0.scale", "LiteRT demands bytes, 1/128 and the middle as zero")
    return c.result("L2NormalizeInteger", [c.required(0)], zero_point=x_zero)


@row("ARG_MAX", "ARG_MIN", quantized=True)
def arg(c: Conversion) -> Result:
    for name in ("scale", "zero_point"):
        c.attributes.irrelevant(f"input0.{name}", "order is that of the integers")
    return position(c)


@row("SHAPE", quantized=True)
def shape_of(c: Conversion) -> Result:
    for name in ("scale", "zero_point", "quantized_dimension"):
        c.attributes.irrelevant(f"input0.{name}", "only the sizes count")
    return shape(c)
