"""The inverse error function to eleven digits, over `Arith`: what float32 promises, and where the
float64 one begins.

erfinv(x) / x is a smooth function of w = -log(1 - x^2), by a polynomial in w - 3 and beyond w = 6,
where x is within 0.0013 of 1, by polynomials in sqrt(w) (M. Giles, Approximating the erfinv
function, 2010, for the change of variable; the coefficients are fits of our own,
tests/numerics/remez_float64.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from verax.numerics.arith import Arith

MIDDLE = (
    1.6235420064645847, 0.24163040416617207, -0.005738135216510299, -0.0008361817770040616,
    0.00019506131084290644, -1.2716422422919349e-05, -1.747986292046458e-06,
    4.499851845261999e-07, -2.3697983354424512e-08, -5.467026315212503e-09,
    1.1138646560349563e-09, -3.1484551863367226e-11, -1.793313037001208e-11,
    2.713383117108367e-12, 7.739603887508253e-14, -5.518045341693923e-14,
    1.546792849547743e-15, 4.948103104326014e-16,
)  # fmt: skip
TAIL = (
    3.0838856104980747, 1.005258967752482, 0.00537091368092593, -0.003751211361526551,
    0.002491463451368715, -0.0016882358166565173, 0.0009530916168515032,
    -0.00035527581908669344, 2.4916229395551528e-05, 6.899148450067555e-05,
    -4.940645174595574e-05, 1.1428914286918186e-05, 5.510104982137009e-06,
    -3.357254448774103e-06,
)  # fmt: skip
FAR = (
    4.849906401405487, 1.0103004648359275, -0.00013871909060265964, -0.00021502945658409127,
    7.599248268595718e-05, -1.968582045041588e-05, 4.538896103188751e-06,
    -9.839909125410074e-07, 2.020660971450027e-07, -7.352724752519317e-08,
    5.472358792340774e-08, -1.8578138573666395e-08,
)  # fmt: skip
MIDDLE_START, TAIL_START, FAR_START = 3.0, 3.25, 5.0
"""What is taken off the variable of each polynomial."""
TAIL_FROM, FAR_FROM = 6.0, 16.75
"""The w from which a polynomial holds; float32 has none of FAR."""


def _series(m: Arith[Any], x: Any, coefficients: tuple[float, ...]) -> Any:
    total = m.like(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        total = m.add(m.mul(total, x), m.like(c, x))
    return total


def estimate(m: Arith[Any], x: Any, log: Callable[..., Any], far: bool) -> Any:
    """erfinv(x) of a float64 x within [-1, 1], NaN outside; the relative error is at most 1e-11.

    log: the logarithm to use. far: whether x may be nearer to 1 than a float32 can be.
    """
    one = m.like(1.0, x)
    w = m.neg(log(m, m.mul(m.sub(one, x), m.add(one, x))))
    root = m.sqrt(w)
    factor = _series(m, m.sub(root, m.like(TAIL_START, x)), TAIL)
    if far:
        beyond = _series(m, m.sub(root, m.like(FAR_START, x)), FAR)
        factor = m.select(m.ge(w, m.like(FAR_FROM, x)), beyond, factor)
    middle = _series(m, m.sub(w, m.like(MIDDLE_START, x)), MIDDLE)
    factor = m.select(m.lt(w, m.like(TAIL_FROM, x)), middle, factor)
    ends = m.copysign(m.like(math.inf, x), x)
    return m.select(m.eq(m.abs(x), one), ends, m.mul(x, factor))
