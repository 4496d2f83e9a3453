"""Numbers in sentences and tables."""

from __future__ import annotations

import math

MILLION = 1e6
"""Beyond it the digits of a factor say nothing."""


def times(factor: float) -> str:
    """A factor, 0 or more, for "... times": three digits, and never as a power of ten above 1."""
    if math.isnan(factor):
        return "nan"
    if factor >= MILLION:
        return "over a million"
    rounded = float(f"{factor:.3g}")
    if rounded >= MILLION:
        return "a million"
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.3g}"
