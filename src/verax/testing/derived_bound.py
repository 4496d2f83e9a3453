"""Bounds derived by running a meaning under random rounding, and what is decided by them.

No error model is known for a plain function. Its runs under random rounding say how far rounding
moves each output; how far those runs themselves stray from what the others say is how far the
answer may stray. That is measured, not proven: docs/derived_bounds.md has how often it is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from verax.base.errors import UsageError, VeraxError
from verax.base.figures import times
from verax.judge.decide.criterion import Decision
from verax.numerics import statistics as st
from verax.numerics.error_model import KAPPA
from verax.numerics.formats import FORMATS, dtype_name
from verax.records.verdict import Kind
from verax.testing.random_rounding import Arrays, RoundingNoise, SampledFunction

TEST = "derived bound"
ROUNDED = "under random rounding"


@dataclass(frozen=True)
class DerivedBound:
    """What runs of a function say of one output.

    expected: float64; sigma: standard deviation of its rounding, None for an output of integers;
    limit: T up to which an answer is rounding; jumps: how far runs under much larger noise reach
    below and above `expected`, which finds results that a comparison or a rounding inside decides;
    steps: mask of the integers that change under random rounding.
    """

    expected: np.ndarray
    sigma: np.ndarray | None
    limit: float = 1.0
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    overflowed: np.ndarray | None = None

    def visible(self) -> float:
        """Smallest relative error, spread over the whole output, that would have shown."""
        if self.sigma is None or not self.expected.size:
            return 0.0
        finite = np.isfinite(self.expected) & np.isfinite(self.sigma)
        size = st.root_mean_square(self.expected[finite])
        spread = st.root_mean_square(self.sigma[finite])
        return self.limit * st.group_limit(self.expected.size) * spread / size if size else 0.0


def derive(
    function: SampledFunction, kinds: Sequence[np.dtype], result: float, sums: float, seed: int
) -> list[DerivedBound]:
    """Bounds on the outputs of a function.

    kinds: element types of the answer, by output. result, sums: unit roundoffs of the types that
    results of operations are stored in and that sums are accumulated in.
    Raises `UsageError` for a function that gives other numbers at each call.
    """
    random = np.random.default_rng(seed)
    expected = _run(function, function.exact, "in float64")
    if not all(map(_is_repeated, expected, _run(function, function.exact, "in float64"))):
        raise UsageError(
            "the meaning gives other numbers when it is called again",
            place=function.label,
            next_step="leave dropout out, or draw random numbers outside and give them as an input",
        )
    noise = RoundingNoise(random, result, sums)
    large = RoundingNoise(random, st.DERIVED_FAR * result, st.DERIVED_FAR * sums)
    near, far = (
        [_run(function, partial(function.sample, n), ROUNDED) for _ in range(st.DERIVED_SAMPLES)]
        for n in (noise, large)
    )
    own = function.own()
    bounds = []
    for i, value in enumerate(expected):
        plain = None if own is None or i >= len(own) or own[i].shape != value.shape else own[i]
        kind = kinds[i] if i < len(kinds) else value.dtype
        samples = [run[i] for run in near if run[i].shape == value.shape]
        wide = [run[i] for run in far if run[i].shape == value.shape]
        if value.dtype.kind == "f" and len(samples) == len(near):
            bounds.append(_float_bound(value, samples, wide, plain, kind))
        else:
            bounds.append(_integer_bound(value, [*samples, *wide], plain))
    return bounds


def _is_repeated(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two float64 results agree but for the last digits, which the order of a sum in
    several threads may change: nearly all are the same in float32."""
    if first.shape != second.shape:
        return False
    with np.errstate(all="ignore"):
        a, b = (x.astype(np.float32) if x.dtype.kind == "f" else x for x in (first, second))
        same = (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else a == b
    return bool(1 - same.mean() <= st.DERIVED_EDGES) if same.size else True


def _run(function: SampledFunction, run: Callable[[], Arrays], mode: str) -> Arrays:
    """Outputs of one run. Raises `UsageError` that quotes what the meaning raised."""
    try:
        return run()
    except VeraxError:
        raise
    except Exception as error:  # whatever a function of anybody's raises
        raise UsageError(
            f"the meaning raised {type(error).__name__} {mode}: {error}",
            place=function.label,
            next_step="it takes the inputs by position, with floats in float64",
        ) from error


def _float_bound(
    expected: np.ndarray, samples: Arrays, far: Arrays, own: np.ndarray | None, kind: np.dtype
) -> DerivedBound:
    with np.errstate(all="ignore"):
        errors = np.stack([s.astype(np.float64) - expected for s in samples])
        errors = np.where(np.isfinite(errors), errors, 0.0)
        squares = (errors * errors).sum(0)
        stored = _stored(expected, kind)
        count = len(samples)
        sigma = np.sqrt(squares / count + stored * stored)
        farthest = 0.0
        for error in errors:
            # Held against the others: what all elements share shows as a whole run that strays.
            remaining = (squares - error * error).clip(0) / (count - 1)
            farthest = max(farthest, _statistic(error, np.sqrt(remaining + stored * stored)))
        overflowed = None
        if own is not None:
            wide = own.astype(np.float64)
            overflowed = ~np.isfinite(wide) & np.isfinite(expected)
            error = np.where(np.isfinite(wide), wide - expected, 0.0)
            farthest = max(farthest, _statistic(error, sigma))
        reach = np.stack([f.astype(np.float64) for f in far])
    return DerivedBound(
        expected,
        sigma,
        max(1.0, st.DERIVED_MARGIN * farthest),
        np.nanmin(np.where(np.isfinite(reach), reach, expected), 0),
        np.nanmax(np.where(np.isfinite(reach), reach, expected), 0),
        overflowed,
    )


def _integer_bound(expected: np.ndarray, samples: Arrays, own: np.ndarray | None) -> DerivedBound:
    same = [s for s in samples if s.shape == expected.shape]
    runs = np.stack([expected, *same, *([] if own is None else [own])])
    return DerivedBound(expected, None, 1.0, runs.min(0), runs.max(0))


def _stored(expected: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Standard deviation of the one rounding that a result is stored with."""
    name = dtype_name(kind)
    if name not in FORMATS:
        return np.zeros(expected.shape)
    fmt = FORMATS[name]
    return KAPPA * np.abs(expected) * fmt.unit_roundoff + fmt.smallest_subnormal


def _statistic(error: np.ndarray, sigma: np.ndarray) -> float:
    return st.group_test(st.standardised(error, sigma)).statistic


def decide_by(actual: np.ndarray, bound: DerivedBound) -> Decision:
    """Judge one output by its derived bound."""
    expected = bound.expected
    if actual.shape != expected.shape:
        reason = f"the shape is {actual.shape}, it should be {expected.shape}"
        return Decision(Kind.mistake, reason, "shape", np.inf)
    if bound.sigma is None:
        return _decide_integers(actual, bound)
    wide = actual.astype(np.float64)
    odd = np.isfinite(wide) != np.isfinite(expected)
    odd |= ~np.isfinite(expected) & ~((wide == expected) | (np.isnan(wide) & np.isnan(expected)))
    if odd.any():
        allowed = bound.overflowed if bound.overflowed is not None else np.zeros(odd.shape, bool)
        kind = Kind.undecided if bool((allowed | ~odd).all()) else Kind.mistake
        reason = f"{int(odd.sum())} of {odd.size} elements are NaN or infinite on one side alone"
        if kind is Kind.undecided:
            reason += ", and so they are when the meaning itself runs in this type"
        return Decision(kind, reason, "non-finite", np.inf)
    finite = np.isfinite(expected)
    error = np.where(finite, wide - expected, 0.0)
    z = st.standardised(error, bound.sigma)
    test = st.group_test(z)
    edges = 0
    if test.statistic > bound.limit:
        at_edge = _at_edge(wide, bound)
        without = st.group_test(np.where(at_edge, 0.0, z))
        if at_edge.mean() <= st.DERIVED_EDGES:
            edges, test = int(at_edge.sum()), without
        elif without.statistic <= bound.limit:
            share = f"{int(at_edge.sum())} of {at_edge.size} elements"
            reason = f"{share} lie at an edge inside this function, where rounding decides"
            return Decision(Kind.undecided, reason, TEST, np.inf)
    size, sigma = st.root_mean_square(error), st.root_mean_square(bound.sigma[finite])
    ratio = test.statistic / bound.limit
    common = {"statistic": ratio, "group": test.group, "sigma": sigma, "error": size}
    if ratio <= 1:
        reason = f"within {times(max(ratio, 0.01))} of what rounding moves this function"
        if edges:
            reason += f"; {edges} elements lie at an edge inside it, where rounding decides"
        if not error.any():
            return Decision(Kind.identical, "the float64 value", TEST, **common)  # type: ignore[arg-type]
        return Decision(Kind.rounding, reason, TEST, **common)  # type: ignore[arg-type]
    reason = (
        f"the error is {times(ratio)} times what rounding may do to this function "
        f"(in {test.group or 'all'})"
    )
    return Decision(Kind.mistake, reason, TEST, **common)  # type: ignore[arg-type]


def _at_edge(wide: np.ndarray, bound: DerivedBound) -> np.ndarray:
    """Mask of elements that much larger noise moves out of proportion, at least as far as these
    are: a comparison or a rounding inside decides them."""
    assert bound.sigma is not None and bound.low is not None and bound.high is not None
    slack = st.group_limit(1) * bound.sigma
    reach = np.maximum(bound.high - bound.expected, bound.expected - bound.low)
    jumps = reach > st.DERIVED_FAR * slack
    return jumps & (wide >= bound.low - slack) & (wide <= bound.high + slack)


def _decide_integers(actual: np.ndarray, bound: DerivedBound) -> Decision:
    assert bound.low is not None and bound.high is not None
    differs = actual != bound.expected
    if not differs.any():
        return Decision(Kind.identical, "every element agrees", TEST)
    beyond = differs & ~((actual >= bound.low) & (actual <= bound.high))
    share = f"{int(differs.sum())} of {differs.size} elements"
    if not beyond.any():
        return Decision(Kind.rounding, f"{share} differ where rounding decides them", TEST)
    error = st.root_mean_square(actual.astype(np.float64) - bound.expected.astype(np.float64))
    return Decision(
        Kind.mistake,
        f"{share} differ, {int(beyond.sum())} of them where no rounding changes them",
        TEST,
        np.inf,
        "element",
        error=error,
    )


def blind(decision: Decision, bound: DerivedBound, kind: np.dtype) -> Decision:
    """`decision`, or undecided where agreement proves nothing: rounding alone moves this output by
    more than a mistake that matters would."""
    visible = bound.visible()
    limit = st.blind_from(dtype_name(kind))
    if decision.kind is not Kind.rounding or visible <= limit:
        return decision
    return dataclasses.replace(
        decision,
        kind=Kind.undecided,
        test="power",
        reason=f"rounding alone moves this output by so much that a relative error of {limit:.2g} "
        f"would not show, only one of {visible:.2g}",
    )
