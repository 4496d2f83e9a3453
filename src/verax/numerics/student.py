"""Student's distribution: how large a statistic with few degrees of freedom may be by chance."""

from __future__ import annotations

import math

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)
"""A Gauss-Legendre rule: the tail is smooth in 1 / x."""


def upper_tail(statistic: float, freedom: int) -> float:
    """P(T >= statistic) of Student's t with `freedom` degrees of freedom, for a positive statistic:
    the density integrated over 1 / x (Abramowitz and Stegun 1964, 26.7)."""
    u = (NODES + 1) / (2 * statistic)
    log_factor = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    log_factor -= 0.5 * math.log(freedom * math.pi)
    log_density = log_factor - (freedom + 1) / 2 * np.log1p(1 / (freedom * u**2))
    return float((np.exp(log_density) / u**2) @ WEIGHTS / (2 * statistic))
