"""What rows on quantized operands share: scales and zero points, factors, activation ranges.

A quantized number q means scale (q - zero_point). LiteRT's kernels compute on the integers; a real
factor between scales becomes a 32-bit multiplier and a shift, and where it is rounded to float32 on
the way is part of the meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion
from verax.frontends.tflite.rows import ACTIVATIONS
from verax.numerics.fixed_point import quantized_factor

Float = np.float32


@dataclass(frozen=True)
class Quantization:
    """Of one operand. scale: float32 [n]; zero: int64 [n]; axis: what the n run along."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int


def quantization(c: Conversion, side: str) -> Quantization:
    """Quantization of operand `side` ("input0", "output0"); refused when it has none."""
    a = c.attributes
    scale = a.tensor(f"{side}.scale")
    if scale is None:
        c.refuse(f"the operand {side} is not quantized, others are")
    zero, axis = a.tensor(f"{side}.zero_point"), a.integer(f"{side}.quantized_dimension", 0)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ModelError(f"the scale of {side} is not positive", place=c.node.place)
    return Quantization(np.array(scale), np.array(zero), axis)


def of_tensor(c: Conversion, side: str) -> tuple[np.float32, int]:
    """Scale and zero point of an operand that has one of each."""
    parameters = quantization(c, side)
    if parameters.scale.size != 1:
        c.refuse(f"scales per channel are not supported on {side}")
    return Float(parameters.scale[0]), int(parameters.zero[0])


def centered(c: Conversion, index: int, zero: int) -> str:
    """Operand minus its zero point, as int32."""
    value = c.required(index)
    array = c.builder.constants.get(value)
    if array is not None:
        return c.constant(array.astype(np.int32) - np.int32(zero))
    wide = c.add("Cast", [value], to="int32")
    return c.add("Sub", [wide, c.constant(zero, np.int32)]) if zero else wide


def activation_range(c: Conversion, name: str, scale: np.float32, zero: int) -> dict[str, int]:
    """Attributes `low`, `high` for a fused activation on values quantized like this."""
    bounds: dict[str, tuple[float, float | None]] = {"RELU": (0.0, None), **ACTIVATIONS}
    if name == "NONE":
        return {}
    low, high = bounds[name]
    limits = {"low": zero + rounded(Float(low) / scale)}
    if high is not None:
        limits["high"] = zero + rounded(Float(high) / scale)
    return limits


def rounded(value: float | np.floating) -> int:
    """The nearest integer, halves away from zero."""
    return int(np.trunc(np.float64(value) + np.copysign(0.5, value)))


def factors(c: Conversion, values: np.ndarray | float) -> list[str]:
    """Constants: multipliers and shifts of real factors, scalars for a single one."""
    many = np.atleast_1d(np.asarray(values, np.float64))
    multipliers_and_shifts = np.array([quantized_factor(float(v)) for v in many], np.int32).reshape(
        -1, 2
    )
    return [
        c.constant(column if many.size > 1 else column[0], np.int32)
        for column in multipliers_and_shifts.T
    ]
