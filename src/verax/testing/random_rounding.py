"""Random rounding of plain functions: the float64 value, runs under random rounding, own runs.

A function is run in float64 while the result of each operation is disturbed as rounding in the
declared type would disturb it (Monte Carlo arithmetic, Parker 1997; CESTAC, Vignes 1974). One file
for each library knows how to see the operations; this one knows how large disturbances are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from verax.numerics.error_model import KAPPA

Arrays = list[np.ndarray]


@dataclass
class RoundingNoise:
    """Disturbances for one run.

    random: what they are drawn from. result: unit roundoff of the type that the result of each
    operation is stored in. sums: that of the type that sums are accumulated in.
    """

    random: np.random.Generator
    result: float
    sums: float

    def rounded(self, y: np.ndarray, roundings: float = 1.0) -> np.ndarray:
        """y after that many independent roundings of its elements, uniform in a unit roundoff."""
        if not np.size(y):
            return y
        scale = self.result * np.sqrt(roundings)
        return np.asarray(y * (1 + scale * self.random.uniform(-1, 1, np.shape(y))))

    def summed(self, y: np.ndarray, squares: np.ndarray, count: int | np.ndarray) -> np.ndarray:
        """y, a sum of `count` terms whose squares sum to `squares`, accumulated and stored.

        The variance is that of `error_model.sum_of_products` without a bias.
        """
        variance = count * (y * y / 3 + squares / 6) + squares
        with np.errstate(invalid="ignore", over="ignore"):
            spread = KAPPA * self.sums * np.sqrt(variance)
            return self.rounded(y + spread * self.random.standard_normal(np.shape(y)))

    def disturbed(self, x: np.ndarray) -> np.ndarray:
        """x with each element moved by at most one unit roundoff of the results."""
        return self.rounded(x)

    def normwise(self, x: np.ndarray, count: int) -> np.ndarray:
        """x disturbed relative to its largest element, as a backward stable solver of `count`
        unknowns does (Higham 2002, section 7)."""
        size = np.max(np.abs(x), initial=0.0)
        spread = self.result * size * np.sqrt(max(count, 1))
        return np.asarray(x + spread * self.random.uniform(-1, 1, np.shape(x)))


class SampledFunction(Protocol):
    """A meaning that can be evaluated in float64 and under random rounding."""

    label: str
    """Its name and library, for messages."""

    def exact(self) -> Arrays:
        """Outputs in float64, in order."""

    def sample(self, noise: RoundingNoise) -> Arrays:
        """Outputs of one run under random rounding."""

    def own(self) -> Arrays | None:
        """Outputs of a plain run in the declared types; None where that fails."""

    def with_input(self, index: int, by: np.ndarray) -> Arrays:
        """Float64 outputs with float input `index` replaced by `by`."""

    @property
    def inputs(self) -> Sequence[np.ndarray]:
        """The inputs as they were given, on the host."""
