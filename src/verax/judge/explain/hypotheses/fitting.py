"""Numbers read off the subject's own output: a slope, a factor, an offset, a limit.

A fitted number is only a proposal. The hypothesis that is made with it has to explain every element
within rounding, which one or two free numbers cannot bring about by chance.
"""

from __future__ import annotations

import numpy as np

from verax.judge.explain.hypotheses.base import Suspect

LEAST = 16
"""Elements from which a number may be fitted; with fewer a fit proves nothing."""
LEAST_PER_CHANNEL = 8
"""Elements of a channel from which its slope may be fitted."""
SPREAD = 0.05
"""Channels whose values lie within this part of the median count as agreeing: a proposal's sieve,
not a criterion."""


def slopes_per_channel(suspect: Suspect) -> np.ndarray | None:
    """Least-squares slope of the given output on the input, per channel of [n, c, ...]."""
    x, y = suspect.x.astype(np.float64), suspect.wide
    if x.shape != y.shape or x.ndim < 2 or x.size < LEAST_PER_CHANNEL * x.shape[1]:
        return None
    x, y = (np.moveaxis(a, 1, 0).reshape(a.shape[1], -1) for a in (x, y))
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        return np.asarray((x * y).sum(axis=1) / (x * x).sum(axis=1))


def agreed(values: np.ndarray) -> float | None:
    """The median of per-channel values when most of them lie near to it, weighting nothing."""
    values = values[np.isfinite(values)]
    if values.size < 2:
        return None
    middle = float(np.median(values))
    near = np.abs(values - middle) <= SPREAD * abs(middle)
    return middle if near.mean() > 0.5 else None


def factor(x: np.ndarray, y: np.ndarray) -> float | None:
    """The factor that takes x to y best, weighted so that every element counts alike; or None."""
    use = np.isfinite(x) & np.isfinite(y) & (x != 0)
    if int(use.sum()) < LEAST:
        return None
    with np.errstate(all="ignore"):
        ratio = y[use] / x[use]
    middle = float(np.median(ratio))
    return middle if np.isfinite(middle) else None


def offset(x: np.ndarray, y: np.ndarray) -> float | None:
    """The constant between x and y, or None."""
    use = np.isfinite(x) & np.isfinite(y)
    if int(use.sum()) < LEAST:
        return None
    return float(np.median(y[use] - x[use]))


def line(x: np.ndarray, y: np.ndarray) -> tuple[float, float] | None:
    """Slope and offset of the least-squares line from x to y, or None."""
    use = np.isfinite(x) & np.isfinite(y)
    if int(use.sum()) < LEAST:
        return None
    a, b = x[use], y[use]
    spread = float(((a - a.mean()) ** 2).sum())
    if spread == 0:
        return None
    slope = float(((a - a.mean()) * (b - b.mean())).sum()) / spread
    return slope, float(b.mean() - slope * a.mean())
