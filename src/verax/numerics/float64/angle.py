"""Angles without their whole quarter turns: x = n pi/2 + r with |r| <= pi/4, r as a pair.

Up to NEAR, n times each of three parts of pi/2 is exact. Beyond, 192 bits of 2/pi are cut out of
1,280, those which times x matter modulo 4, and are multiplied by x's 53 bits in integers (M. H.
Payne and R. N. Hanek, Radian reduction for trigonometric functions, 1983). No float64 is nearer
than 2^-62 to a multiple of pi/2, so that 75 bits of r remain and more.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.float64.constants import HALF_PI, HALF_PI_PARTS, ROUND
from verax.numerics.float64.number import (
    Number,
    product_of_pairs,
    sum_by_size,
    sum_of,
    where,
)
from verax.numerics.functions_double import two_over_pi_digits

NEAR = 2.0**20
_WORDS = 20
_WORD_MASK = (1 << 64) - 1
_LIMB_MASK = (1 << 32) - 1
_TABLE = (0, *(two_over_pi_digits(64 * (_WORDS - 1)) >> 64 * (_WORDS - 2 - i) & _WORD_MASK
               for i in range(_WORDS - 1)))  # fmt: skip
"""0 and the bits of 2/pi: bit 64, counted from the front, weighs 1/2."""


def quarter_turns(m: Arith[Any], size: Number) -> tuple[Number, Number, Number]:
    """(n, high, low): size = n pi/2 + high + low modulo a turn, for finite sizes >= 0; the two low
    bits of the int64 n count."""
    near = _near(size)
    far = m.rarely((size > NEAR).v, _far, (size.v,), tuple(x.v for x in near))
    n, high, low = (Number(m, v) for v in far)
    return n, high, low


def _near(size: Number) -> tuple[Number, Number, Number]:
    t = size * (1.0 / HALF_PI[0]) + ROUND
    n = t - ROUND
    first, second, third, fourth = HALF_PI_PARTS
    r, more = sum_of(size - n * first, -(n * second))
    r, less = sum_of(r, -(n * third))
    high, low = sum_by_size(r, (more + less) - n * fourth)
    return t.bits(), high, low


def _far(m: Arith[Any], x: Any) -> tuple[Any, Any, Any]:
    """`quarter_turns` of any size above NEAR."""
    bits = Number(m, x).bits()
    significand = ((bits & ((1 << 52) - 1)) | (1 << 52)).bits("uint64")
    offset = (bits.bits("uint64") >> 52) - (1075 - 62)
    limbs = _product(significand, _window(offset))
    top = (limbs[5] << 32) | limbs[4]
    n = (top + (1 << 61)) >> 62
    signed = (top - (n << 62)).bits()
    # signed * 2^-62 and three more limbs, each exact in float64
    low_part = (signed & _LIMB_MASK).convert("float64") * 2.0**-62
    total, error = sum_of((signed >> 32).convert("float64") * 2.0**-30, low_part)
    for limb, weight in ((limbs[3], -94), (limbs[2], -126), (limbs[1], -158)):
        total, left = sum_of(total, limb.bits().convert("float64") * 2.0**weight)
        error = error + left
    turns = sum_by_size(total, error)
    half = total.like(HALF_PI[0]), total.like(HALF_PI[1])
    high, low = product_of_pairs(turns, half)
    return n.bits().v, high.v, low.v


def _window(offset: Number) -> list[Number]:
    """192 bits of the table from bit `offset` on, in three words, the first one first."""
    word, shift = offset >> 6, offset & 63
    words = [offset.like(w) for w in _TABLE]
    for step in (16, 8, 4, 2, 1):
        is_set = (word & step).differs(0)
        word_count = 3 + step  # of which the steps behind this one choose 4
        words = [
            where(is_set, words[i + step], words[i]) if i + step < len(words) else words[i]
            for i in range(min(word_count, len(words)))
        ]
    back = 63 - shift
    return [(a << shift) | ((b >> 1) >> back) for a, b in pairwise(words)]


def _product(significand: Number, window: list[Number]) -> list[Number]:
    """significand * window modulo 2^192, in six limbs of 32 bits, the lowest first."""
    factors = [limb for w in reversed(window) for limb in (w & _LIMB_MASK, w >> 32)]
    lower, upper = significand & _LIMB_MASK, significand >> 32
    limbs: list[Number] = []
    carry = significand.like(0)
    for factor in factors:
        total = lower * factor + carry
        limbs.append(total & _LIMB_MASK)
        carry = total >> 32
    carry = significand.like(0)
    for i, factor in enumerate(factors[:-1], 1):
        total = upper * factor + limbs[i] + carry
        limbs[i] = total & _LIMB_MASK
        carry = total >> 32
    return limbs
