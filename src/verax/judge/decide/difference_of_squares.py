"""Variance as E[x^2] - mean^2 in float32: an unstable algorithm, recognized and named.

Where the mean is r times the deviation, both squares are r^2 times the variance, and their rounding
is what the difference errs by. No error model allows that (`ops.sums.moments`). A result is put
down to it on evidence about the very numbers: apart from one factor and one offset per mean,
nothing is wrong; the variance that the factor stands for differs from the true one by no more than
own runs of the formula do; and it is a difference of two float32 numbers of the squares' size, of
which there are few (`_grids`). A wrong epsilon or factor is no such number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.operator import Operator
from verax.judge.decide.criterion import Unstable
from verax.numerics import statistics as st
from verax.numerics.error_model import U
from verax.ops.sums.layer_normalization import (
    MVN_EPSILON,
    LayerNormalization,
    MeanVarianceNormalization,
)
from verax.ops.sums.moments import (
    Moments,
    affine_error,
    difference_of_squares_error,
    mean_error,
    moments,
)
from verax.ops.sums.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
)

NAME = "variance by difference of squares"
CONSTANT_ROUNDINGS = 12.0
"""Most that epsilon, root, reciprocal and scale change the variance that a factor stands for, in
unit roundoffs: 1 + 2 * (1 + 1 + 1), and twice as much for approximate reciprocal roots."""
MOST_STEPS = 8
"""Float32 numbers to either side that are tried as the mean."""
MOST_ELEMENTS = 2**22
"""Elements up to which the formula is run in sequential order."""


@dataclass(frozen=True)
class _NormalizationRows:
    """A normalization as rows [means, elements of each]: float64, one epsilon.

    channels: number of scales and biases that a mean's elements have, one after the other. order:
    of the axes of the operator's input in a row.
    """

    x: np.ndarray
    y: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    epsilon: float
    root_epsilon: float = 0.0
    channels: int = 1
    order: tuple[int, ...] = ()

    def restore(self, rows: np.ndarray, like: np.ndarray) -> np.ndarray:
        """Rows put back into the shape of the operator's input `like`."""
        shape = [like.shape[a] for a in self.order]
        return rows.reshape(shape).transpose(np.argsort(self.order))

    def variance_of(self, factor: np.ndarray) -> np.ndarray:
        """The variance that a factor 1 / (sqrt(variance + epsilon) + root_epsilon) stands for."""
        return (1 / factor - self.root_epsilon) ** 2 - self.epsilon


def applies(op: Operator, output: int) -> bool:
    """Whether output number `output` of an operator is normalized by a variance of its input."""
    kinds = (InstanceNormalization, GroupNormalization, LayerNormalization)
    trained = isinstance(op, BatchNormalization) and op.training_mode
    return output == 0 and (trained or isinstance(op, (*kinds, MeanVarianceNormalization)))


def recognize(
    op: Operator, inputs: Sequence[Any], actual: np.ndarray, statistic: float
) -> Unstable | None:
    """The unstable result that explains `actual`, the operator's first output; None where the
    algorithm does not.

    inputs: the operator's, in their declared types; only float32 is looked at. statistic: T of
    `actual` under the stable algorithms' sigma. Where the spacing of the squares is too fine to
    tell anything, the size of the error is enough up to UNRESOLVED_T.
    """
    if actual.dtype != np.float32 or inputs[0].dtype != np.float32 or actual.size == 0:
        return None
    with np.errstate(all="ignore"):
        rows = _rows(op, inputs, actual)
        return _recognized(rows, moments(rows.x, (1,)), statistic)


def one_pass_run(op: Operator, inputs: Sequence[Any]) -> np.ndarray:
    """The operator's first output by the formula in float32, where `applies`; sums in NumPy's
    order. inputs: float32."""
    x = inputs[0]
    with np.errstate(all="ignore"):
        rows = _rows(op, inputs, x)
        narrow, float32 = rows.x.astype(np.float32), np.float32
        mean = narrow.mean(axis=1, keepdims=True)
        variance = np.maximum(np.square(narrow).mean(axis=1, keepdims=True) - mean * mean, 0)
        root = np.sqrt(variance + float32(rows.epsilon)) + float32(rows.root_epsilon)
        y = (narrow - mean) / root * rows.scale.astype(float32) + rows.bias.astype(float32)
    return rows.restore(y, x)


