"""exp and what is made of it: expm1, sigmoid, tanh, sinh, cosh, silu, mish, gelu_tanh.

x = n log 2 + r with |r| <= log(2) / 2, and exp(r) = 1 + r + r^2 / 2 + r^3 P(r). The square is taken
exactly and the sum kept as a pair, which leaves a relative error of about 2^-59 before the last
rounding. The power of two comes in two factors, so that results may be subnormal or overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.float64.constants import LN2, LOG2E, ONE_BITS, ROUND, TINY
from verax.numerics.float64.number import (
    Number,
    Pair,
    polynomial,
    quotient,
    square,
    sum_by_size,
    sum_of,
    where,
)

_EXP = (
    0.16666666666666677, 0.04166666666666669, 0.008333333333321745, 0.0013888888888870282,
    0.00019841269885873517, 2.4801587355842642e-05, 2.755724443850642e-06, 2.755724579938349e-07,
    2.5108963264700163e-08, 2.0923694651213117e-09,
)  # fmt: skip
_SINH = (
    0.16666666666666666, 0.008333333333333333, 0.0001984126984126959, 2.755731922412022e-06,
    2.5052108345643477e-08, 1.6059050705932865e-10, 7.646476340442351e-13, 2.8483991948906596e-15,
)  # fmt: skip

HIGHEST, LOWEST = 711.0, -746.0
"""Beyond, exp overflows, even when it is halved, or is 0."""
_HALF_WAY = 512
"""Of the exponents, which the first of the two powers of two leaves to the second."""


@dataclass(frozen=True)
class Exponential:
    """exp(x) = 2^n (1 + a + b), b being small against a's last place; t holds ROUND + n."""

    t: Number
    a: Number
    b: Number

    @property
    def mantissa(self) -> Pair:
        """1 + a + b, the first number being the nearest to it."""
        high, low = sum_by_size(1.0, self.a)
        return sum_by_size(high, low + self.b)

    def power(self, more: int = 0) -> Number:
        """2^(n + more), for exponents of normal numbers."""
        return _power_of_two(self.t.bits() + more)

    def halves(self, is_negative: Number, more: int = 0) -> Pair:
        """Two factors whose product is 2^(n + more). is_negative: mask of n < 0."""
        n = self.t.bits() + where(
            is_negative, self.t.bits().like(more + _HALF_WAY), more - _HALF_WAY
        )
        half = self.t.like(2.0**_HALF_WAY)
        return _power_of_two(n), where(is_negative, 2.0**-_HALF_WAY, half)


def _power_of_two(n: Number) -> Number:
    """2^n; what is in the high bits of n is shifted out."""
    return ((n << 52) + ONE_BITS).float()


def between(x: Number, low: float, high: float) -> Number:
    """x, not below `low` and not above `high`; NaN stays."""
    x = where(x > high, high, x)
    return where(x < low, low, x)


def exponential(x: Number, low: Number | None = None) -> Exponential:
    """exp(x + low) for x from LOWEST to HIGHEST and a `low` below x's last place."""
    t = x * LOG2E[0] + ROUND
    n = t - ROUND
    upper, lower = x - n * LN2[0], n * LN2[1]
    if low is not None:
        lower = lower - low
    r = upper - lower
    reduction_error = (upper - r) - lower
    s, small = square(r)
    s = s * 0.5
    a, lost = sum_by_size(r, s)
    tail = r * (r * r) * polynomial(r, _EXP) + (reduction_error + reduction_error * r)
    return Exponential(t, a, lost + (small * 0.5 + tail))


def negative(x: Number) -> Number:
    """Whether the sign is set."""
    return x.bits() < 0


def exp(m: Arith[Any], x: Any) -> Any:
    """e^x."""
    z = between(Number(m, x), LOWEST, HIGHEST)
    power = exponential(z)
    first, second = power.halves(negative(z))
    return (power.mantissa[0] * first * second).v


def expm1(m: Arith[Any], x: Any) -> Any:
    """e^x - 1."""
    number = Number(m, x)
    z = between(number, -64.0, 709.9)  # up to 2^1024
    power = exponential(z)
    half = power.power(-1)
    start, lost = sum_of(half, z.like(-0.5))
    total, more = sum_of(start, half * power.a)
    value = total + (more + (half * power.b + lost))
    return where(abs(number) < 2.0**-54, number, value + value).v


