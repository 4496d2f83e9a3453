"""Statistics of rounding errors, and every limit that the judge decides by.

The limits were measured on honest float32 implementations and on planted mistakes; the figures are
in the project's numerics notes. No other room holds a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verax.numerics.chi_square import chi_square_quantile
from verax.numerics.formats import FORMATS

GROUP_MEAN, GROUP_SINGLE = 4.0, 256.0
"""A group of m elements may reach rms(z) = sqrt(GROUP_MEAN + GROUP_SINGLE / m): 2 when large, 16
when single."""
ROUNDING_T = 1.0
"""T at or below this is rounding."""
ORDER_T = 2.0
"""Limit of T after division by the spread of real float32 orders of summation."""
WINOGRAD_T = 8.0
"""Limit of T under Winograd's sigma."""
WINOGRAD_REGION_T = 4.0
"""The same in regions, where noise of the size of own errors is the scale: honest ones reached 1.6,
behind a saturated Tanh 2.7."""
WINOGRAD_POOL = {2: 7, 4: 11, 6: 15}
"""Output tile of F(m x m, 3 x 3) to the window in which Winograd mixes magnitudes."""
STRASSEN_T = 2.0
"""Limit of T under the largest sigma among the places that share products, times the spread of an
own run by Strassen's algorithm, also in regions; honest ones of one level and of two reached 1."""
UNSTABLE_ALLOWED = 2.0
"""T up to which a result of an unstable algorithm needs no one's leave: stable ones reach 0.1 where
it matters (0.4 on plain data), so it lost at most some 20 times what they do."""
UNSTABLE_DIGITS = 2.0
"""Decimal digits that an unstable algorithm may lose of float32's 7.2 without anybody's leave."""
UNRESOLVED_T = 16.0
"""T up to which a result is put down to an unstable algorithm by the size of its errors alone,
where float32 is too fine for its numbers to give the algorithm away."""
ONE_PASS_CHANCE = 0.1
"""Chance that variances of another origin are differences of two float32 squares, all of them, up
to which such variances are put down to that formula."""
FFT_T = 2.0
"""Limit of T under the errors of an own convolution by Fourier transforms."""
FFT_BOUND = 2.0
"""Limit of |e| / (2 u (sum_c |w_c| |x_c| + |y|)) for a convolution by Fourier transforms; honest
ones reached 1.87."""
FFT_TAPS = 25
"""Kernel positions from which on libraries use Fourier transforms."""
BOUND_RATIO = 1.0
"""An error above this multiple of the hard bound is proven not to be rounding."""
SUSPICIOUS_T = 1.5
"""For sampled sigmas (Monte Carlo arithmetic): T up to here is undecided, above it a mistake."""
WIDER_T = 3.0
"""T under the sigma of the whole network's rounding from which on no view of it excuses a value:
own runs in other orders may err twice as much."""
VISIBLE_T = 1.5
"""T of a planted change from which on it counts as visible: three sigmas throughout a large group,
where honest rounding may reach two."""
REACHES_OUTPUTS = 3.0
"""A planted change reaches the outputs when their error is this many times an honest run's."""
NEAR_OVERFLOW = 4.0
"""Results within this factor of the largest number may overflow on the way (sinh by exp)."""
HEAVY_TAIL = 5.0
"""Largest ratio between the sizes of two Monte Carlo samples that still allows a z test."""
FLUSHED_TERMS = 4096
"""Terms of a sum that a subject may have flushed to zero before the error is looked at again."""
HEAVY_TAIL_ELEMENTS = 64
"""Fewest elements on which the heavy-tail guard means anything."""
MANY_ELEMENTS = 200
"""From this many elements on, few Monte Carlo samples are enough."""
SAMPLES_MANY, SAMPLES_FEW = 4, 16
"""Monte Carlo samples for values with many and with few elements."""
CALIBRATED_T = 6.0
"""T above 1 up to which honest samples are held against each other before the subject is accused.
Errors that a whole channel shares (of a factor computed once per channel) scatter like one number,
not like thousands: there honest runs reach two."""
TIE_NOISE = 4.0
"""Multiple of sigma within which two candidates of an integer result count as tied."""
OVERLAP_UNITS = 16.0
"""Rounding of an intersection over union in float32, in units of unit roundoff: two differences
and a product per area, a sum, a difference, a quotient."""
JUMP_REACH = 4.0
"""An error this many times larger than the farthest honest run is no jump of theirs."""
BLIND = 5e-3
"""A check that cannot see a relative error of this size in some float32 value is blind to it."""
VISIBLE = 1e-3
"""Relative error of a float32 value that counts as seen when the coverage of a check is stated."""
USUAL_SPREAD = 2.0
"""How far own runs in other orders of summation err beyond sigma on ordinary data, at most."""
SPREAD_MARGIN = 30.0
"""Where sigma shows errors this many times smaller than VISIBLE, that spread is not measured."""
LEAST_SEEN = 0.5
"""Share of the values inside below which a check that sees no more of them is blind as a whole."""
BLIND_UNITS = 32.0
"""The same for coarser formats, in their unit roundoffs, which no check can go much below: three
sigmas of 50 roundings one after the other are 9 units."""
FLOAT32_UNIT, FLOAT16_UNIT = 2.0**-24, 2.0**-11
"""Unit roundoffs of formats that weights are stored in."""
CONSTANT_ROUNDINGS = 1.5
"""Standard deviation, in unit roundoffs, of a weight that a converter computed anew (BatchNorm's
scale, times the weight, rounded each time)."""
FLOAT64_NOISE = 2.0**-40
"""Relative difference that two float64 evaluations of one function may show: sums of thousands of
terms in different orders, some of them cancelling."""
SAME_LAYER = 1e-4
"""Relative distance up to which two values are taken for the same layer's when inputs are matched:
far above rounded weights, far below another order of channels."""
CLEARLY = 0.5
"""A candidate replaces a likelier one only when its distance is below this share of the other's."""
HARNESS_EXPLAINS = 0.05
"""A fault of the harness is looked at closely when it leaves no more than this share of the spread
of what the subject gave: a quick look in float32, which decides nothing."""
PROBE = 2.0**-12
"""Relative disturbance by which the power of a check is measured."""
NORMAL_MEDIAN = 0.6745
"""Median of |z| for a normal z: turns a median error into a standard deviation."""
LOST = 16.0
"""Most that an output may err from start to end, in units of what float32 rounding may do there (of
large groups, the root mean square of error / sigma; of a single element 8 times that; honest
rounding reaches 2), for a fast algorithm in float32 to be *precision* and for a certificate to
hold. Sound Winograd and Strassen in ordinary networks stay within 4."""
AMPLIFIES = 16.0
"""Gain of a node, in relative error, from which on it counts as what makes an error large;
no node of 20 ordinary networks reached it, in four coarser formats."""
COARSE_UNIT = 2.0**-17
"""Errors that look like a unit roundoff above this are worth explaining by a coarser arithmetic:
the finest, TF32, has 2**-11; float32 has 2**-24."""
COARSE_T = 8.0
"""T of a region from which on a coarser arithmetic is tried."""
LIKENESS, CHANCE, CHANCE_ELEMENTS = 0.25, 1e-6, 5
"""See `least_likeness`."""
FARTHEST_COARSE = 0.5
"""No coarser arithmetic that anybody uses moves a whole network's answer by more than this."""
SAME_SIZE = 2.0
"""Most that the errors of a subject and of a run in its arithmetic may differ in size."""
LIKE_ENOUGH = 0.85
"""Correlation from which on BatchNorm is folded in the likeliest arithmetic alone."""
MANY_NUMBERS = 4096
"""Numbers above which it does not matter how many of them are repeated."""
CONFIRMED = 0.7
"""A coarser arithmetic is confirmed when its runs leave at most this part of the error, half of its
variance; measured on OpenVINO's bf16: 0.1 to 0.5."""
EXPLAINED_WELL = 0.02
"""An arithmetic that leaves at most this part of the error is not improved any further."""
EXPLAINED_BEST = 0.1
"""An arithmetic that leaves at most this part of the error, 1 % of its variance, is confirmed even
where its runs differ by less than that: a number that a last bit takes across an edge of the coarse
format moves by a whole unit, so seldom that no run of ours shows it."""
TABLE_LEAVES = 0.5
"""Most of an error that a fitted table of a function may leave to be what made it: on recorded runs
the table of one network left 0.3 of another network's."""
NUMBERS_PER_PRODUCT = 4
"""Shown numbers for each product of a region below which nobody can tell which were coarse."""
NEARER = 0.97
"""An exception is taken where it leaves less than this part of what was left without."""
MOST_ATTEMPTS, REFINING_WORK = 200, 1e8
"""Most runs of a region in which exceptions are sought, and most inner elements of all of them."""
ASSIGNING_WORK = 4e8
"""Elements that are computed while the products of a region are decided one by one: 400 runs of the
gradients of a network of 17 convolutions, which take three sweeps of 49 products."""
NEARLY_ALL_BITS = 0.9
"""Part of a product's float32 numbers that one simulated matrix unit has to give for the size of
the others' errors to count for nothing. Of 160 recorded products in FP8 (K = 32 to 512) one route
gives all; another gives up to 0.99 where 32 terms cancel, and at most 0.86 elsewhere."""
PROMISING = 0.25
"""A coarser arithmetic is worth computing in full if it leaves at most this part of the error."""
UNITS_PROMISING = 3.0
"""The same where it leaves at most this multiple of what matrix units add to the rounding."""
GRID_REACH = 16.0
"""Standard deviations of float32 rounding within which a value stored in a coarser format may have
been rounded to either neighbour."""
REACH_DRAWS = 4
"""Backward passes from random signs that measure how far every inner value reaches."""
CLAIMED = 0.99
"""Share of the errors of a value's smallest visible size, drawn by chance, that have to show."""
ADJOINT_ELEMENTS = 8
"""Up to this many shown numbers get their exact spread, by one backward pass each."""
DERIVATIVE_STEP, DERIVATIVE_FLOOR = 2.0**-20, 2.0**-30
"""Step of a central difference in float64, relative to |x| and at least: wrong by about 1e-6."""

