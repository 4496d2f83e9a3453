"""The criterion: numbers in, a decision out. Knows neither graphs nor operators.

The order of the tests is the order of their cost and of their certainty: equality, sigma, the hard
bound, real orders of summation, Winograd, coarser formats. Every limit is in
`verax.numerics.statistics`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from verax.base.deadline import require_time
from verax.base.figures import times
from verax.judge.decide.coarse import Coarse
from verax.judge.decide.possible import UNCLAIMED
from verax.numerics import statistics as st
from verax.numerics import strassen
from verax.numerics.compare import same_value
from verax.numerics.error_model import FLUSHED, TINY, Rounding, U
from verax.numerics.winograd import NAMES
from verax.records.verdict import Kind

FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Tiers:
    """Costly further tests, computed only when reached; None where they do not apply.

    orders: the node in float32 in several honest orders of summation; promised: in the order that
    it promises, one FMA per product, which NumPy takes seconds for. winograd: own runs of
    F(m x m, 3 x 3) by m. strassen: given sigma, own runs by Strassen's algorithm, each with
    the sigma that it spreads. fft: an own run by Fourier transforms, and its bound. unstable: given
    T, the unstable algorithm that explains the numbers. precisions: the value under coarser
    arithmetics, as `actual` suggests them. ruled_out: fast algorithms that could compute the node
    and that the caller excludes, in words. claimed: whether the subject says that it uses
    Strassen's algorithm; without, errors of its size leave the answer open.
    """

    orders: Callable[[], Iterable[np.ndarray]] | None = None
    promised: Callable[[], np.ndarray] | None = None
    winograd: Callable[[], Mapping[int, np.ndarray]] | None = None
    strassen: Callable[[np.ndarray], Iterable[tuple[np.ndarray, np.ndarray]]] | None = None
    fft: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None
    unstable: Callable[[np.ndarray, float], Unstable | None] | None = None
    precisions: Callable[[np.ndarray], Iterable[Coarse]] | None = None
    ruled_out: str = ""
    claimed: bool = True


@dataclass(frozen=True)
class Unstable:
    """A result of an unstable algorithm, by name.

    lost: decimal digits that it cost, of the 7.2 of float32, in the worst place; test: of the
    differences that the algorithm does not account for, at most 1; is_allowed: it lost so little
    that no one's leave is needed (UNSTABLE_ALLOWED).
    """

    name: str
    lost: float
    test: st.GroupTest
    is_allowed: bool


@dataclass(frozen=True)
class Decision:
    """A kind, the reason in words, the deciding test and its numbers (see `verdict.Finding`)."""

    kind: Kind
    reason: str
    test: str
    statistic: float = 0.0
    group: str = ""
    bound_ratio: float | None = None
    sigma: float = 0.0
    error: float = 0.0
    ratio: float = 0.0
    unstable: Unstable | None = None


def decide(
    actual: np.ndarray,
    expected: np.ndarray,
    rounding: Rounding | None,
    tiers: Tiers = Tiers(),
) -> Decision:
    """Judge `actual` (declared dtype) against `expected` (float64, or integers) elementwise.

    rounding None means that the value is exact: any difference is a mistake.
    """
    if actual.shape != expected.shape:
        return Decision(
            Kind.mistake,
            f"the shape is {actual.shape}, it should be {expected.shape}",
            "shape",
            math.inf,
        )
    if rounding is None:
        return _decide_exact(actual, expected, tiers)
    if actual.dtype.kind in "biu":
        return _decide_quantized(actual, expected, rounding)
    stray = _non_finite(actual, expected)
    if stray is not None:
        return stray
    if bool(same_value(actual, _round_once(expected, actual.dtype)).all()):
        return Decision(Kind.identical, "every bit is the meaning's value rounded once", "equality")
    return _decide_rounding(actual, expected, rounding, tiers)


def _round_once(expected: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return expected.astype(dtype)


def _decide_exact(actual: np.ndarray, expected: np.ndarray, tiers: Tiers) -> Decision:
    rounded = _round_once(expected, actual.dtype)
    differs = ~same_value(actual, rounded)
    count = int(differs.sum())
    if count == 0:
        return Decision(Kind.identical, "an exact operation, and every bit agrees", "exact")
    wide = actual.astype(np.float64), expected.astype(np.float64)
    error = st.root_mean_square((wide[0] - wide[1])[np.isfinite(wide[0]) & np.isfinite(wide[1])])
    share = f"{count} of {actual.size} elements"
    if actual.dtype.kind not in "biu":
        flushed = differs & (np.abs(wide[1]) < FLUSHED) & (wide[0] == 0)
        if bool((flushed == differs).all()):
            return Decision(
                Kind.rounding,
                f"{share} were subnormal and were flushed to zero, nothing else differs",
                "exact, subnormals flushed",
                error=error,
            )
        if bool(np.isnan(wide[1][differs]).all()):
            return Decision(
                Kind.undecided,
                f"{share} are NaN by the meaning and something else here: runtimes differ in how "
                "NaN passes this operation",
                "non-finite",
                error=error,
            )
        coarse = _coarse(actual, tiers)
        if coarse is not None:
            name, result = coarse
            return Decision(Kind.precision, PRECISION.format(name), name, result.statistic,
                            result.group, error=error)  # fmt: skip
    return Decision(
        Kind.mistake,
        f"{share} differ, and this operation does not round: nothing may differ",
        "exact",
        math.inf,
        "element",
        math.inf,
        0.0,
        error,
    )


def _decide_quantized(actual: np.ndarray, expected: np.ndarray, rounding: Rounding) -> Decision:
    error = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    if not error.any():
        return Decision(Kind.identical, "every integer agrees", "exact")
    ratio = float((error / (rounding.bound + TINY)).max())
    size = st.root_mean_square(error)
    if ratio <= st.BOUND_RATIO:
        return Decision(
            Kind.rounding,
            "integers differ only where the real number lies at the edge between two of them",
            "quantum",
            0.0,
            "",
            ratio,
            st.root_mean_square(rounding.sigma),
            size,
        )
    return Decision(
        Kind.mistake,
        f"an integer is off by {error.max():g}, {times(ratio)} times what rounding can do",
        "quantum",
        math.inf,
        "element",
        ratio,
        st.root_mean_square(rounding.sigma),
        size,
    )


def _non_finite(actual: np.ndarray, expected: np.ndarray) -> Decision | None:
    """The decision on NaN and Inf; None when they agree and the other elements can be judged."""
    wide = actual.astype(np.float64)
    largest = _largest(actual.dtype)
    meaning_bad, given_bad = ~np.isfinite(expected), ~np.isfinite(wide)
    if not meaning_bad.any() and not given_bad.any():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        overflows = st.NEAR_OVERFLOW * np.abs(expected) >= largest
        agrees = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
        agrees |= overflows & np.isinf(wide) & (np.sign(wide) == np.sign(expected))
    stray = given_bad & ~meaning_bad & ~agrees
    if stray.any():
        return Decision(
            Kind.mistake,
            f"{int(stray.sum())} of {actual.size} elements are NaN or infinite where the meaning "
            "is an ordinary number; rounding never does this",
            "non-finite",
            math.inf,
            "element",
            math.inf,
        )
    lost = meaning_bad & ~agrees & ~(overflows & ~given_bad)
    if lost.any():
        return Decision(
            Kind.undecided,
            f"{int(lost.sum())} of {actual.size} elements are NaN or infinite by the meaning and "
            "something else here; this input takes the network outside of ordinary numbers",
            "non-finite",
        )
    if np.isnan(expected).any():
        return Decision(
            Kind.undecided,
            f"{int(np.isnan(expected).sum())} of {actual.size} elements are NaN in both: a NaN "
            "proves nothing",
            "non-finite",
        )
    return None


def _largest(dtype: np.dtype) -> float:
    if dtype.name == "bfloat16":
        return FLOAT32_MAX
    return float(ml_dtypes.finfo(dtype).max)


def _decide_rounding(
    actual: np.ndarray, expected: np.ndarray, rounding: Rounding, tiers: Tiers
) -> Decision:
    wide = actual.astype(np.float64)
    ordinary = np.isfinite(expected) & np.isfinite(wide)
    error = np.where(ordinary, wide - np.where(ordinary, expected, 0.0), 0.0)
    sigma = np.where(ordinary, rounding.sigma, np.inf) + TINY
    bound = np.where(ordinary, rounding.bound, np.inf) + TINY
    z = st.standardised(error, sigma)
    overall = st.group_test(z)
    ratio = float((np.abs(error) / bound).max()) if error.size else 0.0
    sizes = (ratio, st.root_mean_square(rounding.sigma[ordinary]), st.root_mean_square(error))

    def answer(
        kind: Kind, reason: str, test: str, result: st.GroupTest | None = None, limit: float = 1.0
    ) -> Decision:
        result = result or overall
        return Decision(kind, reason, test, result.statistic / limit, result.group, *sizes)

    if overall.statistic <= st.ROUNDING_T:
        return answer(
            Kind.rounding, "the errors are no larger than honest rounding makes them", "sigma"
        )
    alike = st.equal_rows_test(z, expected, error)
    if alike.statistic <= st.ROUNDING_T:
        return answer(
            Kind.rounding,
            "the errors are no larger than honest rounding makes them, counting once what was "
            "computed from the same numbers",
            "sigma, equal rows",
            alike,
        )
    # What may have been flushed to zero proves nothing: from here on the rest alone is judged.
    flushed = np.abs(error) <= FLUSHED * st.FLUSHED_TERMS
    error, z = np.where(flushed, 0.0, error), np.where(flushed, 0.0, z)
    overall = st.group_test(z)
    if overall.statistic <= st.ROUNDING_T:
        return answer(
            Kind.rounding,
            "only numbers below the smallest normal float32 differ: the subject flushes them to 0",
            "sigma, subnormals flushed",
        )
    ratio = float((np.abs(error) / bound).max())
    sizes = (ratio, *sizes[1:])
    spread = np.ones((1,) * z.ndim)

    def in_order(runs: Iterable[np.ndarray]) -> Decision | None:
        """The decision `rounding` where sums in one of these orders err as much, else None."""
        nonlocal spread
        for run in runs:
            require_time()
            own = st.standardised(run.astype(np.float64) - expected, sigma)
            own = np.where(flushed, 0.0, own)
            spread = np.maximum(spread, channel_rms(own))
            # More orders could only widen the spread: the first that suffices is enough.
            ordered = st.group_test(z / spread)
            if ordered.statistic <= st.ORDER_T:
                return answer(
                    Kind.rounding,
                    "on this data all rounding errors point the same way, and plain float32 sums "
                    "in other orders err as much",
                    ORDERS,
                    ordered,
                    st.ORDER_T,
                )
        return None

    bounded = ratio <= st.BOUND_RATIO
    orders = iter(tiers.orders() if bounded and tiers.orders is not None else ())
    decided = in_order(itertools.islice(orders, 1))
    if decided is not None:
        return decided
    fast = _winograd(error, expected, sigma, tiers)
    doubt: _FastAlgorithm | None = None
    if not fast.name:
        before, fast = fast, _strassen(error, expected, sigma, tiers, fast.attempts)
        if fast.name and not tiers.claimed:
            doubt, fast = fast, before
    if fast.name:
        return answer(Kind.precision, fast.reason, fast.name, fast.test, fast.limit)
    last = (run() for run in [tiers.promised] if bounded and run is not None)
    decided = in_order(itertools.chain(orders, last))
    if decided is not None:
        return decided
    unstable = None if tiers.unstable is None else tiers.unstable(actual, overall.statistic)
    if unstable is not None:
        words = UNSTABLE.format(unstable.name, unstable.lost, -math.log10(U))
        named = answer(Kind.precision, words, unstable.name, unstable.test)
        return dataclasses.replace(named, unstable=unstable)
    coarse = _coarse(actual, tiers, flushed)
    if coarse is not None:
        return answer(Kind.precision, PRECISION.format(coarse[0]), *coarse)
    fast = _fourier(error, expected, sigma, tiers, fast.attempts)
    if fast.name:
        return answer(Kind.precision, fast.reason, fast.name, fast.test, fast.limit)
    if doubt is not None:
        reason = UNCLAIMED.format("Strassen's algorithm")
        return answer(Kind.undecided, reason, doubt.name, doubt.test, doubt.limit)
    if ratio > st.BOUND_RATIO and not fast.attempts:
        return answer(
            Kind.mistake,
            f"the largest error is {times(ratio)} times the most that rounding can do in any order"
            + tiers.ruled_out,
            "hard bound",
        )
    suffix = (
        f"; {fast.attempts} would not err like this either" if fast.attempts else tiers.ruled_out
    )
    return answer(
        Kind.mistake,
        f"the errors are {times(overall.statistic)} times the largest that honest rounding shows "
        f"(worst in {overall.group}){suffix}",
        "sigma",
    )


ORDERS = "orders of summation"
UNSTABLE = "unstable algorithm: {}, which lost {:.1f} of float32's {:.1f} digits"
PRECISION = "the numbers are exactly what {} gives, which is coarser than float32"


def _coarse(
    actual: np.ndarray, tiers: Tiers, flushed: np.ndarray | None = None
) -> tuple[str, st.GroupTest] | None:
    """The first coarser arithmetic that gives these numbers; `flushed` ones do not count."""
    for candidate in tiers.precisions(actual) if tiers.precisions is not None else ():
        result = candidate.test(actual, flushed)
        if result.statistic <= st.ROUNDING_T:
            return candidate.name, result
    return None


NOT_TESTED = st.GroupTest(0.0, "all")


@dataclass(frozen=True)
class _FastAlgorithm:
    """A fast algorithm that explains the errors; `attempts`: names of those that do not."""

    attempts: str
    name: str = ""
    reason: str = ""
    test: st.GroupTest = NOT_TESTED
    limit: float = 1.0


def _winograd(
    error: np.ndarray, expected: np.ndarray, sigma: np.ndarray, tiers: Tiers
) -> _FastAlgorithm:
    if tiers.winograd is None:
        return _FastAlgorithm("")
    own = {tile: run.astype(np.float64) - expected for tile, run in tiers.winograd().items()}
    tests = {tile: _winograd_test(error, errors, sigma, tile) for tile, errors in own.items()}
    fitting = [tile for tile, test in tests.items() if test.statistic <= st.WINOGRAD_T]
    if not fitting:
        return _FastAlgorithm(" and ".join(NAMES[tile] for tile in own))
    # the one whose own errors are of this size
    sizes = {tile: max(st.root_mean_square(np.nan_to_num(own[tile])), TINY) for tile in fitting}
    size = max(st.root_mean_square(np.nan_to_num(error)), TINY)
    tile = min(fitting, key=lambda t: abs(np.log(size / sizes[t])))
    algorithm = f"Winograd's algorithm F({tile}x{tile}, 3x3)"
    reason = f"the errors fit {algorithm}, which trades accuracy for speed"
    return _FastAlgorithm("", NAMES[tile], reason, tests[tile], st.WINOGRAD_T)


def _strassen(
    error: np.ndarray, expected: np.ndarray, sigma: np.ndarray, tiers: Tiers, attempts: str
) -> _FastAlgorithm:
    """Strassen's algorithm if it explains the errors. attempts: names of algorithms tried
    before."""
    if tiers.strassen is None:
        return _FastAlgorithm(attempts)
    require_time()
    for run, wide in tiers.strassen(np.broadcast_to(sigma, error.shape)):
        wide = strassen_sigma(run.astype(np.float64) - expected, wide)
        result = st.group_test(st.standardised(error, wide))
        if result.statistic <= st.STRASSEN_T:
            reason = "the errors fit Strassen's algorithm, which trades accuracy for speed"
            return _FastAlgorithm("", strassen.NAME, reason, result, st.STRASSEN_T)
    return _FastAlgorithm(attempts)


def strassen_sigma(own: np.ndarray, wide: np.ndarray) -> np.ndarray:
    """The sigma `wide`, times how far an own run's errors spread beyond it."""
    return wide * max(1.0, st.root_mean_square(np.nan_to_num(st.standardised(own, wide))))