def _of_minus(x: Number) -> tuple[Exponential, Number, Number]:
    """(e, first, second) of exp(-|x|); its two factors of 2^n."""
    z = between(-abs(x), LOWEST, 0.0)
    power = exponential(z)
    first, second = power.halves(z < 1.0)
    return power, first, second


def exp_of_minus(x: Number) -> Pair:
    """exp(-|x|)."""
    power, first, second = _of_minus(x)
    high, low = power.mantissa
    return high * first * second, low * first * second


def sigmoid(m: Arith[Any], x: Any) -> Any:
    """1 / (1 + e^-x), of negative x e^x / (1 + e^x): its power of two is applied last."""
    number = Number(m, x)
    power, first, second = _of_minus(number)
    high, low = power.mantissa
    below = negative(number)
    upper, lower = sum_by_size(1.0, high * first * second)
    lower = lower + low * first * second
    value, _ = quotient((where(below, high, 1.0), where(below, low, 0.0)), (upper, lower))
    return (value * where(below, first, 1.0) * where(below, second, 1.0)).v


def tanh(m: Arith[Any], x: Any) -> Any:
    """t / (t + 2) with t = e^2|x| - 1."""
    number = Number(m, x)
    size = abs(number)
    u = size + size
    exp_of_twice = exponential(where(u < 44.0, u, 44.0))
    power = exp_of_twice.power()
    start, lost = sum_of(power, u.like(-1.0))
    high, low = sum_of(start, power * exp_of_twice.a)
    high, low = sum_by_size(high, low + (lost + power * exp_of_twice.b))
    upper, lower = sum_of(high, u.like(2.0))
    value, _ = quotient((high, low), (upper, lower + low))
    return where(size.equals(size), value, number).signed_like(number).v


def _hyperbolic(size: Number, sign: float) -> Number:
    """(e^size + sign e^-size) / 2 for sizes that are not negative."""
    z = where(size > HIGHEST, HIGHEST, size)
    power = exponential(z)
    high, low = power.mantissa
    n = power.t - ROUND
    opposite_exponent = n * -2.0
    opposite_exponent = where(
        opposite_exponent < -200.0, -200.0, opposite_exponent
    )  # too small to matter
    opposite = _power_of_two((opposite_exponent + ROUND).bits()) / high * sign
    total, lost = sum_by_size(high, opposite)
    first, second = power.halves(z < 0.0, -1)
    return (total + (lost + low)) * first * second


def sinh(m: Arith[Any], x: Any) -> Any:
    """Hyperbolic sine: below 1 by its series, else by e^|x| and its inverse."""
    number_x = Number(m, x)
    size = abs(number_x)
    z = size * size
    near = size + size * z * polynomial(z, _SINH)
    value = where(size < 1.0, where(size < TINY, size, near), _hyperbolic(size, -1.0))
    return value.signed_like(number_x).v


def cosh(m: Arith[Any], x: Any) -> Any:
    """Hyperbolic cosine."""
    return _hyperbolic(abs(Number(m, x)), 1.0).v


def silu(m: Arith[Any], x: Any) -> Any:
    """x sigmoid(x)."""
    return m.mul(x, sigmoid(m, x))


def mish(m: Arith[Any], x: Any) -> Any:
    """x tanh(softplus(x)), by its rational form in e = exp(-|x|)."""
    number = Number(m, x)
    e, _ = exp_of_minus(number)
    # x < 0: e(e + 2) / (e(e + 2) + 2);  x >= 0: (1 + 2e) / (1 + 2e + 2e^2)
    below = negative(number)
    top = where(below, e * (e + 2.0), e + e + 1.0)
    denominator_excess = where(below, 2.0, e * e * 2.0)
    return (number * (top / (top + denominator_excess))).v


def gelu_tanh(m: Arith[Any], x: Any) -> Any:
    """x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    c = 2.0 * math.sqrt(2.0 / math.pi)
    number = Number(m, x)
    inner = number * number * (c * 0.044715) + c
    return (number * Number(m, sigmoid(m, (number * inner).v))).v
