"""erf and gelu. Up to 3/4 by a polynomial in x^2, up to 11/8 by one in x - 1; beyond, erf(x) =
1 - exp(-x^2) g(t) with the scaled complement g(t) = exp(x^2) erfc(x) as a polynomial in
t = (x - 3) / (x + 3)."""

from __future__ import annotations

import math
from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.float64.constants import ERF_OF_ONE
from verax.numerics.float64.exponential import exponential
from verax.numerics.float64.logarithm import log
from verax.numerics.float64.number import Number, polynomial, where
from verax.numerics.inverse_error import estimate

_ERF = (
    0.1283791670955126, -0.37612638903183754, 0.11283791670955087, -0.026866170645118575,
    0.005223977625224, -0.0008548327001284111, 0.00012055331552862934, -1.492558963210046e-05,
    1.6460388441037203e-06, -1.6333297775100175e-07, 1.441438511187917e-08,
    -9.50445524050389e-10,
)  # fmt: skip
_ERF_AT_ONE = (
    0.4151074974205947, -0.41510749742059444, 0.13836916580686381, 0.06918458290335949,
    -0.06918458290319994, 0.004612305533436862, 0.015154718137878378, -0.0047770309881426404,
    -0.00188518734833604, 0.0012262926037373552, 8.549957386309638e-05, -0.00020009041412731625,
    1.9000540574787696e-05, 2.3579934388780886e-05, -6.691875623463984e-06,
)  # fmt: skip
_ERFCX = (
    0.17900115118139226, -0.32623356004235804, 0.24560380173231786, -0.15011593637992635,
    0.07166583465791236, -0.024392550308281177, 0.004268726430804754, 0.0007059438491728041,
    -0.0006014231123277904, 4.0910975972144254e-05, 6.775203311081584e-05,
)  # fmt: skip
_ERFCX_RELATIVE = (
    0.17900115118138996, -0.32623356004303733, 0.24560380171233076, -0.15011593650074637,
    0.07166583719798149, -0.024392499321391287, 0.004269136333047023, 0.0007077465448143438,
    -0.0005970619504082237, 4.525317194173625e-05, 6.405626479111118e-05,
    -1.2837458639030092e-05, -7.97038047924049e-06, 1.991490559081435e-06,
    1.1806393060368394e-06,
)  # fmt: skip
"""As _ERFCX, which errs in units of erf, with an error in units of its own."""
_ONE = 6.0
"""From here on erf is 1, rounded."""


def _erf(x: Number) -> Number:
    z = x * x
    near = x + x * polynomial(z, _ERF)
    size = abs(x)
    a = where(size < _ONE, size, _ONE)
    s = a - 1.0
    middle = s * polynomial(s, _ERF_AT_ONE) + ERF_OF_ONE[1] + ERF_OF_ONE[0]
    power = exponential(-(a * a))
    g = polynomial((a - 3.0) / (a + 3.0), _ERFCX) * power.power()
    far = 1.0 - power.mantissa[0] * g
    value = where(size < 0.75, near, where(size < 1.375, middle, far))
    return where(x.equals(x), value, x).signed_like(x)


def erf(m: Arith[Any], x: Any) -> Any:
    """2/sqrt(pi) times the integral from 0 to x of exp(-t^2)."""
    return _erf(Number(m, x)).v


def erfinv(m: Arith[Any], x: Any) -> Any:
    """The inverse of erf: eleven digits, and a step of Newton's method; NaN outside [-1, 1].

    From 1/2 on the step compares the complements, 1 - |x| being exact there.
    """
    number = Number(m, x)
    size = abs(number)
    a = Number(m, estimate(m, size.v, log, far=True))
    power = exponential(-(a * a))
    density = power.mantissa[0] * power.power() * (2.0 / math.sqrt(math.pi))
    g = polynomial((a - 3.0) / (a + 3.0), _ERFCX_RELATIVE) * power.power()
    complement = where(a < 1.375, 1.0 - _erf(a), power.mantissa[0] * g)
    error = where(size < 0.5, _erf(a) - size, (1.0 - size) - complement)
    value = where(size.equals(1.0), size.like(math.inf), a - error / density)
    return value.signed_like(number).v


def gelu(m: Arith[Any], x: Any) -> Any:
    """x/2 (1 + erf(x / sqrt 2))."""
    half = Number(m, x) * 0.5
    return (half * (_erf(Number(m, x) * math.sqrt(0.5)) + 1.0)).v
