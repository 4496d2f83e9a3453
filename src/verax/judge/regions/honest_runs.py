"""Distances of honest runs from their middle, and what they say of a subject's error.

Runs with the noise of rounding scatter; how far, and how far from each other, is what an honest
subject may show.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.numerics import statistics as st
from verax.numerics.error_model import TINY


class Cloud:
    """Distances of honest runs from their middle, for one shown value."""

    def __init__(self, draw: Callable[[], np.ndarray | None], count: int) -> None:
        self.draw = draw
        self.distances: list[np.ndarray] = []
        self.extend(count)

    def extend(self, count: int) -> None:
        """Draw until there are `count`, leaving out runs of another shape."""
        for _ in range(count - len(self.distances)):
            found = self.draw()
            if found is not None:
                self.distances.append(np.nan_to_num(found))

    @property
    def sigma(self) -> np.ndarray:
        return st.sampled_sigma(np.mean([d * d for d in self.distances], axis=0))

    def test(self, error: np.ndarray) -> st.GroupTest:
        """T of an error; runs held against each other where it is above what the spread allows."""
        found = self._tested(error)
        if found.statistic <= st.ROUNDING_T:
            return found
        self.extend(st.SAMPLES_FEW)
        found = self._tested(error)
        calibrated = min(max(1.0, self._honest()), st.CALIBRATED_T)
        return st.GroupTest(found.statistic / calibrated, found.group)

    def _tested(self, error: np.ndarray) -> st.GroupTest:
        return st.group_test(st.standardised(error, self.sigma + TINY))

    def _honest(self) -> float:
        """The largest T of one of the runs, held against the others."""
        total, others = np.sum([d * d for d in self.distances], axis=0), len(self.distances) - 1
        found = [
            st.group_test(
                st.standardised(d, st.sampled_sigma((total - d * d) / max(1, others)) + TINY)
            ).statistic
            for d in self.distances
        ]
        return max((f for f in found if np.isfinite(f)), default=0.0)


def apart(one: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """one - other in float64; None where they are of different shapes."""
    if one.shape != other.shape:
        return None
    return one.astype(np.float64) - other.astype(np.float64)
