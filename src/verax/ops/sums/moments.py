"""Mean and variance over axes, as all normalizations use them: values, promised bits, errors.

Not a family. The errors are those of stable algorithms (two passes, Welford's, sums of shifted
numbers), whose variance errs by a few u |mean| / deviation at most. E[x^2] - E[x]^2 errs by
u (mean / deviation)^2: `difference_of_squares_error` says by how much, and the judge names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import KAPPA, TINY, Rounding, U, sum_of_products
from verax.numerics.fma import fma
from verax.numerics.reductions import elements_read, reduce

V = TypeVar("V")
Axes = tuple[int, ...]


@dataclass(frozen=True)
class Moments:
    """What the errors of a normalization follow from; float64, reduced axes kept as 1.

    absolute = E|x|, second = E[x^2], fourth = E[x^4], central = E[(x - mean)^4]; n elements each.
    """

    mean: np.ndarray
    variance: np.ndarray
    absolute: np.ndarray
    second: np.ndarray
    fourth: np.ndarray
    central: np.ndarray
    n: int


@dataclass(frozen=True)
class PromisedMoments:
    """Of x in its own type, reduced axes kept as 1. `near` is a number near the mean, `deviation` =
    x - near, `mean_deviation` the mean of the deviation, and `variance`; those of float64.
    """

    deviation: np.ndarray
    near: np.ndarray
    mean_deviation: np.ndarray
    variance: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """See `mean_of`."""
        return np.asarray(mean_of(NumpyArith(), self.near, self.mean_deviation))

    def inverse(self, epsilon: float) -> np.ndarray:
        """1 / sqrt(variance + epsilon), in the type of x."""
        inverse = inverse_of(NumpyArith(), self.variance, epsilon)
        return np.asarray(inverse.astype(self.near.dtype))

    def normalized(self, epsilon: float, scale: Any, bias: Any = None) -> np.ndarray:
        """fma(unit, scale, bias), without a bias a plain product, where unit is (x - mean) *
        inverse: fma(deviation, inverse, -(mean_deviation * inverse))."""
        with np.errstate(all="ignore"):
            wide = inverse_of(NumpyArith(), self.variance, epsilon)
            inverse, shift = (v.astype(self.near.dtype) for v in (wide, self.mean_deviation * wide))
            unit = fma(self.deviation, inverse, -shift)
            return unit * scale if bias is None else fma(unit, scale, bias)


NEAR = 5
"""The number near the mean is the mean of every fifth sixteen elements. Odd, as rows of images
rarely are a multiple of it, so that all columns come up. However those elements differ from the
others, the mean of squares of the deviations is at most five times the variance, or so."""


def _reciprocal(m: Arith[V], n: int | V, dtype: str) -> V:
    """1 / n, rounded once; of no elements infinity, so that their mean is NaN. n: a number, or one
    that is read, a float64."""
    if isinstance(n, int):
        return m.const(1 / n if n else np.inf, dtype)
    quotient = m.div(m.const(1.0, "float64"), n)
    return quotient if dtype == "float64" else m.convert(quotient, dtype)


def near_of(m: Arith[V], total: V, count: int | V) -> V:
    """A number near the mean, from the sum of `count` of the elements (`NEAR`); 0 where that is not
    finite, so that what it lacks is infinite or NaN as the mean is."""
    near = m.mul(total, _reciprocal(m, count, m.dtype(total)))
    finite = m.lt(m.abs(near), m.like(np.inf, near))
    return m.select(finite, near, m.like(0.0, near))


def wide_mean(m: Arith[V], total: V, n: int | V) -> V:
    """The sum of n elements times 1 / n, in float64."""
    return m.mul(m.convert(total, "float64"), _reciprocal(m, n, "float64"))


def variance_of(m: Arith[V], second: V, mean_deviation: V) -> V:
    """The variance in float64: the mean of the squares of deviations from a number near the mean,
    less the square of their mean. What rounding makes negative is as much of a zero."""
    return m.abs(m.sub(second, m.mul(mean_deviation, mean_deviation)))


def inverse_of(m: Arith[V], variance: V, epsilon: float) -> V:
    """1 / sqrt(variance + epsilon), in float64, each operation rounded once."""
    one, guard = (m.const(v, "float64") for v in (1.0, epsilon))
    return m.div(one, m.sqrt(m.add(variance, guard)))


def guarded_inverse_of(m: Arith[V], variance: V, guard: float) -> V:
    """1 / (sqrt(variance) + guard), in float64, each operation rounded once."""
    one, added = (m.const(v, "float64") for v in (1.0, guard))
    return m.div(one, m.add(m.sqrt(variance), added))


def mean_of(m: Arith[V], near: V, mean_deviation: V) -> V:
    """near + mean_deviation in float64, rounded to the type of near."""
    return m.convert(m.add(m.convert(near, "float64"), mean_deviation), m.dtype(near))


def promised_mean(x: np.ndarray, axes: Axes) -> np.ndarray:
    """Mean of float32 or float64 x: the canonical sum, divided once; reduced axes kept as 1."""
    n = int(np.prod([x.shape[a] for a in axes]))
    return reduce(x, axes, keepdims=True) / x.dtype.type(n)


def promised_moments(x: np.ndarray, axes: Axes) -> PromisedMoments:
    """The canonical moments: a number near the mean, the deviation from it, the mean of that and
    the variance. The deviation and the sums are of the type of x; what follows from sums is
    computed in float64. Near the mean a difference to it is exact, so that `mean_deviation`
    has all that near lacks.
    """
    m, n = NumpyArith(), int(np.prod([x.shape[a] for a in axes]))
    with np.errstate(all="ignore"):
        near = near_of(m, reduce(x, axes, keepdims=True, every=NEAR), elements_read(n, NEAR))
        deviation = x - near
        mean_deviation = wide_mean(m, reduce(deviation, axes, keepdims=True), n)
        second = wide_mean(m, reduce(deviation, axes, "squares", keepdims=True), n)
        return PromisedMoments(
            deviation, near, mean_deviation, variance_of(m, second, mean_deviation)
        )


def promised_inverse(x: np.ndarray, axes: Axes, epsilon: float) -> np.ndarray:
    """1 / sqrt(mean(x * x) + epsilon): the canonical sum of squares, then in float64."""
    m, n = NumpyArith(), int(np.prod([x.shape[a] for a in axes]))
    with np.errstate(all="ignore"):
        second = wide_mean(m, reduce(x, axes, "squares", keepdims=True), n)
        return np.asarray(inverse_of(m, second, epsilon).astype(x.dtype))


def root_of(x: Any) -> Any:
    """Square root; exact arithmetic (object arrays) leaves its world through float64."""
    x = np.asarray(x)
    return np.sqrt(x.astype(np.float64)) if x.dtype == object else np.sqrt(x)


def moments(x: np.ndarray, axes: Axes) -> Moments:
    """The moments of float64 x over `axes`."""

    def average(v: np.ndarray) -> np.ndarray:
        return np.asarray(np.mean(v, axis=axes, keepdims=True))

    mean = average(x)
    n = int(np.prod([x.shape[a] for a in axes]))
    squares = (x - mean) ** 2
    return Moments(
        mean,
        average(squares),
        average(np.abs(x)),
        average(x**2),
        average(x**4),
        average(squares**2),
        n,
    )


def mean_error(m: Moments) -> Rounding:
    """Error of the mean."""
    return sum_of_products(m.mean, m.absolute, m.second / m.n, m.n)


def variance_error(m: Moments) -> Rounding:
    """Error of the variance by a stable algorithm.

    Its sum of squares; the deviations' own rounding; the square of the mean's error, by which two
    passes miss; and what Welford's running mean adds, u |mean| in every deviation (T. F. Chan,
    G. H. Golub, R. J. LeVeque, "Algorithms for Computing the Sample Variance", 1983).
    """
    squares, mean = sum_of_products(m.variance, m.variance, m.central / m.n, m.n), mean_error(m)
    running = np.abs(m.mean) * np.sqrt(m.variance)
    sigma = np.sqrt(
        squares.sigma**2 + (KAPPA * U) ** 2 * (4 * m.central / m.n + running**2) + mean.sigma**4
    )
    bound = squares.bound + 2 * U * m.variance + 2 * (m.n + 2) * U * running + mean.bound**2
    return Rounding(sigma, bound)


def difference_of_squares_error(m: Moments) -> Rounding:
    """Error of the variance as E[x^2] - mean^2, which no stable algorithm makes."""
    square, mean = second_error(m), mean_error(m)
    size = np.abs(m.mean)
    sigma = np.sqrt(
        square.sigma**2
        + (2 * size * mean.sigma) ** 2
        + (KAPPA * U) ** 2 * (m.mean**4 + m.second**2)
    )
    bound = square.bound + (2 * size + mean.bound) * mean.bound + 3 * U * (m.mean**2 + m.second)
    return Rounding(sigma, bound)


def second_error(m: Moments) -> Rounding:
    """Error of the mean of squares."""
    return sum_of_products(m.second, m.second, m.fourth / m.n, m.n)


def inverse_error(variance: np.ndarray, error: Rounding, epsilon: float) -> Rounding:
    """Relative error of 1 / sqrt(variance + epsilon), given the variance's error.

    The bound is infinite where the variance may be wrong by as much as it is large.
    """
    with np.errstate(all="ignore"):
        spread, worst = (np.nan_to_num(e / (variance + epsilon), nan=np.inf, posinf=np.inf)
                         for e in (error.sigma, error.bound))  # fmt: skip
        bound = np.where(worst < 1, 1 / np.sqrt(1 - np.minimum(worst, 1)) - 1, np.inf)
    return Rounding(spread / 2 + 2 * KAPPA * U, bound + 4 * U)


def affine_error(y: np.ndarray, absolute: np.ndarray, bias: Any) -> Rounding:
    """Error of y = (x - mean) k + bias, however multiplied out; absolute = |k|(|x| + |mean|)."""
    sigma = KAPPA * U * np.sqrt(4 * absolute**2 + bias**2 + 2 * y**2)
    bound = U * (6 * absolute + 2 * np.abs(bias) + 2 * np.abs(y)) + 4 * TINY
    return Rounding(sigma, bound)


def normalized_error(
    x: np.ndarray, m: Moments, epsilon: float, scale: Any, bias: Any, y: np.ndarray
) -> Rounding:
    """Error of y = (x - mean) / sqrt(variance + epsilon) scale + bias with computed moments."""
    mean, inverse = mean_error(m), inverse_error(m.variance, variance_error(m), epsilon)
    k = np.abs(scale) / np.sqrt(m.variance + epsilon)
    centered = k * np.abs(x - m.mean)
    own = affine_error(y, k * (np.abs(x) + np.abs(m.mean)), bias)
    with np.errstate(all="ignore"):
        sigma = np.sqrt(own.sigma**2 + (k * mean.sigma) ** 2 + (centered * inverse.sigma) ** 2)
        bound = own.bound + (k * mean.bound + centered) * (1 + inverse.bound) - centered
    return Rounding(sigma, np.nan_to_num(bound, nan=np.inf, posinf=np.inf))
