"""Distances of baseline runs from their mean, and the test of a subject's error against them.

Baseline runs are correct but for rounding noise. Their scatter is the error that a correct subject
may have.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.numerics import statistics as st
from verax.numerics.error_model import TINY


class Cloud:
    """Distances of baseline runs from the noiseless run, for one observed value."""

    def __init__(self, draw: Callable[[], np.ndarray | None], count: int) -> None:
        self.draw = draw
        self.distances: list[np.ndarray] = []
        self.extend(count)

    def extend(self, count: int) -> None:
        """Draw until there are `count`, leaving out runs of another shape."""
        for _ in range(count - len(self.distances)):
            distance = self.draw()
            if distance is not None:
                self.distances.append(np.nan_to_num(distance))

    @property
    def sigma(self) -> np.ndarray:
        return st.sampled_sigma(np.mean([d * d for d in self.distances], axis=0))

    def test(self, error: np.ndarray) -> st.GroupTest:
        """T of an error; above the limit, calibrated by the largest T among the runs themselves."""
        result = self._tested(error)
        if result.statistic <= st.ROUNDING_T:
            return result
        self.extend(st.SAMPLES_FEW)
        result = self._tested(error)
        calibrated = min(max(1.0, self._largest_statistic()), st.CALIBRATED_T)
        return st.GroupTest(result.statistic / calibrated, result.group)

    def _tested(self, error: np.ndarray) -> st.GroupTest:
        return st.group_test(st.standardised(error, self.sigma + TINY))

    def _largest_statistic(self) -> float:
        """The largest T of a run against the spread of the others."""
        total, other_count = (
            np.sum([d * d for d in self.distances], axis=0),
            len(self.distances) - 1,
        )
        statistics = [
            st.group_test(
                st.standardised(d, st.sampled_sigma((total - d * d) / max(1, other_count)) + TINY)
            ).statistic
            for d in self.distances
        ]
        return max((f for f in statistics if np.isfinite(f)), default=0.0)


def apart(first: np.ndarray, second: np.ndarray) -> np.ndarray | None:
    """one - other in float64; None where they are of different shapes."""
    if first.shape != second.shape:
        return None
    return first.astype(np.float64) - second.astype(np.float64)
