"""Logarithms and what is made of them: log, log1p, log2, softplus, asinh, acosh, atanh, pow.

x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and with s = f / (2 + f)
log(1 + f) = 2 artanh(s) = f - f^2/2 + s (f^2/2 + s^2 L(s^2)). The square is taken exactly and sums
are kept as pairs, which leaves a relative error of about 2^-56 before the last rounding. For pow,
whose logarithm is multiplied by up to a thousand, s and the first term behind it are pairs too.
"""

from __future__ import annotations

import math
from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.float64.constants import LN2, LOG2E, TINY, TWO_THIRDS
from verax.numerics.float64.exponential import (
    HIGHEST,
    LOWEST,
    between,
    exp_of_minus,
    exponential,
    negative,
)
from verax.numerics.float64.number import (
    Number,
    Pair,
    polynomial,
    product,
    product_of_pairs,
    quotient,
    root,
    square,
    sum_by_size,
    sum_of,
    where,
)

_LOG = (
    0.6666666666666666, 0.4000000000000593, 0.28571428569165547, 0.2222222263690385,
    0.18181776340243672, 0.15387065009880976, 0.13250633855298397, 0.13247105727973296,
)  # fmt: skip
_LOG_OF_POW = (
    0.4, 0.28571428571428376, 0.2222222222229055, 0.18181818169255862, 0.15384616753056446,
    0.1333324043992583, 0.1176867377827236, 0.1042290283722888, 0.11013330727652916,
)  # fmt: skip
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_SMALLEST_NORMAL = 2.0**-1022
_NO_REST = 200
"""Exponent of numbers whose sum with 1 has no rest that a float64 could tell."""
_LARGE = 2.0**28
"""Above it asinh and acosh are log(2 x), rounded."""


def exponent_and_fraction(x: Number) -> tuple[Number, Number]:
    """(k, y) with x = 2^k y and y in [sqrt(1/2), sqrt(2)), for positive finite x; k an int64."""
    below = x < _SMALLEST_NORMAL
    bits = where(below, x * 2.0**54, x).bits()
    # Biased by 2048 to stay positive, so that the shift may be logical.
    k = ((bits + ((1 << 62) - _SQRT_HALF_BITS)).bits("uint64") >> 52).bits() - 1024
    return where(below, k - 54, k), (bits - (k << 52)).float()


def as_float(k: Number) -> Number:
    """A small int64 as float64."""
    return ((k + ((0x433 << 52) + (1 << 51))).float()) - (2.0**52 + 2.0**51)


def log_of(k: Number, f: Number, low: Number | None = None) -> Pair:
    """k log(2) + log(1 + f + low) for k as float64 and f in [sqrt(1/2) - 1, sqrt(2) - 1]; `low` is
    below f's last place. The second number is small, but not below the first one's last place."""
    s = f / (f + 2.0)
    z = s * s
    half, small = square(f)
    half, small = half * 0.5, small * 0.5
    tail = s * (half + z * polynomial(z, _LOG)) - small + small * s
    if low is not None:
        tail = tail + (low - low * f * (1.0 - f))
    a, lost = sum_by_size(f, -half)
    total, more = sum_by_size(k * LN2[0], a)
    return total, more + (lost + (tail + k * LN2[1]))


def edges(x: Number, value: Number) -> Number:
    """`value`, except log(inf) = inf, log(0) = -inf, log(negative or NaN) = NaN."""
    value = where(x.equals(math.inf), math.inf, value)
    return where(x > 0.0, value, where(x.equals(0.0), -math.inf, x.like(math.nan)))


def log(m: Arith[Any], x: Any) -> Any:
    """Natural logarithm."""
    number = Number(m, x)
    k, y = exponent_and_fraction(number)
    high, low = log_of(as_float(k), y - 1.0)
    return edges(number, high + low).v


def log2(m: Arith[Any], x: Any) -> Any:
    """Binary logarithm; exact where the result is an integer."""
    number = Number(m, x)
    k, y = exponent_and_fraction(number)
    nothing = number.like(0.0)
    scaled = product_of_pairs(
        sum_by_size(*log_of(nothing, y - 1.0)),
        tuple(map(number.like, LOG2E)),  # type: ignore[arg-type]
    )
    total, lost = sum_by_size(as_float(k), scaled[0])
    return edges(number, total + (lost + scaled[1])).v


def _log_of_one_and(g: Pair) -> Number:
    """log(1 + g) for g that is not negative."""
    u, low = sum_of(g[0], g[0].like(1.0))
    return _log_of_one_and_parts(u, low, g)


def _log_of_one_and_parts(u: Number, low: Number, g: Pair) -> Number:
    """log(1 + g), where u + low is 1 + the first number of g."""
    k, y = exponent_and_fraction(u)
    scale = ((1023 - where(k > _NO_REST, _NO_REST, k)) << 52).float()
    f, left = sum_by_size(y - 1.0, low * scale)
    plain = k.equals(0)
    f = where(plain, g[0], f)
    left = where(plain, g[1], left + g[1] * scale)
    high, low_part = log_of(as_float(k), f, left)
    return high + low_part


def log1p(m: Arith[Any], x: Any) -> Any:
    """log(1 + x)."""
    number = Number(m, x)
    u, low = sum_of(number, number.like(1.0))
    value = edges(u, _log_of_one_and_parts(u, low, (number, number.like(0.0))))
    return where(abs(number) < 2.0**-54, number, value).v


