"""Interpolation along one axis as a table: which source elements an output shows, how weighted.

Coordinates follow the formulas of ONNX's Resize over exact rational numbers: `scale` is the given
float32 number, or out_size / in_size as a fraction when sizes are given. Rounding to an index
(nearest) and splitting into index and fraction (linear, cubic) therefore never depend on how a
coordinate was rounded. Only the finished weights are rounded, to the type they are used in; the
reference and compiled code use the same tables.

Not a family: no operator is declared here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Any

import numpy as np

from verax.ir.operator import Array

HALF = Fraction(1, 2)
TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class AxisTable:
    """How one axis is resampled.

    positions: int64 [out, taps], source elements in [0, in_size).
    weights: [out, taps] in the type asked for; None for nearest, which copies (one tap).
    outside: bool [out], outputs that show the extrapolation value instead.
    coordinates: float64 [out], the exact source coordinate rounded once.
    drift: float64 [out], what the rounding of a coordinate computed in float32 is relative to:
        |coordinate| + 1, or 0 where every usual formula gives it exactly (powers of two).
    """

    positions: Array
    weights: Array | None
    outside: Array
    coordinates: Array
    drift: Array

    @property
    def is_identity(self) -> bool:
        """Whether output i shows element i (the axis may still be cut at its end)."""
        return not self.outside.any() and np.array_equal(
            self.coordinates, np.arange(len(self.positions))
        )


@dataclass(frozen=True)
class Interpolation:
    """The attributes of Resize that shape a table; defaults and meaning as in ONNX."""

    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def source_coordinates(
    transform: str,
    in_size: int,
    out_size: int,
    scale: Any,
    length: Any,
    roi: tuple[Any, Any] = (0, 1),
    scalar: type = Fraction,
) -> Array:
    """Source coordinate of each output, [out_size], in the arithmetic of `scalar`.

    scalar: Fraction (exact, an object array) or np.float32 (as some runtimes compute).
    length: in_size * scale, not rounded to a size; align_corners and tf_crop_and_resize measure
    with it, as ONNX's own test cases do (some runtimes take out_size instead; the two differ only
    when scales are given and their product with the size is no integer).
    """
    x: Array = np.arange(out_size).astype(object if scalar is Fraction else scalar)
    half, last = scalar(0.5), scalar(in_size - 1)
    if transform == "asymmetric":
        return x / scale
    if transform == "align_corners":
        return x * last / (length - 1) if length != 1 else x * scalar(0)
    if transform == "tf_crop_and_resize":
        start, end = roi
        if length == 1:
            return x * scalar(0) + half * (start + end) * last
        return start * last + x * (end - start) * last / (length - 1)
    if transform == "pytorch_half_pixel" and out_size <= 1:
        return x * scalar(0)
    offset = scalar(0)
    if transform == "half_pixel_symmetric":
        offset = half * scalar(in_size) * (1 - scalar(out_size) / length)
    return offset + (x + half) / scale - half


def nearest_index(x: Any, nearest_mode: str) -> int:
    """The index that `nearest_mode` takes for a coordinate, on both sides of the axis unclamped."""
    if nearest_mode == "floor":
        return floor(x)
    if nearest_mode == "ceil":
        return ceil(x)
    if nearest_mode == "round_prefer_floor":
        return ceil(x - HALF)
    return floor(x + HALF)


def float32_positions(
    interpolation: Interpolation,
    in_size: int,
    out_size: int,
    scale: Fraction,
    roi: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1)),
) -> Array:
    """int64 [out_size]: the element that "nearest" selects when coordinates are float32.

    Differs from the table only where the exact coordinate lies within a rounding of a tie.
    """
    f = np.float32
    scale32 = f(float(scale))
    limits = (f(float(roi[0])), f(float(roi[1])))
    transform = interpolation.coordinate_transformation_mode
    xs = source_coordinates(
        transform, in_size, out_size, scale32, f(in_size) * scale32, limits, scalar=f
    )
    indices = [nearest_index(Fraction(float(x)), interpolation.nearest_mode) for x in xs]
    return np.array(indices, np.int64).clip(0, in_size - 1)


def cubic_weight(distance: Fraction, a: Fraction) -> Fraction:
    """Keys' cubic convolution kernel."""
    d = abs(distance)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    if d < 2:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return Fraction(0)


def linear_weight(distance: Fraction, a: Fraction) -> Fraction:
    """The triangle; `a` is not used."""
    return max(Fraction(0), 1 - abs(distance))


@lru_cache(maxsize=256)
def axis_table(
    interpolation: Interpolation,
    in_size: int,
    out_size: int,
    scale: Fraction,
    roi: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1)),
    dtype: str = "float64",
) -> AxisTable:
    """The table of one axis. in_size >= 1; scale > 0.

    dtype: of the weights: "float64", "float32" (the float64 weights rounded) or "object" (exact
    fractions).
    """
    length = in_size * scale
    transform = interpolation.coordinate_transformation_mode
    xs = source_coordinates(transform, in_size, out_size, scale, length, roi)
    outside = np.zeros(out_size, bool)
    if transform == "tf_crop_and_resize":
        outside[:] = [not 0 <= x <= in_size - 1 for x in xs]
    coordinates = xs.astype(np.float64)
    drift = np.abs(coordinates) + 1.0
    if all(_is_binary(x.denominator) for x in xs) and (
        transform == "align_corners"
        or (_is_binary(scale.numerator) and _is_binary(scale.denominator))
    ):
        drift[:] = 0.0
    if interpolation.mode == "nearest":
        indices = [[nearest_index(x, interpolation.nearest_mode)] for x in xs]
        positions = np.array(indices, np.int64).reshape(out_size, 1).clip(0, in_size - 1)
        return AxisTable(positions, None, outside, coordinates, drift)
    kernel, radius = (linear_weight, 1) if interpolation.mode == "linear" else (cubic_weight, 2)
    a = Fraction(float(np.float32(interpolation.cubic_coeff_a)))
    # Antialiasing stretches the kernel over more source elements when sizes shrink.
    stretch = min(scale, Fraction(1)) if interpolation.antialias and out_size else Fraction(1)
    first = floor(-radius / stretch) + 1
    offsets = range(first, 2 - first)
    positions = np.empty((out_size, len(offsets)), np.int64)
    weights = np.empty((out_size, len(offsets)), object)
    for i, x in enumerate(xs):
        base = floor(x)
        positions[i] = [base + k for k in offsets]
        row = [kernel(stretch * (base + k - x), a) for k in offsets]
        if interpolation.exclude_outside:
            row = [w if 0 <= base + k < in_size else Fraction(0) for w, k in zip(row, offsets)]
        if interpolation.exclude_outside or interpolation.antialias:
            total = sum(row)
            row = [w / total for w in row] if total else row
        weights[i] = row
    positions = positions.clip(0, in_size - 1)
    return AxisTable(positions, _rounded(weights, dtype), outside, coordinates, drift)


def _is_binary(n: int) -> bool:
    """Whether n is a power of two that float32 divides by without trouble."""
    return 0 < n <= 2**10 and n & (n - 1) == 0


def _rounded(weights: Array, dtype: str) -> Array:
    """Exact weights in float64; from there, for float32, rounded again."""
    if dtype == "object":
        return weights
    return weights.astype(np.float64).astype(np.dtype(dtype))
