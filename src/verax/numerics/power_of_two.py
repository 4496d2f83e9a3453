"""Powers of two that bring numbers to the size of one: multiplying by them rounds nothing.

An algorithm that adds numbers of several rows, or of several pixels, errs as much as the largest of
them does. Brought to one size before, and back afterwards, each errs as its own size says, and
zeros stay zeros.

Magnitudes are taken as the bits of |x|, read as integers, which are ordered as the numbers are, and
NaN above infinity: their maximum takes one instruction, and no number is lost in it.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from verax.numerics.arith import Arith

V = TypeVar("V")

MAGNITUDE_MASK = 0x7FFFFFFF
"""What is left of the bits of a float32 without its sign."""
EXPONENT = 0x7F800000
"""The bits of the exponent, which are those of infinity."""
SMALLEST, LARGEST = 0x00800000, 0x7E800000
"""The bits of 2^-126 and 2^126: these and their inverses are normal numbers. SMALLEST is also one
step of the exponent."""
NOT_FINITE = -1.0
"""What stands for the inverse where a magnitude is not finite."""


def magnitude(m: Arith[V], x: V) -> V:
    """The bits of |x| (float32), as int32."""
    return m.and_(m.bitcast(x, "int32"), m.const(MAGNITUDE_MASK, "int32"))


def inverse_scale(m: Arith[V], largest: V) -> V:
    """By what to multiply numbers of which the `largest` magnitude (int32) is given: a power of two
    that makes it at least 2 and below 4 (at least 1 if it is below 2^-125, less if it is
    subnormal), as 2^128 could not be brought below 2. 0 for zeros, and `NOT_FINITE` where one is
    not finite."""
    bits = lambda value: m.const(value, "int32")  # noqa: E731
    exponent = m.and_(largest, bits(EXPONENT))
    power = m.min(m.max(m.sub(exponent, bits(SMALLEST)), bits(SMALLEST)), bits(LARGEST))
    inverse = m.bitcast(m.sub(bits(SMALLEST + LARGEST), power), "float32")
    is_nonzero = m.gt(largest, bits(0))
    special = m.select(is_nonzero, m.const(NOT_FINITE, "float32"), m.const(0.0, "float32"))
    return m.select(m.and_(is_nonzero, m.lt(largest, bits(EXPONENT))), inverse, special)


def scale(m: Arith[V], inverse: V) -> V:
    """What undoes the multiplication: 0 for zeros, infinity where one was not finite."""
    zero = m.const(0.0, "float32")
    back = m.bitcast(
        m.sub(m.const(SMALLEST + LARGEST, "int32"), m.bitcast(inverse, "int32")), "float32"
    )
    special = m.select(m.eq(inverse, zero), zero, m.const(np.inf, "float32"))
    return m.select(m.gt(inverse, zero), back, special)


def scaled(m: Arith[V], x: V, inverse: V) -> V:
    """x multiplied by its `inverse_scale`; +0 where there is none."""
    zero = m.const(0.0, "float32")
    return m.select(m.gt(inverse, zero), m.mul(x, inverse), zero)