DISTINCT = 3.0
"""Two meanings that differ by at most this multiple of sigma cannot be told apart on an input."""
EXPLAINED = 0.6
"""A rival meaning explains an error only if T under it is at most this part of the truth's T."""
NEAR_EXPLAINED = 0.5
"""Part of an error's size that a rival may leave, at the first look, to be looked at closely."""
EXPLAINED_NOISE = 8.0
"""Multiple of sigma's root mean square that is never too much to leave at the first look."""
MATCHED_CHANCE = 1e-6
"""Probability with which an honest region is accused by projecting its errors onto mistakes."""
FEW_OUTPUTS = 256
"""Different errors below which mistakes look alike: causes in a coarser arithmetic need to leave
EXPLAINED_BEST of them."""
MATCHED_CLUSTERS = 8
"""Slices along an axis from which their sums tell how errors are correlated within them."""
MATCHED_MANY_CLUSTERS = 32
"""The same for slices that go through the whole batch, which are seldom correlated."""
MATCHED_CURVATURE = 0.1
"""How much of a mistake's effect may be missing or too much, as it is not quite additive."""
MATCHED_UNSURE = 0.25
"""How far the errors may be from holding a mistake once, however uncertain that is."""
MATCHED_LEAST, MATCHED_MOST = 4.0, 32.0
"""Size of a mistake's effect over the errors' root mean square: below nothing would show, and an
honest error holds none of a larger one by chance. In between a hypothesis counts as one try."""
MATCHED_ROUGH = 4.0
"""By what factor the first order may misjudge how much of an effect the errors hold."""
MATCHED_NAMED = 3
"""Mistakes found by projection that are named."""
STANDS_OUT = 5.0
"""Multiple of the others' errors from which on an element of a parameter is looked at by itself."""
SAME_MEANING = 2.0**-40
"""Relative size of a difference up to which two float64 evaluations are of one meaning."""
ORDERS_WORTH = 16.0
"""T under a rival meaning up to which real orders of summation are tried for it."""
RECOVERED = 5.0
"""Multiple of its own standard error above which a correction of a parameter is believed."""
SHARED_ERROR = 2.0**-10
"""Share of the largest correction, in standard errors, below which another is believed no more:
what all elements share (the error of a sum before them) is no noise."""