def _recognized(rows: _NormalizationRows, m: Moments, statistic: float) -> Unstable | None:
    fit = _Fit.of(rows, m)
    if not (np.isfinite(fit.factor).all() and (fit.factor > 0).all()):
        return None
    remainder = st.group_test(st.standardised(fit.remainder, fit.sigma))
    offset = st.group_test(
        st.standardised(fit.offset, np.hypot(mean_error(m).sigma, fit.offset_noise))
    )
    variance = rows.variance_of(fit.factor)
    # Own runs tell how far the formula errs on this data, where errors may all point one way.
    spread = np.maximum(difference_of_squares_error(m).sigma, _own_spread(rows.x, m))
    size = st.group_test(st.standardised(variance - m.variance, spread))
    if max(remainder.statistic, offset.statistic, size.statistic) > st.ROUNDING_T:
        return None
    uncertain = (variance + rows.epsilon) * (CONSTANT_ROUNDINGS * U + 4 * fit.factor_noise)
    if not _is_such_a_difference(list(_grids(m, variance, fit)), variance, uncertain, statistic):
        return None
    relative = np.abs(variance - m.variance) / (2 * (m.variance + rows.epsilon))
    lost = math.log10(max(1.0, float(relative.max()) / U))
    is_allowed = statistic <= st.UNSTABLE_ALLOWED or lost <= st.UNSTABLE_DIGITS
    return Unstable(NAME, lost, remainder, is_allowed)


@dataclass(frozen=True)
class _Fit:
    """y = scale * factor * (x - mean - offset) + bias by least squares, row by row, all [means, 1].

    remainder: what that leaves of y; sigma: of rounding in it. factor_noise: standard deviation of
    the factor's error by that rounding, relative; offset_noise: of the offset's.
    """

    factor: np.ndarray
    offset: np.ndarray
    remainder: np.ndarray
    sigma: np.ndarray
    factor_noise: np.ndarray
    offset_noise: np.ndarray

    @staticmethod
    def of(rows: _NormalizationRows, m: Moments) -> _Fit:
        weight = rows.scale * rows.scale
        total = weight.sum(axis=1, keepdims=True)
        center = (weight * rows.x).sum(axis=1, keepdims=True) / total
        apart, reached = rows.x - center, rows.scale * (rows.y - rows.bias)
        squares = (weight * apart * apart).sum(axis=1, keepdims=True)
        factor = (reached * apart).sum(axis=1, keepdims=True) / squares
        height = reached.sum(axis=1, keepdims=True) / total
        left = rows.y - rows.bias - rows.scale * (factor * apart + height)
        k = np.abs(rows.scale * factor)
        sigma = affine_error(rows.y, k * (np.abs(rows.x) + np.abs(m.mean)), rows.bias).sigma
        noise = np.sqrt((weight * sigma * sigma).sum(axis=1, keepdims=True))
        return _Fit(
            factor,
            center - height / factor - m.mean,
            left,
            sigma,
            _shared_noise(rows.scale * apart * sigma, rows.channels) / squares / factor,
            noise / total / factor,
        )


def _shared_noise(terms: np.ndarray, channels: int) -> np.ndarray:
    """Standard deviation of each row's sum, [means, 1], where every term is off by a part of its
    own, and all of one channel by one that they share (a bias that the mean went into)."""
    shared = terms.reshape(len(terms), channels, -1).sum(axis=2)
    total = np.square(terms).sum(axis=1) + np.square(shared).sum(axis=1)
    return np.sqrt(total).reshape(-1, 1)


@dataclass(frozen=True)
class _Grid:
    """Numbers [means, choices] of which in each row one has to be a multiple of `spacing`
    [means, 1], if the formula was used."""

    numbers: np.ndarray
    spacing: np.ndarray

    def chance(self, uncertain: np.ndarray) -> float:
        """That variances of another origin, each known up to `uncertain` [means, 1], hold."""
        covered = 2 * uncertain * self.numbers.shape[1]
        return float(np.prod(np.minimum(1.0, covered / self.spacing)))

    def holds(self, uncertain: np.ndarray) -> np.ndarray:
        """Which rows have such a number, [means, 1]."""
        away = np.abs(self.numbers - np.rint(self.numbers / self.spacing) * self.spacing)
        return away.min(axis=1, keepdims=True) <= uncertain