def softplus(m: Arith[Any], x: Any) -> Any:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)."""
    number = Number(m, x)
    e, low = exp_of_minus(number)
    # 1 + e is in [1, 2]; above sqrt(2) it is halved. Either way f needs no rounded 1 + e.
    large = e > math.sqrt(2.0) - 1.0
    less, lost = sum_by_size(-1.0, e)
    f, low = where(large, less * 0.5, e), where(large, (low + lost) * 0.5, low)
    high, low_part = log_of(where(large, 1.0, number.like(0.0)), f, low)
    total, lost = sum_of(where(number > 0.0, number, 0.0), high)
    value = total + (lost + low_part)
    value = where(abs(number).equals(math.inf), where(negative(number), 0.0, number), value)
    return where(number.equals(number), value, number).v


def asinh(m: Arith[Any], x: Any) -> Any:
    """Inverse hyperbolic sine: log(1 + g) with g = |x| + x^2 / (1 + sqrt(1 + x^2))."""
    number = Number(m, x)
    size = abs(number)
    large = size > _LARGE
    a = where(large, 1.0, size)
    z = sum_by_size(*square(a))
    w, low = sum_of(z[0], z[0].like(1.0))
    r = root((w, low + z[1]))
    upper, lower = sum_of(r[0], r[0].like(1.0))
    q = quotient(z, (upper, lower + r[1]))
    high, low = sum_by_size(a, q[0])
    value = where(large, _log_twice(size), _log_of_one_and((high, low + q[1])))
    value = where(size < TINY, size, value)
    return value.signed_like(number).v


def _log_twice(x: Number) -> Number:
    """log(2 x) for large x and infinity."""
    k, y = exponent_and_fraction(x)
    high, low = log_of(as_float(k) + 1.0, y - 1.0)
    return edges(x, high + low)


def acosh(m: Arith[Any], x: Any) -> Any:
    """Inverse hyperbolic cosine: log(1 + g), g = d + sqrt(d (d + 2)), d = x - 1; NaN below 1."""
    number = Number(m, x)
    large, inside = number > _LARGE, number > 1.0
    a = where(large, 2.0, where(inside, number, 2.0))
    d, left = sum_of(a, a.like(-1.0))
    more, over = sum_of(d, d.like(2.0))
    r = root(product_of_pairs((d, left), (more, over + left)))
    high, low = sum_of(r[0], d)
    g = sum_by_size(high, low + (r[1] + left))
    value = where(large, _log_twice(number), _log_of_one_and(g))
    outside = where(number.equals(1.0), 0.0, number.like(math.nan))
    return where(inside, value, outside).v


def atanh(m: Arith[Any], x: Any) -> Any:
    """Inverse hyperbolic tangent: log(1 + g) / 2, g = 2 |x| / (1 - |x|); NaN outside [-1, 1]."""
    number = Number(m, x)
    size = abs(number)
    a = where(size < 1.0, size, 0.5)
    below, left = sum_of(-a, a.like(1.0))
    value = _log_of_one_and(quotient((a + a, a.like(0.0)), (below, left))) * 0.5
    value = where(size < TINY, size, value)
    value = where(size.equals(1.0), math.inf, value)
    return where(size <= 1.0, value, size.like(math.nan)).signed_like(number).v


def _log_pair(x: Number) -> Pair:
    """log(x) of positive finite x, to about 2^-64."""
    k, y = exponent_and_fraction(x)
    f = y - 1.0
    s = quotient((f, f.like(0.0)), sum_of(y, y.like(1.0)))
    z = square(s[0])
    z = sum_by_size(z[0], z[1] + 2.0 * s[0] * s[1])
    inner = sum_by_size(TWO_THIRDS[0], z[0] * polynomial(z[0], _LOG_OF_POW))
    third = product_of_pairs(z, (inner[0], inner[1] + TWO_THIRDS[1]))
    third = product_of_pairs(s, third)
    high, low = sum_by_size(s[0] + s[0], third[0])
    low = low + (third[1] + 2.0 * s[1])
    n = as_float(k)
    total, more = sum_by_size(n * LN2[0], high)
    return sum_by_size(total, more + (low + n * LN2[1]))


def pow(m: Arith[Any], x: Any, y: Any) -> Any:
    """x^y with C's special cases: pow(x, 0) = pow(1, y) = 1 even for NaN."""
    base, exponent = Number(m, x), Number(m, y)
    size = abs(base)
    plain = m.and_((size > 0.0).v, (size < math.inf).v)
    logarithm = _log_pair(where(Number(m, plain), size, 1.0))
    limit = 2.0**65  # times the smallest logarithm but 0, it overflows
    bounded = where(abs(exponent) > limit, exponent.like(limit).signed_like(exponent), exponent)
    high, low = product(bounded, logarithm[0])
    high, low = sum_by_size(high, low + bounded * logarithm[1])
    edge = where(size.equals(0.0), -math.inf, size.like(math.inf))
    edge = where(size.equals(size), edge, size)
    high = where(Number(m, plain), high, exponent * edge)
    low = where(Number(m, plain), low, 0.0)
    z = between(high, LOWEST, HIGHEST)
    power = exponential(z, where(z.equals(high), low, 0.0))
    first, second = power.halves(negative(z))
    value = power.mantissa[0] * first * second

    half = exponent * 0.5
    integral = exponent.trunc().equals(exponent)
    odd = Number(m, m.and_(integral.v, half.trunc().differs(half).v))
    below = negative(base)
    value = where(Number(m, m.and_(below.v, odd.v)), -value, value)
    finite = m.and_((base < 0.0).v, (base > -math.inf).v)
    undefined = m.and_(finite, m.not_(integral.v))
    value = where(Number(m, undefined), value.like(math.nan), value)
    one = m.or_(exponent.equals(0.0).v, base.equals(1.0).v)
    return where(Number(m, one), 1.0, value).v