DERIVED_SAMPLES, DERIVED_FAR = 16, 64.0
"""Runs under random rounding that a bound is derived from, and how many times larger the noise is
of as many further runs, which look for comparisons that rounding decides."""
DERIVED_MARGIN = 1.5
"""How much farther than the farthest of those runs an answer may lie. Measured on the functions of
docs/derived_bounds.md: correct variants reached 1.06 of the limit without."""
DERIVED_EDGES = 2.0**-4
"""Share of an output's elements that may lie at such comparisons."""
LOCATED = 6.0
"""Standard deviations from which on an element of a wrong output is shown as wrong: less than a
verdict needs, as the output is known to be wrong."""
REACTING = 0.05
"""Share of an output's elements that must react to its inputs for agreement to mean anything:
half of them do behind Relu, one in twenty behind a strong threshold."""
REACTION = 2.0**-4
"""Relative disturbance of an input that its outputs have to react to."""
ACCUMULATION_T = 1.0
"""T under the sigma of a coarser accumulation up to which errors count as of its size."""
ACCUMULATION_LEAST = 0.03
"""Least root mean square of errors over that sigma: own runs in bfloat16 and float16, in order and
in blocks of 8 to 128, of 16 to 4,096 terms, reached 0.09 to 13 (positive terms, one by one)."""
ACCUMULATION_ELEMENTS = 16
"""Different errors that have to be seen: any single number has the size of some accumulation."""


