"""Error models: how far rounding may move the result of one operator in float32.

`sigma` is the expected standard deviation of an honest implementation's error, `bound` what no
implementation by direct evaluation can exceed, both per output element. Formulas and their measured
constants: the project's numerics notes, section "One node, its actual inputs known".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

U = 2.0**-24
"""Unit roundoff of float32."""
KAPPA = 0.4247
"""Root mean square relative error of one rounding in units of U, log-uniform mantissas."""
TINY = 2.0**-149
"""Smallest subnormal of float32."""
FLUSHED = 2.0**-126
"""Smallest normal number of float32; some runtimes flush what is below to zero."""
NARROW = 1e15
"""Between this and its reciprocal, the squares of products can be summed in float32."""


@dataclass(frozen=True)
class Rounding:
    """Standard deviation and hard bound of the rounding error, arrays shaped like the output."""

    sigma: np.ndarray
    bound: np.ndarray


def relative(y: np.ndarray, sigma_ulps: float = KAPPA, bound_ulps: float = 1.001) -> Rounding:
    """An error proportional to the result, in units of U|y|.

    `relative(y, KAPPA, 1.001)` is one correctly rounded operation.
    """
    size = np.abs(y)
    return Rounding(sigma_ulps * U * size, bound_ulps * U * size + TINY)


def narrowed(*factors: np.ndarray) -> tuple[np.ndarray, ...]:
    """The factors of products whose sizes alone matter: in float32, twice as fast to sum, where
    neither the products nor their squares overflow or vanish there; else as they are."""
    largest = smallest = 1.0
    for factor in factors:
        sizes = np.abs(factor)
        largest *= max(1.0, float(sizes.max(initial=0.0)))
        smallest *= min(1.0, float(sizes.min(initial=1.0, where=sizes > 0)))
    if not (largest < NARROW and smallest * NARROW > 1):
        return factors
    return tuple(f.astype(np.float32) for f in factors)


def sum_of_products(
    y: np.ndarray,
    absolute: np.ndarray,
    squares: np.ndarray,
    n: int | np.ndarray,
    bias: np.ndarray | float = 0.0,
) -> Rounding:
    """Error of y = S + b with S a sum of n products, in any order.

    absolute = sum|w x| + |b|, squares = sum (w x)^2, bias = b; all broadcast to the shape of y.
    """
    total = y - bias
    bias_first = np.maximum(0.0, bias * bias + bias * total)
    variance = n * (total * total / 3 + bias_first) + n * squares / 6 + squares + y * y
    sigma = KAPPA * U * np.sqrt(variance)
    return Rounding(sigma, 1.001 * (n + 2) * U * absolute + (n + 2) * TINY)


@dataclass(frozen=True)
class Quantity:
    """What an operator that gives integers rounds: the integer is the one nearest to `real`.

    real: with the zero point, before saturation to low .. high. slack: how far honest float32
    arithmetic may move it at most, by chance; by choice when is_free (kernels that round halves, or
    round twice, each in its own way). shifts: whole numbers by which all of it may be moved, where
    the zero point itself is open. zero: the integer that stands for 0, as far as it is known. All
    arrays broadcast to the shape of the output.
    """

    real: np.ndarray
    slack: np.ndarray
    low: float = -np.inf
    high: float = np.inf
    shifts: tuple[int, ...] = (0,)
    is_free: bool = False
    zero: np.ndarray | float = 0.0

    @property
    def step(self) -> float:
        """One step, as a part of the (root mean square) size of what is rounded."""
        levels = np.clip(self.real, self.low, self.high) - self.zero
        size = float(np.sqrt(np.mean(levels * levels))) if levels.size else 0.0
        return 1 / max(size, 1.0)

    def ends(self, more: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest integer that honest rounding may give; `more` slack."""
        slack = self.slack + more
        bottom, top = np.ceil(self.real - slack - 0.5), np.floor(self.real + slack + 0.5)
        return np.clip(bottom, self.low, self.high), np.clip(top, self.low, self.high)

    def allows(self, actual: np.ndarray, more: np.ndarray | float = 0.0) -> np.ndarray:
        """Mask of the elements of `actual` that rounding explains, for the best of the shifts."""
        bottom, top = self.ends(more)
        levels = actual.astype(np.float64)
        masks = [
            (levels >= np.clip(bottom + shift, self.low, self.high))
            & (levels <= np.clip(top + shift, self.low, self.high))
            for shift in self.shifts
        ]
        return max(masks, key=lambda mask: int(mask.sum()))
