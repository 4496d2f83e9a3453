"""erf and gelu. Up to 7/8 by a polynomial in x^2; beyond, erf(x) = 1 - exp(-x^2) g(t) with the
scaled complement g(t) = exp(x^2) erfc(x) as a polynomial in t = (x - 3) / (x + 3)."""

from __future__ import annotations

import math
from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.float64.exponential import exponential
from verax.numerics.float64.number import Number, polynomial, square, sum_by_size, where

_ERF = (
    0.1283791670955126, -0.37612638903183754, 0.11283791670955111, -0.02686617064512715,
    0.0052239776253807, -0.0008548327017961359, 0.00012055332667001252, -1.492563824939355e-05,
    1.6461794963234308e-06, -1.6360042150876073e-07, 1.4735598987875127e-08,
    -1.1713597425840842e-09, 6.629856263636177e-11,
)  # fmt: skip
_ERFCX = (
    0.17900115118138396, -0.32623356004363147, 0.24560380170027002, -0.15011593651386984,
    0.07166583955232277, -0.024392463069414037, 0.004269417339637704, 0.0007090996225396854,
    -0.0005927573559724723, 5.438879477285249e-05, 7.655163466417017e-05,
    -3.0816917183153867e-06, -5.572261799863629e-06,
)  # fmt: skip
_ONE = 6.0
"""From here on erf is 1, rounded."""


def _erf(x: Number) -> Number:
    z = x * x
    near = x + x * polynomial(z, _ERF)
    size = abs(x)
    a = where(size < _ONE, size, _ONE)
    upper, lower = sum_by_size(*square(a))
    found = exponential(-upper, -lower)
    high, low = found.mantissa
    g = polynomial((a - 3.0) / (a + 3.0), _ERFCX) * found.power()
    far = 1.0 - (high * g + low * g)
    return where(size < 0.875, near, where(x.equals(x), far, x)).signed_like(x)


def erf(m: Arith[Any], x: Any) -> Any:
    """2/sqrt(pi) times the integral from 0 to x of exp(-t^2)."""
    return _erf(Number(m, x)).v


def gelu(m: Arith[Any], x: Any) -> Any:
    """x/2 (1 + erf(x / sqrt 2))."""
    half = Number(m, x) * 0.5
    return (half * (_erf(Number(m, x) * math.sqrt(0.5)) + 1.0)).v