@dataclass(frozen=True)
class GroupTest:
    """T = max over groups of rms(z) / limit(size of group), and the group that reached it."""

    statistic: float
    group: str


def group_limit(size: int) -> float:
    """Largest honest rms(z) of a group of `size` elements."""
    return math.sqrt(GROUP_MEAN + GROUP_SINGLE / max(1, size))


def ratio(z: np.ndarray) -> float:
    """The worst group's root mean square of z; for small groups less, as `group_limit` is more
    generous to them. Compare with LOST. z: errors over what they may be, as for `group_test`."""
    return math.sqrt(GROUP_MEAN) * group_test(z).statistic


def standardised(error: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """z = error / sigma; 0 where the error is 0, infinite where only sigma is 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(error == 0, 0.0, error / sigma)


def group_test(z: np.ndarray, same: np.ndarray | None = None) -> GroupTest:
    """Test z over all elements, slices along each axis, pixels, channel x row, single elements.

    Axis 0 is the batch, axis 1 the channel, the rest spatial (or time and features). same: labels
    of the elements, of z's shape; those of one label are one number that was computed several
    times, and a group has only as many as it effectively has of different ones (Kish 1965).
    """
    if z.size == 0:
        return GroupTest(0.0, "all")
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.nan_to_num(z * z, nan=np.inf, posinf=np.inf)
        best = GroupTest(-1.0, "all")
        for name, axes in _groups(z.ndim):
            means = squares.mean(axis=axes) if axes else squares
            size = math.prod(z.shape[a] for a in axes)
            over = means / group_limit(size) ** 2
            if same is not None and axes:
                over = means / (GROUP_MEAN + GROUP_SINGLE / _different(same, axes))
            statistic = math.sqrt(float(over.max()))
            if statistic > best.statistic:
                position = np.unravel_index(int(over.argmax()), over.shape)
                best = GroupTest(statistic, _label(name, [int(i) for i in position]))
    return best


def equal_rows_test(z: np.ndarray, expected: np.ndarray, error: np.ndarray) -> GroupTest:
    """`group_test` where elements with the same expected value and the same error, as in equal rows
    (padding), are one number. As without where the whole is hardly more than one number: constant
    data is no evidence, and real orders of summation have to tell."""
    same = _labels(expected, error)
    effective_count = float(_different(same, tuple(range(same.ndim)))) if same.size else 0.0
    return group_test(z, same if effective_count >= GROUP_SINGLE / GROUP_MEAN else None)


def _labels(expected: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Where there is no error each element is its own: it is evidence."""
    keys = expected.ravel() + 1j * error.ravel()
    labels = np.unique(keys, return_inverse=True)[1].reshape(-1)
    right = error.ravel() == 0
    labels[right] = labels.max(initial=0) + 1 + np.arange(np.count_nonzero(right))
    return labels.reshape(expected.shape)


def _different(same: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Effective number of different elements of each group: m^2 / sum of squares of how often each
    occurs, of the shape that is left without `axes`."""
    remaining_axes = [a for a in range(same.ndim) if a not in axes]
    rows = np.sort(
        same.transpose([*remaining_axes, *axes]).reshape(
            *(same.shape[a] for a in remaining_axes), -1
        )
    )
    count = rows.shape[-1]
    flat = rows.reshape(-1, count)
    first = np.ones(flat.shape, bool)
    first[:, 1:] = flat[:, 1:] != flat[:, :-1]
    begin = np.flatnonzero(first)
    lengths = np.diff(np.append(begin, flat.size)).astype(np.float64)
    squares = np.bincount(begin // count, lengths**2, len(flat))
    return (count**2 / squares).reshape(rows.shape[:-1])


def largest_groups(values: np.ndarray) -> dict[str, float]:
    """By kind of group as in `group_test`, the largest root mean square of one group."""
    squares = np.square(values.astype(np.float64))
    return {
        name: math.sqrt(float(np.max(squares.mean(axis=axes) if axes else squares)))
        for name, axes in _groups(values.ndim)
        if values.size
    }


def _label(name: str, indices: list[int]) -> str:
    """`channel 3`, `channel 3, row 4`, `pixel 4, 9`."""
    axis_names = name.split(", ")
    if len(axis_names) == len(indices):
        return ", ".join(f"{axis_name} {i}" for axis_name, i in zip(axis_names, indices))
    return f"{name} {', '.join(map(str, indices))}".strip()


def _groups(rank: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names of the groupings of a tensor and the axes that each averages over."""
    all_axes = tuple(range(rank))
    yield "all", all_axes
    if rank == 0:
        return
    groupings: dict[tuple[int, ...], str] = {(0,): "image"} if rank > 1 else {}
    if rank > 1:
        groupings[(1,)] = "channel"
    for axis in range(2, rank):
        names = {rank - 1: "column", rank - 2: "row"}
        groupings[(axis,)] = names.get(axis, f"slice of axis {axis}")
    if rank > 2:
        groupings[tuple(range(2, rank))] = "pixel"
    if rank > 3:
        groupings[(1, rank - 2)] = "channel, row"
    groupings[all_axes] = "element"
    for axes, name in groupings.items():
        yield name, tuple(a for a in all_axes if a not in axes)


def blind_from(dtype: str) -> float:
    """Relative error from which on a value of this element type must be visible (see BLIND)."""
    return max(BLIND, _coarse_units(dtype))


def visible_from(dtype: str) -> float:
    """Relative error of a value of this element type by which coverage is stated (see VISIBLE)."""
    return max(VISIBLE, _coarse_units(dtype))


def is_blind(seen: int, values: int) -> bool:
    """Whether a check that saw into `seen` of `values` values proves nothing as a whole."""
    return seen < LEAST_SEEN * values


def smallest_error(dtype: object) -> float:
    """Relative error from which on a value of this element type is another number; 0 for what is
    no float."""
    name = str(dtype)
    return 2 * FORMATS[name].unit_roundoff if name in FORMATS else 0.0


def least_share(directions: float) -> float:
    """Share of its root mean square that the size of a random vector of so many independent,
    equally large directions exceeds as often as CLAIMED asks."""
    if math.isinf(directions):
        return 1.0
    return math.sqrt(chi_square_quantile(directions, 1 - CLAIMED) / directions)


def most_share(draws: int) -> float:
    """Share of a number that the root mean square of `draws` of its products with random signs
    does not exceed, as often as CLAIMED asks; 1 for no draws, where it is known."""
    return math.sqrt(chi_square_quantile(draws, CLAIMED) / draws) if draws else 1.0


def _coarse_units(dtype: str) -> float:
    return BLIND_UNITS * FORMATS[dtype].unit_roundoff if dtype in FORMATS else 0.0


def sampled_sigma(squares: np.ndarray) -> np.ndarray:
    """Standard deviation from the mean squares of few samples, half of it shared by all elements.

    squares: mean over samples of (sample - expected)^2, per element.
    """
    return np.sqrt(0.5 * squares + 0.5 * squares.mean()) if squares.size else squares


def rounding_sigma(squares: np.ndarray) -> np.ndarray:
    """`sampled_sigma`, whose shared half is that of the elements that round at all: where most of
    an image is exactly 0, rounding is what it is where numbers are. squares: as there."""
    moving = squares[squares > 0]
    return np.sqrt(0.5 * squares + 0.5 * (moving.mean() if moving.size else 0.0))


def least_likeness(elements: int) -> float:
    """Least correlation between a subject's errors and those of a run in a coarser arithmetic for
    that arithmetic to be looked at closely.

    Unrelated normal errors exceed it with probability CHANCE: (1 - r^2)^((n - 2) / 2). Infinite
    below CHANCE_ELEMENTS.
    """
    if elements < CHANCE_ELEMENTS:
        return math.inf
    return max(LIKENESS, math.sqrt(1 - CHANCE ** (2 / (elements - 2))))


def most_left(elements: int, tried: int) -> float:
    """Part of the error that the best of `tried` programs leaves by chance with probability CHANCE,
    where `elements` numbers are shown: as `least_likeness`, with that many attempts. 1 where one
    program was tried alone; 0 where there are too few numbers to tell."""
    if not tried:
        return 1.0
    if elements < CHANCE_ELEMENTS:
        return 0.0
    return (CHANCE / tried) ** (1 / (elements - 2))


def root_mean_square(values: np.ndarray) -> float:
    """sqrt(mean(values^2)), 0 for no values."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


CHANCE_BITS = 7.0
"""Bits that have to speak for an explanation of a wrong answer: a node has some 40 to 150
hypotheses. Of the wrong answers of ONNX's node cases, those that were explained by chance (two or
three small numbers) have 2 to 4 bits, those that are explained rightly 9 and more."""
PRIOR_BITS = 1.5
"""Bits more for each step from a usual mistake to what can happen to any operator."""
QUANTIZED_WEIGHTS = 0.2
"""Largest root mean square, relative to the weights', by which weights in 4 bits or more differ
from what was quantized: of normally distributed weights some 0.01 in int8, 0.13 in int4."""
ON_GRID = 2.0**-10
"""How far numbers may lie beside a grid of quantization, in parts of a step: scales are float32."""
FITTED_STEP = 0.75
"""How far a weight may lie from its code times the step that is fitted to all: half a step, and
what the fit errs at codes of 127 (by simulation, of 9 weights and more, up to 0.2)."""
