"""Number formats: names of dtypes, their NumPy equivalents, unit roundoff, and distance in ulps.

Everything in Verax that speaks of "float32" or "int8" speaks of the names listed here. Tensor
dtypes are plain strings; `numpy_dtype` gives the NumPy type. TensorFloat-32 is a format that
values are rounded to, but no dtype: nothing is stored in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

FLOATS: tuple[str, ...] = ("float16", "bfloat16", "float32", "float64")
SIGNED: tuple[str, ...] = ("int8", "int16", "int32", "int64")
UNSIGNED: tuple[str, ...] = ("uint8", "uint16", "uint32", "uint64")
INTEGERS: tuple[str, ...] = SIGNED + UNSIGNED
NARROW_FLOATS: tuple[str, ...] = (
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float4_e2m1fn"),
)
NARROW_INTEGERS: tuple[str, ...] = ("int4", "uint4", "int2", "uint2")
NARROW: tuple[str, ...] = NARROW_FLOATS + NARROW_INTEGERS
"""Types that tensors are stored in and converted from and to, but in which nothing is computed: a
byte an element, in which the number takes the low bits (`ml_dtypes`)."""
DTYPES: tuple[str, ...] = (*FLOATS, *INTEGERS, "bool", *NARROW)


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format with subnormals.

    precision: significant bits including the hidden one.
    min_exponent, max_exponent: exponents e of the smallest and largest normal binade, in the
    convention 1.m * 2**e.
    reserved: codes at the end of the largest binade that stand for no finite number.
    """

    name: str
    precision: int
    min_exponent: int
    max_exponent: int
    reserved: int = 0

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of one rounding to nearest: 2**-precision."""
        return 2.0**-self.precision

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.min_exponent

    @property
    def smallest_subnormal(self) -> float:
        """Spacing of the numbers around zero."""
        return 2.0 ** (self.min_exponent - self.precision + 1)

    @property
    def largest(self) -> float:
        """Largest finite number."""
        return (2.0 - (1 + self.reserved) * 2.0 ** (1 - self.precision)) * 2.0**self.max_exponent


FLOAT16 = FloatFormat("float16", 11, -14, 15)
BFLOAT16 = FloatFormat("bfloat16", 8, -126, 127)
FLOAT32 = FloatFormat("float32", 24, -126, 127)
FLOAT64 = FloatFormat("float64", 53, -1022, 1023)
TF32 = FloatFormat("tf32", 11, -126, 127)
_NARROW_FORMATS = (
    FloatFormat("float8_e4m3fn", 4, -6, 8, reserved=1),
    FloatFormat("float8_e4m3fnuz", 4, -7, 7),
    FloatFormat("float8_e5m2", 3, -14, 15),
    FloatFormat("float8_e5m2fnuz", 3, -15, 15),
    FloatFormat("float8_e8m0fnu", 1, -127, 127),  # powers of two: neither zero nor subnormals
    FloatFormat("float4_e2m1fn", 2, 0, 2),
)
FORMATS: dict[str, FloatFormat] = {
    f.name: f for f in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64, TF32, *_NARROW_FORMATS)
}


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called `name`; KeyError when Verax knows no such dtype."""
    if name not in DTYPES:
        raise KeyError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def dtype_name(dtype: np.dtype[Any] | type) -> str:
    """The name of a NumPy dtype; KeyError when Verax has no such dtype."""
    name = np.dtype(dtype).name
    if name not in DTYPES:
        raise KeyError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return name


def ulp(x: Any, fmt: FloatFormat) -> np.ndarray:
    """Distance between neighboring numbers of `fmt` in the binade of |x|; float64, any shape.

    Zero and subnormals give the smallest subnormal, infinities and NaN give NaN.
    """
    a = np.abs(np.asarray(x, np.float64))
    finite = np.isfinite(a)
    _, exponent = np.frexp(np.where(finite, a, 1.0))
    exponent = np.where(a == 0, fmt.min_exponent, np.maximum(exponent - 1, fmt.min_exponent))
    spacing = np.ldexp(1.0, exponent - fmt.precision + 1)
    return np.where(finite, spacing, np.nan)


def round_to(x: Any, fmt: FloatFormat) -> np.ndarray:
    """`x` (float64) rounded to nearest, ties to even, into `fmt`; the result is still float64.

    Overflow gives infinities, underflow gives subnormals and signed zeros, NaN stays NaN.
    """
    a = np.asarray(x, np.float64)
    if fmt.precision == FLOAT64.precision:
        return a.copy()
    size = np.abs(a)
    if bool(((size == 0) | ((size >= fmt.smallest_normal) & (size < fmt.largest))).all()):
        return _round_bits(a, FLOAT64.precision - fmt.precision)
    with np.errstate(invalid="ignore", over="ignore"):
        spacing = np.where(np.isfinite(a), ulp(a, fmt), 1.0)
        # Both scalings are by powers of two; rint does the single rounding.
        rounded = np.where(np.isfinite(a), np.rint(a / spacing) * spacing, a)
        return np.where(np.abs(rounded) > fmt.largest, np.copysign(np.inf, rounded), rounded)


def _round_bits(x: np.ndarray, lost: int) -> np.ndarray:
    """Float64 x without its last `lost` bits, rounded to nearest even; no limits of exponents."""
    bits = np.array(x).view(np.int64)
    odd = (bits >> lost) & 1
    bits += odd + ((1 << (lost - 1)) - 1)
    bits &= ~((1 << lost) - 1)
    return bits.view(np.float64)


def ulp_error(value: Any, exact: Any, fmt: FloatFormat = FLOAT32) -> np.ndarray:
    """|value - exact| in units of the last place of `exact` in `fmt`; float64, broadcasting.

    `exact` is the true result in float64. Equal infinities and two NaNs count 0, a difference
    in kind (NaN against number, infinity against a number that does not overflow) counts inf.
    """
    v, e = np.asarray(value, np.float64), np.asarray(exact, np.float64)
    r = round_to(e, fmt)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(v - e) / ulp(np.where(np.isfinite(r), e, fmt.largest), fmt)
    same = (v == r) | (np.isnan(v) & np.isnan(e))
    odd = np.isfinite(v) != np.isfinite(r)
    # A value one step from overflow is compared with the largest finite number.
    return np.where(same & ~np.isfinite(r), 0.0, np.where(odd | np.isnan(error), np.inf, error))
