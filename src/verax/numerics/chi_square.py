"""Quantiles of the chi-square distribution: how small a sum of squares may be by chance.

An error that is drawn for each element of a value reaches the outputs through so many independent
directions, and where those are few a draw may hardly move them: the square of what it does is
chi-square distributed then. Degrees of freedom are real numbers here (Satterthwaite 1946).
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

LARGE = 60.0
"""Degrees of freedom from which on the approximation of Wilson and Hilferty (1931) is used."""


@functools.lru_cache(maxsize=4096)
def chi_square_quantile(freedom: float, probability: float) -> float:
    """What a chi-square variable of `freedom` > 0 stays below with this probability, in (0, 1)."""
    if freedom >= LARGE:
        part = 2 / (9 * freedom)
        return float(
            freedom * (1 - part + NormalDist().inv_cdf(probability) * math.sqrt(part)) ** 3
        )
    low, high = -700.0, math.log(freedom + 20 * math.sqrt(2 * freedom) + 200)
    for _ in range(60):  # bisection of the logarithm: a lower quantile of 0.1 degrees is 1e-40
        middle = (low + high) / 2
        if _below(freedom, math.exp(middle)) < probability:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _below(freedom: float, x: float) -> float:
    """Probability of a value below x: the series of the lower incomplete gamma function."""
    a, half = freedom / 2, x / 2
    term = total = 1.0
    n = a
    while term > total * 1e-12:
        n += 1
        term *= half / n
        total += term
    return math.exp(a * math.log(half) - half - math.lgamma(a + 1)) * total
