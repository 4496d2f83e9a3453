"""sin, cos, tan of any float64, and their inverses."""

from __future__ import annotations

import math
from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.float64.angle import quarter_turns
from verax.numerics.float64.constants import HALF_PI, PI, QUARTER_PI, TINY
from verax.numerics.float64.exponential import negative
from verax.numerics.float64.number import (
    Number,
    Pair,
    polynomial,
    quotient,
    root,
    square,
    sum_by_size,
    sum_of,
    where,
)

_SIN = (
    -0.16666666666666666, 0.008333333333333323, -0.00019841269841255148, 2.755731921423072e-06,
    -2.505210492199447e-08, 1.605836794996096e-10, -7.578763504810558e-13,
)  # fmt: skip
_COS = (
    0.0416666666666666, -0.001388888888887425, 2.4801587289551302e-05, -2.755731437030064e-07,
    2.0875725509699975e-09, -1.135975523380797e-11,
)  # fmt: skip
_ASIN = (
    0.1666666666666676, 0.07499999999970779, 0.04464285717471743, 0.030381942700209386,
    0.02237221524760799, 0.01735160676985203, 0.013980888260287358, 0.011398329738204076,
    0.010783633127892208, 0.0036933232210797314, 0.02173984391567825, -0.02104547399381758,
    0.032657894363725924,
)  # fmt: skip
_ATAN = (
    -0.33333333333333326, 0.1999999999999774, -0.14285714285395512, 0.11111111088593188,
    -0.09090908158210013, 0.07692283046384224, -0.06666230762279791, 0.058770591343428685,
    -0.05218634959862171, 0.04504454300936551, -0.03349488766846591, 0.015215356629385708,
)  # fmt: skip
_EIGHTH = math.tan(math.pi / 8)


def _sine(r: Number, low: Number) -> Pair:
    """Of r + low, |r| <= pi/4."""
    z = r * r
    return sum_by_size(r, r * z * polynomial(z, _SIN) + (low - low * z * 0.5))


def _cosine(r: Number, low: Number) -> Pair:
    """Of r + low, |r| <= pi/4."""
    z = r * r
    half, small = square(r)
    start, lost = sum_by_size(1.0, half * -0.5)
    tail = z * z * polynomial(z, _COS) - (small * 0.5 + r * low)
    return sum_by_size(start, tail + lost)


def _bit_as_sign(n: Number, bit: int) -> Number:
    return n << (63 - bit)


def _finite(x: Number, value: Number) -> Number:
    """`value`, NaN where x is infinite or NaN."""
    return where(abs(x) < math.inf, value, x.like(math.nan))


def _by_quadrant(n: Number, even: Number, odd: Number) -> Number:
    """`even` where n is, else `odd`; negated in the second half of the turn."""
    value = where(_bit_as_sign(n, 0) < 0, odd, even)
    return (value.bits() ^ (_bit_as_sign(n, 1) & -(1 << 63))).float()


def sin(m: Arith[Any], x: Any) -> Any:
    """Sine."""
    number = Number(m, x)
    size = abs(number)
    n, r, low = quarter_turns(m, size)
    value = _by_quadrant(n, _sine(r, low)[0], _cosine(r, low)[0])
    value = (value.bits() ^ (number.bits() & -(1 << 63))).float()
    return where(size < TINY, number, _finite(size, value)).v


def cos(m: Arith[Any], x: Any) -> Any:
    """Cosine."""
    size = abs(Number(m, x))
    n, r, low = quarter_turns(m, size)
    return _finite(size, _by_quadrant(n + 1, _sine(r, low)[0], _cosine(r, low)[0])).v


def tan(m: Arith[Any], x: Any) -> Any:
    """Tangent."""
    number = Number(m, x)
    size = abs(number)
    n, r, low = quarter_turns(m, size)
    odd = _bit_as_sign(n, 0) < 0
    (sine, s), (cosine, c) = _sine(r, low), _cosine(r, low)
    top = where(odd, -cosine, sine), where(odd, -c, s)
    value, _ = quotient(top, (where(odd, sine, cosine), where(odd, s, c)))
    value = (value.bits() ^ (number.bits() & -(1 << 63))).float()
    return where(size < TINY, number, _finite(size, value)).v


def atan(m: Arith[Any], x: Any) -> Any:
    """Arc tangent: pi/4 + arctan((a - 1) / (a + 1)) or pi/2 + arctan(-1 / a) for larger a = |x|."""
    number = Number(m, x)
    size = abs(number)
    middle, large = size > _EIGHTH, size > 1.0 / _EIGHTH
    a = where(size < 2.0**1000, size, 2.0**1000)
    less, lost = sum_of(a, a.like(-1.0))
    more, over = sum_of(a, a.like(1.0))
    between = Number(m, m.and_(middle.v, m.not_(large.v)))
    top = where(large, -1.0, where(middle, less, a)), where(between, lost, 0.0)
    bottom = where(large, a, where(middle, more, 1.0)), where(between, over, 0.0)
    t, low = quotient(top, bottom)
    base = tuple(
        where(large, half, where(middle, quarter, a.like(0.0)))
        for half, quarter in zip(HALF_PI, QUARTER_PI)
    )
    z = t * t
    high, left = sum_by_size(base[0], t)
    value = high + (left + (t * z * polynomial(z, _ATAN) + (low - low * z + base[1])))
    value = where(size < TINY, size, value)
    return where(number.equals(number), value.signed_like(number), number).v


def _arcsine_parts(m: Arith[Any], size: Number) -> tuple[Number, Pair, Number]:
    """(far, (s, rest), tail): up to 1/2 arcsin(size) = s + rest + tail, where `far` it is pi/2
    less twice that. NaN above 1."""
    far = size > 0.5
    z = where(far, size * -0.5 + 0.5, size * size)
    s, low = root((where(far, z, 0.25), z.like(0.0)))
    low = where(z.equals(0.0), 0.0, low)
    s = where(far, where(z.equals(0.0), 0.0, s), size)
    low = where(far, low, 0.0)
    return far, (s, low), s * z * polynomial(z, _ASIN)


def asin(m: Arith[Any], x: Any) -> Any:
    """Arc sine, [-pi/2, pi/2]; NaN outside [-1, 1]."""
    number = Number(m, x)
    size = abs(number)
    far, (s, low_part), tail = _arcsine_parts(m, size)
    high, low = sum_by_size(HALF_PI[0], s * -2.0)
    reflected = high + (low + (HALF_PI[1] - (low_part + tail) * 2.0))
    value = where(far, reflected, where(size < TINY, size, s + tail))
    return where(size <= 1.0, value, size.like(math.nan)).signed_like(number).v


def acos(m: Arith[Any], x: Any) -> Any:
    """Arc cosine, [0, pi]; NaN outside [-1, 1]."""
    number = Number(m, x)
    size = abs(number)
    far, (s, low_part), tail = _arcsine_parts(m, size)
    below = negative(number)
    # pi/2 - arcsin x; far, twice the arcsine of the root, or pi less that
    factor = where(far, where(below, -2.0, number.like(2.0)), where(below, 1.0, number.like(-1.0)))
    start, small = (
        where(far, where(below, pi_part, number.like(0.0)), half)
        for pi_part, half in zip(PI, HALF_PI)
    )
    high, low = sum_of(start, s * factor)
    value = high + (low + (small + (low_part + tail) * factor))
    return where(size <= 1.0, value, size.like(math.nan)).v
