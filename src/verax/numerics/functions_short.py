"""Short ways to compute functions of `functions_double`, for kernels that check what they give.

A short way gives float64 within SLACK of what the promised routine gives, relatively. Mostly that
tells which float32 the promised number is rounded to: the one that both ends of the interval round
to. Where the ends differ, the promised routine is computed (about one in two hundred vectors of 16
lanes). So no bit depends on which way was gone, and the coefficients may be any that keep the bound
(tests/numerics/test_short.py holds it); they are fitted by Remez exchange.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

from verax.numerics.arith import Arith
from verax.numerics.functions_double import log_parts

V = TypeVar("V")

SLACK = 2.0**-38
"""Of the promised float64 number; the short ways are within 0.6 of it."""
_DROPPED = 29
_MARGIN = 1 << 15  # SLACK of a float64, at most, in its last places
NEAR = 2.0**20
"""Up to here the reduction of sine, cosine and tangent keeps all its bits."""

_SIN = (-0.16666666666631624, 0.00833333332527717, -0.00019841263825848884,
        2.7555358356786125e-06, -2.4761695494553185e-08)  # fmt: skip
_COS = (-0.4999999999954513, 0.041666666562083836, -0.0013888881079033492,
        2.4799041099985886e-05, -2.718010481826477e-07)  # fmt: skip
_ATAN = (-0.3333333329645787, 0.19999994409367747, -0.14285426759638523, 0.11104058389246269,
         -0.0899731901959457, 0.0699328659236927, -0.037959269628550917)  # fmt: skip
_ASIN = (0.16666666626723012, 0.07500005042181108, 0.044640687673922715,
         0.03042684327741203, 0.021862995906628994, 0.02065910073295076,
         0.0019482941311782275, 0.0329419215228471)  # fmt: skip
_ATANH = (0.33333333340666577, 0.19999998744694628, 0.14285788136014776,
          0.11108988926704313, 0.09125193102412635, 0.07361282168820027,
          0.08599231952413294, -0.006638474989841861, 0.1636939725946126)  # fmt: skip
_ROUND = 1.5 * 2.0**52  # adding it rounds to an integer, kept in the low bits
_HALF_PI = math.pi / 2
_HALF_PI_REST = 6.123233995736766e-17  # of pi/2, beyond its float64
_EIGHTH = math.tan(math.pi / 8)


@dataclasses.dataclass(frozen=True)
class Short:
    """compute(m, x) on float64, for |x| <= limit (and, where `limit` is infinite, for any x)."""

    compute: Callable[..., Any]
    limit: float = math.inf


def _d(m: Arith[V], value: float) -> V:
    return m.const(value, "float64")


def _l(m: Arith[V], value: int) -> V:
    return m.const(value, "int64")


def _i(m: Arith[V], value: int) -> V:
    return m.const(value, "int32")


def _polynomial(m: Arith[V], x: V, coefficients: tuple[float, ...]) -> V:
    acc = _d(m, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        acc = m.fma(acc, x, _d(m, c))
    return acc


def _quarter_turns(m: Arith[V], x: V) -> tuple[V, V, V]:
    """(n, sin r, cos r): x = n pi/2 + r, |r| <= pi/4; n is an int64 with garbage in high bits."""
    t = m.fma(x, _d(m, 2 / math.pi), _d(m, _ROUND))
    n = m.sub(t, _d(m, _ROUND))
    r = m.fma(n, _d(m, -_HALF_PI), x)
    r = m.fma(n, _d(m, -_HALF_PI_REST), r)
    z, one = m.mul(r, r), _d(m, 1.0)
    sine = m.mul(r, m.fma(z, _polynomial(m, z, _SIN), one))
    return m.bitcast(t, "int64"), sine, m.fma(z, _polynomial(m, z, _COS), one)


def _bit_as_sign(m: Arith[V], n: V, bit: int) -> V:
    """That bit of n where the sign is."""
    return m.shift_left(n, _l(m, 63 - bit))


def _by_quadrant(m: Arith[V], n: V, even: V, odd: V) -> V:
    """`even` where n is, else `odd`; negated in the second half of the turn."""
    value = m.select(m.lt(_bit_as_sign(m, n, 0), _l(m, 0)), odd, even)
    sign = m.and_(_bit_as_sign(m, n, 1), _l(m, -(1 << 63)))
    return m.bitcast(m.xor(m.bitcast(value, "int64"), sign), "float64")


def _sin(m: Arith[V], x: V) -> V:
    n, sine, cosine = _quarter_turns(m, x)
    return _by_quadrant(m, n, sine, cosine)


def _cos(m: Arith[V], x: V) -> V:
    n, sine, cosine = _quarter_turns(m, x)
    return _by_quadrant(m, m.add(n, _l(m, 1)), sine, cosine)


def _tan(m: Arith[V], x: V) -> V:
    n, sine, cosine = _quarter_turns(m, x)
    odd = m.lt(_bit_as_sign(m, n, 0), _l(m, 0))
    return m.div(m.select(odd, m.neg(cosine), sine), m.select(odd, sine, cosine))


def _atan(m: Arith[V], x: V) -> V:
    """By arctan a = pi/4 + arctan((a - 1) / (a + 1)) = pi/2 + arctan(-1 / a): one division."""
    a, one, zero = m.abs(x), _d(m, 1.0), _d(m, 0.0)
    middle, large = m.gt(a, _d(m, _EIGHTH)), m.gt(a, _d(m, 1 / _EIGHTH))
    numerator = m.select(large, _d(m, -1.0), m.select(middle, m.sub(a, one), a))
    denominator = m.select(large, a, m.select(middle, m.add(a, one), one))
    base = m.select(large, _d(m, _HALF_PI), m.select(middle, _d(m, math.pi / 4), zero))
    t = m.div(numerator, denominator)
    z = m.mul(t, t)
    value = m.add(m.fma(m.mul(t, z), _polynomial(m, z, _ATAN), t), base)
    return m.copysign(value, x)


def _asin_parts(m: Arith[V], x: V) -> tuple[V, V]:
    """(a, y): a = |x|; up to 1/2 arcsin a = y, then pi/2 - 2 y. NaN outside [-1, 1].

    The smaller of a^2 and (1 - a) / 2, both exact, is the one that is wanted, and so is its root.
    """
    a, half = m.abs(x), _d(m, 0.5)
    near, far = m.mul(a, a), m.fma(a, _d(m, -0.5), half)
    z = m.select(m.lt(far, near), far, near)
    s = m.sqrt(z)
    return a, m.fma(m.mul(s, z), _polynomial(m, z, _ASIN), s)


def _asin(m: Arith[V], x: V) -> V:
    a, y = _asin_parts(m, x)
    far = m.fma(y, _d(m, -2.0), _d(m, _HALF_PI))
    return _signed(m, m.select(m.gt(a, _d(m, 0.5)), far, y), x)


def _acos(m: Arith[V], x: V) -> V:
    a, y = _asin_parts(m, x)
    large = m.gt(a, _d(m, 0.5))
    is_negative = m.lt(m.bitcast(x, "int64"), _l(m, 0))
    opposite = m.select(is_negative, _d(m, math.pi), _d(m, 0.0))
    start = m.select(large, opposite, _d(m, _HALF_PI))
    return m.fma(_signed(m, y, x), m.select(large, _d(m, 2.0), _d(m, -1.0)), start)


def _signed(m: Arith[V], size: V, x: V) -> V:
    """`size`, whose sign is not set, with the sign of x."""
    sign = m.and_(m.bitcast(x, "int64"), _l(m, -(1 << 63)))
    return m.bitcast(m.or_(m.bitcast(size, "int64"), sign), "float64")


def _atanh(m: Arith[V], x: V) -> V:
    """1 - |x| = 2**k u: half of log((1 + |x|) / u) - k log 2, by artanh of s = (q - 1) / (q + 1)
    for the quotient q, so that there is one division. While k is 0, s is |x| and exact."""
    a, one = m.abs(x), _d(m, 1.0)
    k, u = log_parts(m, m.sub(one, a))
    above = m.add(one, a)
    difference = m.select(m.eq(k, _d(m, 0.0)), m.add(a, a), m.sub(above, u))
    s = m.div(difference, m.add(above, u))
    z = m.mul(s, s)
    y = m.fma(m.mul(s, z), _polynomial(m, z, _ATANH), s)
    return m.copysign(m.fma(k, _d(m, -0.5 * math.log(2.0)), y), x)


SHORT_WAYS: dict[str, Short] = {
    "sin": Short(_sin, NEAR), "cos": Short(_cos, NEAR), "tan": Short(_tan, NEAR),
    "atan": Short(_atan), "asin": Short(_asin, 1.0), "acos": Short(_acos, 1.0),
    "atanh": Short(_atanh, 1.0 - 2.0**-24),
}  # fmt: skip
"""By name of the function."""


def certain(m: Arith[V], short: Short, x: V) -> tuple[V, V]:
    """(known, value) for float32 x: where `known`, `value` has the promised bits of the function.

    It is false of NaN, and beyond the limit. The bits of a float64 that float32 drops say how far
    it is from where rounding changes, which is where the first of them is 1 and the others are 0.
    A subnormal result is its argument, which drops none.
    """
    y = short.compute(m, m.convert(x, "float64"))
    dropped = m.convert(m.bitcast(y, "int64"), "int32")
    # Moved by the margin and read as a number with a sign, what is near that place comes first.
    distance = m.shift_left(m.add(dropped, _i(m, _MARGIN)), _i(m, 32 - _DROPPED))
    nearest = (2 * _MARGIN - (1 << (_DROPPED - 1))) << (32 - _DROPPED)
    if short.limit < math.inf:
        within = m.le(m.abs(x), m.const(short.limit, "float32"))
    else:
        within = m.eq(x, x)
    is_certain = m.ge(m.select(within, distance, _i(m, -(1 << 31))), _i(m, nearest))
    return is_certain, m.convert(y, "float32")
