"""Quantization per element in the arithmetic of kernels: the same integers as the meanings.

Operators of this room have parameters that belong to indices of an axis, which no broadcasting
aligns. They state the meaning of an element over its own parameters here, and how a parameter is
spread over a tensor. The bits are those of the float64 meaning rounded once: every step here is
exact, or is that one rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.operator import Operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.expr import Expr, Input, TracingArith
from verax.numerics.formats import FLOATS, NARROW_FLOATS
from verax.numerics.formats import NARROW as STORED
from verax.numerics.narrow import clipped, widened

MAGIC = 1.5 * 2.0**23
"""Added to a float32 below 2^22 in size, it leaves the nearest integer (ties to even) in the low
bits: the rounding is that of the sum."""
MAGIC_BITS = int(np.float32(MAGIC).view(np.int32))
NARROW = ("float16", "bfloat16", "float32")
"""Types whose numbers float32 holds."""
NORMAL = 2**30
"""The least multiplier of a factor that is not 0."""
SMALL = ("int8", "uint8", "int16", "uint16")
Constants = Sequence[np.ndarray | None]
"""Inputs that are known, by number."""


class Parametrized(Operator):
    """Base of operators whose element depends on one element of the first input and on parameters,
    the further inputs, which `spread` brings to a shape that broadcasts with it."""

    through_float32: ClassVar[bool] = False

    def per_element(self, m: Arith[Any], to: str, constants: Constants, *xs: Any) -> Any:
        """The element over `m`; omitted inputs are None. to: element type of the result.

        TypeError for element types that are left to the reference.
        """
        raise NotImplementedError

    def spread(self, parameter: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """A parameter, shaped so that it broadcasts with a tensor of `shape`."""
        raise NotImplementedError

    def aligned(self, parameter: TensorType, x: TensorType) -> bool:
        """Whether a parameter broadcasts with the first input as it is, without `spread`."""
        return parameter.rank == 0

    def expression(
        self, dtypes: Sequence[str | None], to: str, constants: Constants
    ) -> Expr | None:
        """The meaning over Input(i); None where these types have none."""
        inputs = [None if d is None else Input(i, d) for i, d in enumerate(dtypes)]
        try:
            return self.per_element(TracingArith(), to, constants, *inputs)
        except TypeError:
            return None


def quantized(
    m: Arith[Any], x: Any, scale: Any, zero: Any, to: str, precision: str, tie_rule: str
) -> Any:
    """saturate(round(x / scale) + zero), the quotient rounded to `precision`; NaN gives zero.

    scale: None for 1.
    """
    min_value, max_value = DType(to).ends
    quotient = x if scale is None else _quotient(m, x, scale, precision)
    work = m.dtype(quotient)
    offset = m.const(0, "int32") if zero is None else m.convert(zero, "int32")
    low, high = (
        m.convert(m.sub(m.const(int(end), "int32"), offset), work) for end in (min_value, max_value)
    )
    quotient = m.select(m.eq(quotient, quotient), quotient, m.const(0.0, work))
    quotient = m.select(m.gt(quotient, low), quotient, low)
    quotient = m.select(m.lt(quotient, high), quotient, high)
    rounded = _to_even(m, quotient) if tie_rule == "even" else halves_away(m, quotient)
    return m.convert(m.add(rounded, offset), to)


def quantized_to_float(
    m: Arith[Any], x: Any, scale: Any, zero: Any, to: str, precision: str, saturate: bool
) -> Any:
    """x / scale + zero as a narrow float, quotient and sum rounded to `precision` first.

    zero: None for 0. saturate: as of Cast.
    """
    quotient = _quotient(m, x, scale, precision)
    if zero is not None:
        wide, offset = m.convert(quotient, "float64"), m.convert(zero, "float64")
        shifted = m.convert(m.convert(m.add(wide, offset), precision), m.dtype(quotient))
        # -0 stays what it is.
        quotient = m.select(m.eq(offset, m.like(0.0, offset)), quotient, shifted)
    return m.convert(clipped(m, quotient, to) if saturate else quotient, to)


def _computable(m: Arith[Any], x: Any) -> Any:
    """`x` converted from a stored narrow type to one that is computed in."""
    return widened(m, x) if x is not None and m.dtype(x) in STORED else x


def _quotient(m: Arith[Any], x: Any, scale: Any, precision: str) -> Any:
    """x / scale rounded once to `precision`, as float32 or float64."""
    scale = _computable(m, scale)
    if precision == "float32" and m.dtype(x) in NARROW and m.dtype(scale) in NARROW:
        return m.div(m.convert(x, "float32"), m.convert(scale, "float32"))
    quotient = m.div(m.convert(x, "float64"), m.convert(scale, "float64"))
    if precision == "float64":
        return quotient
    return m.convert(m.convert(quotient, precision), "float32")


def _to_even(m: Arith[Any], x: Any) -> Any:
    """The nearest int32 of a number below 2^22 in size."""
    if m.dtype(x) != "float32":
        return m.convert(m.rint(x), "int32")
    bits = m.bitcast(m.add(x, m.const(MAGIC, "float32")), "int32")
    return m.sub(bits, m.const(MAGIC_BITS, "int32"))


def halves_away(m: Arith[Any], x: Any) -> Any:
    """The nearest int32 of a number below 2^22 in size, halves away from zero."""
    size = m.abs(x)
    below = m.floor(size)
    up = m.ge(m.sub(size, below), m.like(0.5, x))
    rounded = _to_even(m, m.select(up, m.add(below, m.like(1.0, x)), below))
    return m.select(m.lt(x, m.like(0.0, x)), m.neg(rounded), rounded)


def dequantized(m: Arith[Any], x: Any, scale: Any, zero: Any, to: str) -> Any:
    """(x - zero) scale, rounded once to `to`."""
    scale = _computable(m, scale)
    if m.dtype(x) in NARROW_FLOATS:
        return _dequantized_float(m, widened(m, x), scale, _computable(m, zero), to)
    x, zero = _computable(m, x), _computable(m, zero)
    if m.dtype(x) in SMALL and m.dtype(scale) in NARROW and to in ("float32", "float64"):
        integer = m.convert(x, "int32")
        if zero is not None:
            integer = m.sub(integer, m.convert(zero, "int32"))
        work = to if m.dtype(scale) == "float32" or to == "float64" else "float32"
        return m.mul(m.convert(integer, work), m.convert(scale, work))
    if to == "bfloat16" or to not in FLOATS:
        raise TypeError(f"{to} is left to the reference")
    integer = m.convert(x, "int64")
    if zero is not None:
        integer = m.sub(integer, m.convert(zero, "int64"))
    product = m.mul(m.convert(integer, "float64"), m.convert(scale, "float64"))
    return m.convert(product, to)


def _dequantized_float(m: Arith[Any], x: Any, scale: Any, zero: Any, to: str) -> Any:
    if zero is None and to == "float32" and m.dtype(scale) in NARROW:
        return m.mul(x, m.convert(scale, "float32"))
    if to not in FLOATS:
        raise TypeError(f"{to} is left to the reference")
    wide = m.convert(x, "float64")
    if zero is not None:
        wide = m.sub(wide, m.convert(zero, "float64"))
    return m.convert(m.mul(wide, m.convert(scale, "float64")), to)


def requantized(
    m: Arith[Any],
    x: Any,
    factor: tuple[Any, Any],
    constants: tuple[np.ndarray | None, np.ndarray | None],
    rounding: str,
    zero: int,
    ends: tuple[int, int],
) -> Any:
    """zero + round(x factor) between `ends`, in int32 or int64. factor: multiplier and shift,
    int32; known: their values where they are constants."""
    multiplier, shift = constants
    down = multiplier is not None and multiplier.min(initial=0) >= 0
    down = down and shift is not None and shift.max(initial=0) <= 0
    if rounding == "twice" and down:
        assert multiplier is not None and shift is not None
        short = multiplier.min(initial=NORMAL) >= NORMAL and shift.max(initial=-2) <= -2
        rounded = (
            _scaled_short(m, x, *factor, negative=ends[0] < zero)
            if short
            else _scaled_down(m, x, *factor)
        )
    else:
        wide = [m.convert(v, "int64") for v in (x, *factor)]
        rounded = _WIDE[rounding](m, *wide)
    limits = [end - zero for end in ends]
    work = m.dtype(rounded)
    if work == "int32" and not all(-(2**31) <= end < 2**31 for end in limits):
        work = "int64"
        rounded = m.convert(rounded, work)
    low, high = (m.const(end, work) for end in limits)
    return m.add(m.min(m.max(rounded, low), high), m.const(zero, work))


def _scaled_down(m: Arith[Any], x: Any, multiplier: Any, shift: Any) -> Any:
    """`fixed_point.scaled` for factors below 1, in int32: the high product of a positive multiplier
    rounds halves up, as both of its cases come to the same."""
    product = m.mul(m.convert(x, "int64"), m.convert(multiplier, "int64"))
    product = m.add(product, m.const(2**30, "int64"))
    high = m.convert(m.shift_right(product, m.const(31, "int64")), "int32")
    exponent = m.neg(shift)
    one = m.const(1, "int32")
    mask = m.sub(m.shift_left(one, exponent), one)
    edge = m.sub(m.shift_right(mask, one), m.shift_right(high, m.const(31, "int32")))
    above = m.convert(m.gt(m.and_(high, mask), edge), "int32")
    return m.add(m.shift_right(high, exponent), above)


def _scaled_short(m: Arith[Any], x: Any, multiplier: Any, shift: Any, negative: bool) -> Any:
    """`fixed_point.scaled` for multipliers from 2^30 and shifts up to -2, by the upper half of one
    product. Where not `negative`, what is below 0 may be another number that is not above it.

    Of x >= 0 both roundings are of halves up: floor((floor((x m + 2^30) / 2^31) + 2^(e-1)) / 2^e),
    where e is -shift, is floor((x m + 2^30 + 2^(30+e)) / 2^(31+e)). Of others halves of the second
    go down, which is one less before it, so 2^31 less in the product.
    """
    quarter = m.const(2**30, "int32")
    if negative:
        quarter = m.or_(m.and_(x, m.const(-(2**31), "int32")), quarter)
    exponent = m.sub(m.const(-1, "int32"), shift)
    half = m.shift_right(m.shift_left(m.const(1, "int32"), exponent), m.const(1, "int32"))
    high = m.multiply_high(x, multiplier, quarter)
    return m.shift_right(m.add(high, half), exponent)


def _wrap32(m: Arith[Any], x: Any) -> Any:
    return m.convert(m.convert(x, "int32"), "int64")


def rounded_shift(m: Arith[Any], x: Any, exponent: Any) -> Any:
    """`fixed_point.rounded_shift` in int64."""
    one, zero = m.const(1, "int64"), m.const(0, "int64")
    mask = m.sub(m.shift_left(one, exponent), one)
    edge = m.add(m.shift_right(mask, one), m.convert(m.lt(x, zero), "int64"))
    above = m.convert(m.gt(m.and_(x, mask), edge), "int64")
    return m.add(m.shift_right(x, exponent), above)


def doubling_high_product(m: Arith[Any], a: Any, b: Any) -> Any:
    """(2 a b) >> 32 of int32 values in int64, saturating, ties rounded up."""
    product = m.add(m.mul(a, b), m.const(2**30, "int64"))
    high = m.shift_right(product, m.const(31, "int64"))
    lowest = m.const(-(2**31), "int64")
    overflows = m.and_(m.eq(a, lowest), m.eq(b, lowest))
    return m.select(overflows, m.const(2**31 - 1, "int64"), high)


def scaled(m: Arith[Any], x: Any, multiplier: Any, shift: Any) -> Any:
    """`fixed_point.scaled` in int64."""
    zero = m.const(0, "int64")
    widened = _wrap32(m, m.shift_left(x, m.max(shift, zero)))
    high = doubling_high_product(m, widened, multiplier)
    return rounded_shift(m, high, m.max(m.neg(shift), zero))


def _scaled_wide(m: Arith[Any], x: Any, multiplier: Any, shift: Any) -> Any:
    def int64(value: int) -> Any:
        return m.const(value, "int64")

    half = m.shift_right(m.add(multiplier, int64(2**15)), int64(16))
    short = m.select(m.lt(multiplier, int64(0x7FFF0000)), half, int64(0x7FFF))
    total = m.sub(int64(15), shift)
    middle = m.shift_left(int64(1), m.sub(total, int64(1)))
    return _wrap32(m, m.shift_right(m.add(m.mul(x, short), middle), total))


def _scaled_once(m: Arith[Any], x: Any, multiplier: Any, shift: Any) -> Any:
    def int64(value: int) -> Any:
        return m.const(value, "int64")

    size = m.abs(x)
    high, low = m.shift_right(size, int64(16)), m.and_(size, int64(0xFFFF))
    product = m.mul(high, multiplier)
    product = m.add(product, m.shift_right(m.mul(low, multiplier), int64(16)))
    total = m.sub(int64(15), shift)
    middle = m.shift_right(m.shift_left(int64(1), total), int64(1))
    rounded = m.shift_right(m.add(product, middle), total)
    return _wrap32(m, m.select(m.lt(x, int64(0)), m.neg(rounded), rounded))


_WIDE = {"twice": scaled, "short": _scaled_wide, "once": _scaled_once}