def _is_such_a_difference(
    grids: Sequence[_Grid], variance: np.ndarray, uncertain: np.ndarray, statistic: float
) -> bool:
    """True if every mean's variance is one that the formula can give, by one of the grids; grids
    that are not decisive leave it to the size of the error."""
    cut_off = np.abs(variance) <= uncertain  # below zero before
    decisive = [g for g in grids if g.chance(uncertain) <= st.ONE_PASS_CHANCE]
    if any(bool((g.holds(uncertain) | cut_off).all()) for g in decisive):
        return True
    return len(decisive) < len(grids) and statistic <= st.UNRESOLVED_T


def _grids(m: Moments, variance: np.ndarray, fit: _Fit) -> Iterator[_Grid]:
    """The ways to round the formula in float32."""
    square = m.mean * m.mean
    # E[x^2] and mean^2, of which the latter is the smaller one.
    yield _Grid(variance, _spacing(square))
    # The same with an exact product: E[x^2] = variance + mean^2 with a float32 mean. Where it went
    # into a bias, it was multiplied and subtracted first.
    step = _spacing(m.mean)
    reach = min(int(np.ceil(4 * np.max(fit.offset_noise / step, initial=0.0))) + 2, MOST_STEPS)
    near = np.rint((m.mean + fit.offset) / step) * step + np.arange(-reach, reach + 1) * step
    yield _Grid(variance + near * near, _spacing(m.second))
    # (sum x^2 - (sum x)^2 / n) / n
    yield _Grid(variance, _spacing(m.n * square) / m.n)


def _spacing(numbers: np.ndarray) -> np.ndarray:
    """Distance of float32 numbers at the sizes given, or just below."""
    return np.spacing(np.abs(numbers * (1 - 2.0**-20)).astype(np.float32)).astype(np.float64)


def _own_spread(x: np.ndarray, m: Moments) -> np.ndarray:
    """By how much own float32 runs of the formula err, as a part of E[x^2] times it."""
    narrow, n = x.astype(np.float32), np.float32(x.shape[1])
    spreads = [0.0]

    def add(squares: np.ndarray, total: np.ndarray) -> None:
        mean = total / n
        own = (squares / n - mean * mean).astype(np.float64).reshape(-1, 1)
        spreads.append(st.root_mean_square((own - m.variance) / m.second))

    square = narrow * narrow
    add(square.sum(axis=1), narrow.sum(axis=1))
    if x.size <= MOST_ELEMENTS:
        for order in (slice(None), slice(None, None, -1)):
            add(*(np.add.accumulate(v[:, order], axis=1)[:, -1] for v in (square, narrow)))
    return max(spreads) * m.second


def _rows(op: Operator, inputs: Sequence[Any], actual: np.ndarray) -> _NormalizationRows:
    """The operator's first input and output, and its parameters, as rows."""
    x = inputs[0].astype(np.float64)
    scale, bias = (
        np.full((), neutral) if a is None else a.astype(np.float64)
        for a, neutral in zip((*inputs[1:], None, None)[:2], (1.0, 0.0))
    )
    rank, epsilon, root_epsilon = x.ndim, float(getattr(op, "epsilon", 0.0)), 0.0
    axes: tuple[int, ...] = tuple(range(2, rank))
    if isinstance(op, LayerNormalization):
        axes = tuple(range(op.axis % rank, rank))
    elif isinstance(op, MeanVarianceNormalization):
        axes, root_epsilon = tuple(sorted(a % rank for a in op.axes)), MVN_EPSILON
    else:
        channels = (1, -1, *(1,) * (rank - 2))
        scale, bias = (v.repeat(x.shape[1] // v.size).reshape(channels) for v in (scale, bias))
        axes = (0, *axes) if isinstance(op, BatchNormalization) else axes
    remaining_axes = tuple(a for a in range(rank) if a not in axes)
    # Channels of one group lie side by side and share a mean.
    means = (
        x.shape[0] * op.num_groups
        if isinstance(op, GroupNormalization)
        else math.prod(x.shape[a] for a in remaining_axes)
    )

    def as_rows(v: np.ndarray) -> np.ndarray:
        return np.broadcast_to(v, x.shape).transpose(*remaining_axes, *axes).reshape(means, -1)

    return _NormalizationRows(
        as_rows(x),
        as_rows(actual.astype(np.float64)),
        as_rows(scale),
        as_rows(bias),
        epsilon,
        root_epsilon,
        x.shape[1] // op.num_groups if isinstance(op, GroupNormalization) else 1,
        (*remaining_axes, *axes),
    )
