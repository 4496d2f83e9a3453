"""The power of the check of one node: the smallest mistake that its rounding does not hide.

A node that is judged on its own inputs is limited by its own sigma. Where its inputs are
ill-conditioned (a norm of numbers far off zero, a sum that cancels) that is large, and agreement
says little; the coverage of a check counts it so (`regions.coverage`).
"""

from __future__ import annotations

import math

import numpy as np

from verax.judge.decide.criterion import ORDERS, Decision, Tiers, channel_rms
from verax.numerics import statistics as st
from verax.numerics.error_model import FLUSHED, TINY, Rounding
from verax.records.verdict import Kind


def visible_error(
    decision: Decision, expected: np.ndarray, rounding: Rounding | None, tiers: Tiers
) -> float:
    """Smallest relative error, spread over all of a float value, that would have been more than
    rounding: by sigma, and by own runs in other orders of summation. 0 where any shows (an exact
    operation, a value of zeros), infinite where none does.

    decision: on the value, whose own errors may hide as much again.
    """
    if rounding is None or not np.isfinite(rounding.sigma).any():
        return 0.0
    by_orders = decision.test == ORDERS
    hiding = decision.statistic * (st.ORDER_T if by_orders else 1)
    needed = st.ORDER_T + (hiding if decision.kind is Kind.rounding else 0.0)
    visible = shown_by_sigma(expected, rounding.sigma, needed)
    if not by_orders and not st.VISIBLE < st.SPREAD_MARGIN * visible < math.inf:
        return visible * st.USUAL_SPREAD
    spread = [1.0]
    last = [tiers.promised()] if by_orders and tiers.promised is not None else []
    for run in (*(tiers.orders() if tiers.orders is not None else ()), *last):
        own = st.standardised(run.astype(np.float64) - expected, rounding.sigma + TINY)
        spread.append(float(np.max(channel_rms(own))))
    return visible * max(spread)


def shown_by_sigma(expected: np.ndarray, sigma: np.ndarray, needed: float) -> float:
    """Smallest relative error, drawn for each element, whose T is `needed` under this sigma as
    often as `statistics.CLAIMED` asks; infinite where none is."""
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    # What may be an error by flushing is not looked at.
    size = np.where(size * st.VISIBLE > FLUSHED * st.FLUSHED_TERMS, size, 0.0)
    if not size.any():
        return 0.0
    z = st.standardised(size, sigma + TINY)
    shown = st.root_mean_square(z) * st.least_share(_directions(z))
    return needed * st.group_limit(size.size) / shown if shown > 0 else math.inf


def _directions(z: np.ndarray) -> float:
    """How many elements count in the root mean square of z, each with an error of its own."""
    largest = float(np.max(np.where(np.isfinite(z), z, 0.0)))
    part = np.where(np.isfinite(z), z, 0.0) / largest if largest > 0 else np.ones(1)
    return float((part**2).sum() ** 2 / (part**4).sum())


def smallest_error(expected: np.ndarray, dtype: object) -> float:
    """Relative error, drawn for each element, from which on a value of this element type is another
    value as often as `statistics.CLAIMED` asks."""
    return st.smallest_error(dtype) / st.least_share(max(1.0, float(np.count_nonzero(expected))))
