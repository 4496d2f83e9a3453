"""How numbers enter and leave a matrix unit: conversions of factors, and the write-back of sums.

A conversion takes float32 factors to the format that the unit multiplies. Libraries differ in who
converts and how, and the unit itself drops the low bits of a float32 factor that nobody converted.
A write-back takes the exact sum of a step to the accumulator's format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from verax.numerics.formats import FLOAT16, FLOAT32, FORMATS, FloatFormat

CUT, EVEN, AWAY = "cut", "nearest even", "nearest, ties away"
_DROPPED = FLOAT32.precision - FORMATS["tf32"].precision  # low bits that TF32 does not have
_TF32_MASK = np.uint32(0xFFFFFFFF << _DROPPED & 0xFFFFFFFF)
_FLOAT64_FRACTION = 52


@dataclass(frozen=True)
class FactorConversion:
    """How float32 factors become factors of a unit: the format and the rounding (cut: to zero)."""

    name: str
    format: FloatFormat | None
    """None: the factors are taken as they are."""
    rounding: str = EVEN

    @property
    def relative_error(self) -> float:
        """What the conversion changes a normal factor by at most, as a part of it."""
        if self.format is None:
            return 0.0
        return self.format.unit_roundoff * (2 if self.rounding == CUT else 1)

    def __call__(self, x: Any) -> np.ndarray:
        """Factors of any type, any shape, converted; float32."""
        x = np.asarray(x).astype(np.float32)
        if self.format is None:
            return x
        if self.format.name == "tf32":
            return _to_tf32(x, self.rounding)
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(_STORED[self.format.name]).astype(np.float32)


_STORED: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
AS_IS = FactorConversion("none", None)
TF32_CUT = FactorConversion("TF32, cut", FORMATS["tf32"], CUT)
TF32_EVEN = FactorConversion("TF32, nearest even", FORMATS["tf32"])
TF32_AWAY = FactorConversion("TF32, nearest, ties away", FORMATS["tf32"], AWAY)
BF16_EVEN = FactorConversion("bf16, nearest even", FORMATS["bfloat16"])
FP16_EVEN = FactorConversion("fp16, nearest even", FORMATS["float16"])
CONVERSIONS = {c.name: c for c in (AS_IS, TF32_CUT, TF32_EVEN, TF32_AWAY, BF16_EVEN, FP16_EVEN)}


def _to_tf32(x: np.ndarray, rounding: str) -> np.ndarray:
    """The 13 low bits of float32 dropped or rounded away; infinities and NaN keep their kind."""
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    if rounding == CUT:
        return (bits & _TF32_MASK).view(np.float32)
    half = np.uint32(1 << (_DROPPED - 1))
    odd = (bits >> np.uint32(_DROPPED)) & np.uint32(1)
    more = half if rounding == AWAY else half - np.uint32(1) + odd
    return np.where(np.isfinite(x), ((bits + more) & _TF32_MASK).view(np.float32), x)


@dataclass(frozen=True)
class WriteBack:
    """How a unit rounds the sum of each step: the format that holds it, how many bits stay after
    the leading one, and whether the rest is cut (towards zero) or rounded to nearest even."""

    name: str
    format: FloatFormat
    fraction_bits: int
    is_cut: bool

    @property
    def relative_error(self) -> float:
        """What it changes a normal sum by at most, as a part of it."""
        return 2.0**-self.fraction_bits * (1.0 if self.is_cut else 0.5)

    @property
    def smallest_error(self) -> float:
        """What it changes any sum by at most besides: the spacing (or half) of subnormals."""
        return self.format.smallest_subnormal * (1.0 if self.is_cut else 0.5)

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Float64 sums as the accumulator holds them, in float64. A zero is +0; what is beyond the
        format is infinite, also where the rest is cut."""
        if not self.is_cut:
            with np.errstate(over="ignore"):
                narrow: Any = np.float16 if self.format is FLOAT16 else np.float32
                return y.astype(narrow).astype(np.float64) + 0.0
        dropped = _FLOAT64_FRACTION - self.fraction_bits
        cut = (y.view(np.int64) & np.int64(-1 << dropped)).view(np.float64)
        cut += 0.0
        size = np.abs(y)
        low = size < self.format.smallest_normal
        if low.any():
            low &= size > 0
            step = self.format.smallest_subnormal
            # Of two cuts at different places the coarser one decides.
            cut[low] = np.trunc(cut[low] / step) * step + 0.0
        if (high := size >= 2.0 ** (self.format.max_exponent + 1)).any():
            cut[high] = np.copysign(np.inf, y[high])
        return cut


FLOAT32_CUT = WriteBack("float32, cut", FLOAT32, 23, is_cut=True)
FLOAT32_EVEN = WriteBack("float32, nearest even", FLOAT32, 23, is_cut=False)
FLOAT16_EVEN = WriteBack("fp16, nearest even", FLOAT16, 10, is_cut=False)
BITS_13_CUT = WriteBack("13 bits after the leading one, cut", FLOAT32, 13, is_cut=True)
