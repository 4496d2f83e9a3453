"""Floats of 8 and 4 bits and integers of 4 and 2: how their codes read and how numbers are rounded
to them, over `Arith`.

`convert` of every machine is made of this, so their bits are the same. A number is first brought to
float32 with an odd last bit where it is inexact (`odd_float32`); the rounding to a narrow format is
then the only one, to nearest even. What is beyond the largest number becomes infinite where the
format has infinities, else NaN, and the largest number in float4_e2m1fn, which has neither; a Cast
that saturates clips before it (`clipped`). float8_e8m0fnu holds powers of two alone: see `power`.
Numbers become integers of 4 and 2 bits by their low bits, floats truncated toward zero before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.numerics.arith import Arith
from verax.numerics.formats import (
    FLOATS,
    FORMATS,
    INTEGERS,
    NARROW,
    NARROW_FLOATS,
    NARROW_INTEGERS,
    numpy_dtype,
)

SCALE = "float8_e8m0fnu"
ROUND_MODES = ("up", "down", "nearest")
"""Of a number between two powers of two: away from zero, toward it, or the nearer one, the larger
of two that are as near."""


@dataclass(frozen=True)
class Codes:
    """How a float format's codes lie. bits: of a code. nan: that of a NaN. beyond: that of what is
    too large. zero_signed: whether there is a negative zero."""

    bits: int
    nan: int
    beyond: int
    zero_signed: bool = True


_CODES = {
    "float8_e4m3fn": Codes(8, 0x7F, 0x7F),
    "float8_e4m3fnuz": Codes(8, 0x80, 0x80, zero_signed=False),
    "float8_e5m2": Codes(8, 0x7E, 0x7C),
    "float8_e5m2fnuz": Codes(8, 0x80, 0x80, zero_signed=False),
    "float4_e2m1fn": Codes(4, 0x8, 0x7),  # a NaN becomes -0
}


def widened(m: Arith[Any], x: Any) -> Any:
    """The numbers of a narrow type in float32, int8 or uint8, all of which hold them."""
    dtype = m.dtype(x)
    byte = m.bitcast(x, "uint8")
    if dtype in NARROW_INTEGERS:
        unused = 8 - int(dtype.lstrip("uint"))
        if dtype.startswith("u"):
            return m.and_(byte, m.const((1 << (8 - unused)) - 1, "uint8"))
        count = m.const(unused, "int8")
        return m.shift_right(m.shift_left(m.bitcast(byte, "int8"), count), count)
    word = m.convert(byte, "uint32")
    if dtype == SCALE:
        return _read_power(m, word)
    codes, form = _CODES[dtype], FORMATS[dtype]
    size = m.and_(word, m.const((1 << (codes.bits - 1)) - 1, "uint32"))
    sign = m.and_(
        m.shift_left(word, m.const(32 - codes.bits, "uint32")), m.const(1 << 31, "uint32")
    )
    # The exponent's field as one of float32's, which makes a number that is a power of two off.
    plain = m.bitcast(m.shift_left(size, m.const(24 - form.precision, "uint32")), "float32")
    plain = m.mul(plain, m.const(2.0 ** (126 + form.min_exponent), "float32"))
    value = m.bitcast(m.or_(m.bitcast(plain, "uint32"), sign), "float32")
    nan = m.const(math.nan, "float32")
    if not codes.zero_signed:
        return m.select(m.eq(word, m.const(codes.nan, "uint32")), nan, value)
    if dtype == "float4_e2m1fn":
        return value
    if codes.beyond != codes.nan:
        infinite = m.bitcast(m.or_(m.const(0x7F800000, "uint32"), sign), "float32")
        value = m.select(m.eq(size, m.const(codes.beyond, "uint32")), infinite, value)
        return m.select(m.gt(size, m.const(codes.beyond, "uint32")), nan, value)
    return m.select(m.eq(size, m.const(codes.nan, "uint32")), nan, value)


def narrowed(m: Arith[Any], x: Any, dtype: str) -> Any:
    """Numbers of any type that is computed in, or bool, as a narrow type."""
    if dtype in NARROW_INTEGERS:
        integer = m.convert(x, "int32") if m.dtype(x) in FLOATS else x
        low = m.const((1 << int(dtype.lstrip("uint"))) - 1, "uint8")
        return m.bitcast(m.and_(m.convert(integer, "uint8"), low), dtype)
    if dtype == SCALE:
        return power(m, x, "nearest", saturate=False)
    return _encoded(m, odd_float32(m, x), dtype)


def clipped(m: Arith[Any], x: Any, dtype: str) -> Any:
    """x clipped to the finite range of the narrow float format `dtype`; NaN stays."""
    limit, kind = FORMATS[dtype].largest, m.dtype(x)
    if kind == "bool":
        return x
    if kind in NARROW:
        x = widened(m, x)
        kind = m.dtype(x)
    if kind in FLOATS:
        return m.max(m.min(x, m.const(limit, kind)), m.const(-limit, kind))
    ends = np.iinfo(numpy_dtype(kind))
    if limit < ends.max:
        x = m.min(x, m.const(int(limit), kind))
    return m.max(x, m.const(-int(limit), kind)) if -limit > ends.min else x


def power(m: Arith[Any], x: Any, mode: str, saturate: bool) -> Any:
    """x as float8_e8m0fnu, rounded to a power of two by one of `ROUND_MODES`.

    saturate: what is too large or too small, zero included, becomes the largest or the least number
    instead of NaN. Numbers below zero become NaN.
    """
    if m.dtype(x) in NARROW:
        x = widened(m, x)
    x = odd_float32(m, x)

    def word(value: int) -> Any:
        return m.const(value, "uint32")

    bits = m.bitcast(m.abs(x), "uint32")
    exponent = m.shift_right(bits, word(23))
    fraction = m.and_(bits, word(0x7FFFFF))
    # Below float32's normal numbers lies one power of two more, 2^-127.
    last, half = word(0x400000), word(0x200000)
    small = m.eq(exponent, word(0))
    tiny = m.lt(bits, last)
    remainder = m.select(small, m.sub(fraction, last), fraction)
    if mode != "down":
        threshold = word(1) if mode == "up" else m.select(small, half, last)
        exponent = m.add(exponent, m.convert(m.ge(remainder, threshold), "uint32"))
    code = m.select(tiny, word(0 if saturate else 255), exponent)
    beyond = m.ge(exponent, word(255))
    code = m.select(m.and_(beyond, m.not_(tiny)), word(254 if saturate else 255), code)
    wrong = m.or_(m.is_nan(x), m.lt(x, m.const(0.0, "float32")))
    code = m.select(wrong, word(255), code)
    return m.bitcast(m.convert(code, "uint8"), SCALE)


def odd_float32(m: Arith[Any], x: Any) -> Any:
    """x in float32 with an odd last bit if inexact, so that a further rounding is the only one."""
    dtype = m.dtype(x)
    if dtype == "float64":
        return _odd_of_float64(m, x)
    if dtype in FLOATS or dtype == "bool" or dtype.endswith(("int8", "int16")):
        return m.convert(x, "float32")
    if not dtype.endswith("int64"):
        return _odd_of_float64(m, m.convert(x, "float64"))
    # Beyond 2**53 the low bits become one sticky half of what is cut off.
    exact = m.lt(x, m.const(2**53, dtype))
    if dtype == "int64":
        exact = m.and_(exact, m.gt(x, m.const(-(2**53), dtype)))
    high = m.convert(m.shift_right(x, m.const(12, dtype)), "float64")
    high = m.mul(high, m.const(4096.0, "float64"))
    low = m.and_(x, m.const(0xFFF, dtype))
    sticky = m.select(
        m.ne(low, m.const(0, dtype)), m.const(2048.0, "float64"), m.const(0.0, "float64")
    )
    wide = m.select(exact, m.convert(x, "float64"), m.add(high, sticky))
    return _odd_of_float64(m, wide)


def _odd_of_float64(m: Arith[Any], x: Any) -> Any:
    near = m.convert(x, "float32")
    bits = m.bitcast(near, "int32")
    zero = m.const(0.0, "float64")
    error = m.sub(x, m.convert(near, "float64"))
    even = m.eq(m.and_(bits, m.const(1, "int32")), m.const(0, "int32"))
    finite = m.lt(m.abs(near), m.const(math.inf, "float32"))
    inexact = m.or_(m.lt(error, zero), m.gt(error, zero))
    outward = m.eq(m.gt(error, zero), m.gt(x, zero))
    step = m.select(outward, m.const(1, "int32"), m.const(-1, "int32"))
    fixed = m.select(m.and_(m.and_(finite, inexact), even), m.add(bits, step), bits)
    return m.bitcast(fixed, "float32")


def _encoded(m: Arith[Any], x: Any, dtype: str) -> Any:
    """A float32 rounded to nearest even into a float format of 8 or 4 bits with a sign."""
    codes, form = _CODES[dtype], FORMATS[dtype]

    def word(value: int) -> Any:
        return m.const(value, "uint32")

    size = m.abs(x)
    bits = m.bitcast(size, "uint32")
    lost = 24 - form.precision
    odd = m.and_(m.shift_right(bits, word(lost)), word(1))
    rounded = m.shift_right(m.add(bits, m.add(odd, word((1 << (lost - 1)) - 1))), word(lost))
    normal = m.sub(rounded, word((126 + form.min_exponent) << (form.precision - 1)))
    # The sum with 2^23 spacings of the format has that spacing: its rounding is the one.
    magic = form.smallest_subnormal * 2.0**23
    small = m.bitcast(m.add(size, m.const(magic, "float32")), "uint32")
    small = m.sub(small, word(int(np.float32(magic).view(np.uint32))))
    below = m.lt(size, m.const(form.smallest_normal, "float32"))
    code = m.select(below, small, normal)
    top = _code_of_largest(dtype)
    sign = m.shift_right(m.bitcast(x, "uint32"), word(31))
    sign = m.shift_left(sign, word(codes.bits - 1))
    beyond = m.and_(m.gt(code, word(top)), m.not_(below))
    if codes.beyond == codes.nan:
        if not codes.zero_signed:
            sign = m.select(m.eq(code, word(0)), word(0), sign)
        code = m.select(m.or_(beyond, m.is_nan(x)), word(codes.nan), m.or_(code, sign))
    else:
        code = m.or_(m.select(beyond, word(codes.beyond), code), sign)
        code = m.select(m.is_nan(x), word(codes.nan), code)
    return m.bitcast(m.convert(code, "uint8"), dtype)


def _code_of_largest(dtype: str) -> int:
    form = FORMATS[dtype]
    binades = form.max_exponent - form.min_exponent + 2
    return (binades << (form.precision - 1)) - 1 - form.reserved


assert set(_CODES) | {SCALE} == set(NARROW_FLOATS) and not set(NARROW) & set(INTEGERS)


def _read_power(m: Arith[Any], word: Any) -> Any:
    bits = m.shift_left(word, m.const(23, "uint32"))
    smallest, nan = m.const(0x400000, "uint32"), m.const(math.nan, "float32")
    value = m.bitcast(m.select(m.eq(word, m.const(0, "uint32")), smallest, bits), "float32")
    return m.select(m.eq(word, m.const(255, "uint32")), nan, value)