def _fourier(
    error: np.ndarray, expected: np.ndarray, sigma: np.ndarray, tiers: Tiers, attempts: str
) -> _FastAlgorithm:
    """An FFT convolution if it explains the errors. attempts: names of algorithms tried before."""
    if tiers.fft is None:
        return _FastAlgorithm(attempts)
    run, bound = tiers.fft()
    result = _fft_test(error, run.astype(np.float64) - expected, sigma)
    if result.statistic <= st.FFT_T and bool((np.abs(error) <= st.FFT_BOUND * bound).all()):
        reason = "the errors fit a convolution by Fourier transforms, whose errors spread evenly"
        return _FastAlgorithm("", "FFT", reason, result, st.FFT_T)
    return _FastAlgorithm(f"{attempts} and FFT" if attempts else "FFT")


def _fft_test(error: np.ndarray, own: np.ndarray, sigma: np.ndarray) -> st.GroupTest:
    """Against the size, per output channel, of the errors of an own run."""
    size = channel_rms(own)
    return st.group_test(st.standardised(error, np.maximum(sigma, size)))


def channel_rms(z: np.ndarray) -> np.ndarray:
    """Root mean square per channel (axis 1 of tensors of rank 3 and more; else over all)."""
    axes = tuple(a for a in range(z.ndim) if a != 1) if z.ndim > 2 else None
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.mean(np.nan_to_num(z * z), axis=axes, keepdims=True))


def _winograd_test(
    error: np.ndarray, own: np.ndarray, sigma: np.ndarray, tile: int
) -> st.GroupTest:
    window = st.WINOGRAD_POOL[tile]
    pooled = pooled_maximum(sigma, window)
    spread = np.maximum(1.0, channel_rms(st.standardised(own, pooled)))
    spread = np.maximum(spread, np.median(spread))
    return st.group_test(st.standardised(error, pooled * spread))


def pooled_maximum(values: np.ndarray, window: int) -> np.ndarray:
    """Maximum over a centerd window on the last two axes."""
    for axis in (-2, -1):
        half = window // 2
        width = [(0, 0)] * values.ndim
        width[axis] = (half, half)
        padded = np.pad(values, width)
        values = np.lib.stride_tricks.sliding_window_view(padded, window, axis=axis).max(axis=-1)
    return values
