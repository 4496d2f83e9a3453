"""What went wrong: the node is evaluated again under each rival meaning, and the rivals under which
the subject's numbers are within rounding are its explanations.

Three rules keep explanations honest: a rival must differ from the truth by more than rounding on
this input, the subject must lie within the rival's OWN rounding, and the rival must leave far less
of the difference than the truth does. Nothing is explained by a rival that merely comes nearer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.decide.criterion import Tiers, decide
from verax.judge.decide.local import conform, meaning
from verax.judge.decide.orders import float32_runs, winograd_applies, winograd_runs
from verax.judge.decide.strassen import strassen_applies, strassen_runs
from verax.judge.explain.hypotheses.base import Hypothesis, Suspect
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.narrow import Narrowed, narrowed
from verax.judge.explain.probes import drawn, on
from verax.numerics import statistics as st
from verax.numerics.error_model import FLUSHED, TINY, Rounding
from verax.records.verdict import Explanation, Kind
from verax.reference.sizes import inferred_outputs, output_bytes

MOST = 10
"""Explanations that are kept; more only says that the input tells nothing apart."""
SAMPLE = 1 << 16
"""Elements from which on the first look is at a sample of them (an eighth of this many)."""
WORST = 256
"""Elements with the largest errors that are part of the sample."""
HUGE, HUGE_SHARE = 1 << 20, 16
"""Elements that a rival may give, and how many times those of the node's own tensors."""
IMPOSSIBLE = (VeraxError, ValueError, LookupError, ArithmeticError, TypeError)
"""What a rival raises that cannot be computed for these shapes."""


@dataclass(frozen=True)
class Prediction:
    """A rival's float64 output and its rounding (None: exact).

    runs: the rival in float32, in several orders of summation, where that makes sense.
    """

    value: np.ndarray
    rounding: Rounding | None
    runs: Callable[[], Iterator[np.ndarray]] | None = None


@dataclass(frozen=True)
class Fit:
    """A hypothesis under which the subject is within rounding, and T under it."""

    hypothesis: Hypothesis
    statistic: float

    @property
    def explanation(self) -> Explanation:
        h = self.hypothesis
        return Explanation(h.name, h.words, dict(h.attributes), self.statistic)


def explain(
    node: Node,
    inputs: Sequence[Any],
    given: np.ndarray,
    types: tuple[TensorType, ...],
    *,
    output: int = 0,
) -> tuple[Explanation, ...]:
    """Rival meanings under which output number `output` is within rounding, best first.

    inputs: the node's actual inputs in their declared dtypes, None where omitted; given: the
    subject's answer; types: the declared output types. Empty when nothing in the library explains
    the numbers, or when the meaning itself cannot be evaluated.
    """
    suspect = suspect_of(node, inputs, given, types, output)
    return () if suspect is None else tuple(fit.explanation for fit in fits(suspect))


def suspect_of(
    node: Node,
    inputs: Sequence[Any],
    given: np.ndarray,
    types: tuple[TensorType, ...],
    output: int = 0,
) -> Suspect | None:
    """The suspect with its float64 truth; None when that cannot be evaluated."""
    arrays = tuple(None if x is None else np.asarray(x) for x in inputs)
    try:
        declared = [None if x is None else TensorType.of(x) for x in arrays]
        found = meaning(node, arrays, declared, types)
    except VeraxError:
        return None
    if found.problem:
        return None
    given = conform(np.asarray(given), types[output].dtype)
    return Suspect(node, arrays, types, given, found, output)


def fits(suspect: Suspect, among: Iterable[Hypothesis] | None = None) -> tuple[Fit, ...]:
    """The hypotheses that explain a suspect, best first: the usual ones, then the nearest.

    among: the hypotheses to try; by default the whole library for the node.
    """
    look = _FirstLook(suspect)
    found: dict[str, Fit] = {}
    for hypothesis in hypotheses(suspect) if among is None else among:
        if hypothesis.name in found or not look.passes(hypothesis):
            continue
        fit = _fit(suspect, hypothesis)
        if fit is not None:
            found[hypothesis.name] = fit
    # A number chosen to fit says nothing where a rival without one fits as well.
    fewest = min((f.hypothesis.fitted for f in found.values()), default=0)
    simplest = [f for f in found.values() if f.hypothesis.fitted == fewest]
    ranked = sorted(simplest, key=lambda f: (f.hypothesis.prior, f.statistic))
    return tuple(_unlike(suspect, ranked)[:MOST])


def _unlike(suspect: Suspect, ranked: list[Fit]) -> list[Fit]:
    """Without those that mean the same as one before them, by their numbers here and elsewhere."""
    if len(ranked) < 2 or suspect.given.shape != suspect.expected.shape:
        return ranked
    places = [suspect]
    for _, arrays in itertools.islice(drawn(suspect, np.random.default_rng(0)), 3):
        other = on(suspect, arrays, errors=False)
        if other is not None:
            places.append(other)
    kept: list[Fit] = []
    seen: list[list[np.ndarray]] = []
    for fit in ranked:
        found = [predict(place, fit.hypothesis, errors=False) for place in places]
        values = [np.zeros(()) if p is None else p.value for p in found]
        if not any(all(map(same_numbers, values, other)) for other in seen):
            kept.append(fit)
            seen.append(values)
    return kept


def same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two float64 evaluations differ by no more than their own rounding."""
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        return _size(a.astype(np.float64) - b) <= st.SAME_MEANING * _size(b.astype(np.float64))


def predict(
    suspect: Suspect, hypothesis: Hypothesis, *, errors: bool = True, narrow: Narrowed | None = None
) -> Prediction | None:
    """What the node would give under a hypothesis; None when it cannot be computed.

    errors: whether to compute the rounding too. narrow: compute only those channels.
    """
    try:
        with np.errstate(all="ignore"):
            return _predict(suspect, hypothesis, errors, narrow)
    except IMPOSSIBLE:
        return None


def _predict(
    suspect: Suspect, hypothesis: Hypothesis, errors: bool, narrow: Narrowed | None
) -> Prediction | None:
    arrays = list(suspect.inputs)
    runs = None
    if hypothesis.op is None and hypothesis.inputs is None:
        value = suspect.expected
        rounding = suspect.meaning.roundings[suspect.output]
    else:
        declared = [None if x is None else TensorType.of(x) for x in arrays]
        if hypothesis.inputs is not None:
            arrays = hypothesis.inputs(arrays)
            declared += [None] * (len(arrays) - len(declared))
            declared = [
                d if x is None or d is not None else TensorType.of(x)
                for x, d in zip(arrays, declared)
            ]
        op = hypothesis.op or suspect.op
        if narrow is not None:
            op, arrays = narrow.of(op, arrays)
        node = dataclasses.replace(suspect.node, op=op)
        types = (*suspect.outputs[: op.output_count],)
        if _is_huge(suspect, op, arrays, declared):
            return None
        found = meaning(node, arrays, declared, types, errors=errors)
        if found.problem:
            return None
        value, rounding = found.outputs[suspect.output], found.roundings[suspect.output]
        if hypothesis.after is None and not hypothesis.crop:
            runs = partial(float32_runs, node, found.ev, arrays, suspect.output)
    wanted = suspect.given.shape if narrow is None else narrow.given.shape
    if hypothesis.crop and value.shape != wanted:
        value, rounding = _cropped(value, rounding, wanted)
    if hypothesis.after is not None:
        after = hypothesis.after
        value = np.asarray(after.value(value, arrays))
        rounding = after.rounding(rounding, value, arrays) if errors else None
    return Prediction(value, rounding, runs)


def _is_huge(suspect: Suspect, op: Operator, arrays: list[Any], declared: list[Any]) -> bool:
    """Whether a rival's output is far larger than all that the node itself has to do with."""
    shaped = [
        None if x is None or t is None else TensorType(t.dtype, x.shape)
        for x, t in zip(arrays, declared)
    ]
    outputs = inferred_outputs(op, shaped, arrays)
    own = suspect.given.size + sum(x.size for x in suspect.inputs if x is not None)
    most = max(HUGE, HUGE_SHARE * own) * 8
    return outputs is not None and output_bytes(outputs, np.dtype(np.float64)) > most


def _cropped(
    value: np.ndarray, rounding: Rounding | None, shape: tuple[int, ...]
) -> tuple[np.ndarray, Rounding | None]:
    """Cut at the ends of the axes to `shape`, where it is larger."""
    if value.ndim != len(shape):
        return value, rounding
    where = tuple(slice(0, n) for n in shape)
    if rounding is None:
        return value[where], None
    return value[where], Rounding(rounding.sigma[where], rounding.bound[where])


class _FirstLook:
    """A cheap look, on a few channels and without rounding: could this hypothesis be it?"""

    def __init__(self, suspect: Suspect) -> None:
        self.suspect, self.narrow = suspect, narrowed(suspect)
        rounding = suspect.meaning.roundings[suspect.output]
        self.noise = 0.0 if rounding is None else _size(rounding.sigma)
        self.comparable = suspect.wide.shape == suspect.expected.shape
        self.integers = suspect.given.dtype.kind in "biu"
        self.places: tuple[np.ndarray, ...] | None = None
        self.before = self.part = 0.0
        if self.comparable:
            error = suspect.wide - suspect.expected
            self.before = _size(error)
            if error.size > SAMPLE:
                self.places = _sample(error)
                self.sampled = suspect.wide[self.places]
                self.before = _size(error[self.places])
                if rounding is not None:
                    self.noise = _size(rounding.sigma[self.places])
            if self.narrow is not None:
                self.part = _size(self.narrow.given - self.narrow.expected)

    def passes(self, hypothesis: Hypothesis) -> bool:
        """Whether the hypothesis leaves so little that it is worth a close look."""
        after, narrow = hypothesis.after, self.narrow
        own = hypothesis.op is not None or hypothesis.inputs is not None
        if not own or (after is not None and (after.moves or after.exact)):
            narrow = None
        found = predict(self.suspect, hypothesis, errors=False, narrow=narrow)
        given = self.suspect.wide if narrow is None else narrow.given
        if found is None or found.value.shape != given.shape:
            return False
        if not self.comparable or self.integers:
            return True
        before = self.before if narrow is None else self.part
        with np.errstate(all="ignore"):
            if narrow is None and self.places is not None:
                left = _size(self.sampled - found.value[self.places])
            else:
                left = _size(given - found.value)
        return left <= max(st.NEAR_EXPLAINED * before, st.EXPLAINED_NOISE * self.noise)


def _sample(error: np.ndarray) -> tuple[np.ndarray, ...]:
    """Places to look at first: those with the largest errors, and others drawn at random."""
    flat = np.nan_to_num(np.abs(error)).ravel()
    worst = np.argpartition(flat, flat.size - WORST)[-WORST:]
    drawn = np.random.default_rng(0).integers(0, flat.size, SAMPLE // 8)
    return np.unravel_index(np.unique(np.concatenate([worst, drawn])), error.shape)


def _size(values: np.ndarray) -> float:
    """Root mean square of the finite values."""
    with np.errstate(all="ignore"):
        flat = values.ravel()
        total = float(np.dot(flat, flat))
        if not np.isfinite(total):
            flat = flat[np.isfinite(flat)]
            total = float(np.dot(flat, flat))
    return float(np.sqrt(total / max(1, flat.size)))


def _fit(suspect: Suspect, hypothesis: Hypothesis) -> Fit | None:
    """The fit of a hypothesis by the full criterion, or None."""
    found = predict(suspect, hypothesis)
    given = suspect.given
    if found is None or found.value.shape != given.shape:
        return None
    if not _single_elements_fit(suspect, found):
        return None
    statistic = fit_statistic(suspect, hypothesis, found)
    if statistic is None:
        return None
    if given.dtype.kind in "biu" or suspect.expected.shape != given.shape:
        return Fit(hypothesis, statistic)
    sigma = np.zeros(1) + TINY if found.rounding is None else found.rounding.sigma + TINY
    if not _differs(found.value, suspect.expected, sigma):
        return None
    with np.errstate(all="ignore"):
        before = st.group_test(st.standardised(suspect.wide - suspect.expected, sigma)).statistic
        after = st.group_test(st.standardised(suspect.wide - found.value, sigma)).statistic
    if found.rounding is not None and after > st.EXPLAINED * before:
        return None
    return Fit(hypothesis, statistic)


def _single_elements_fit(suspect: Suspect, found: Prediction) -> bool:
    """A quick refusal: an element further off than any tier of the criterion allows for."""
    if found.rounding is None or suspect.given.dtype.kind in "biu":
        return True
    if winograd_applies(suspect.node, suspect.inputs):
        return True
    if strassen_applies(suspect.node, suspect.inputs):
        return True
    with np.errstate(all="ignore"):
        error = np.abs(suspect.wide - found.value)
        limit = st.WINOGRAD_T * st.group_limit(1) * (found.rounding.sigma + TINY)
        far = error > np.maximum(limit, FLUSHED * st.FLUSHED_TERMS)
    return not bool((far & np.isfinite(found.value)).any())


def fit_statistic(suspect: Suspect, hypothesis: Hypothesis, found: Prediction) -> float | None:
    """T of the subject under a prediction, None when it is not within the rival's rounding."""
    tiers = _tiers(suspect, hypothesis)
    with np.errstate(all="ignore"):
        decision = decide(suspect.given, found.value, found.rounding, tiers)
        near = decision.kind is Kind.mistake and decision.statistic <= st.ORDERS_WORTH
        if near and found.runs is not None and suspect.given.size <= SAMPLE:
            orders = dataclasses.replace(tiers, orders=found.runs)
            with contextlib.suppress(*IMPOSSIBLE):
                decision = decide(suspect.given, found.value, found.rounding, orders)
    good = decision.kind in (Kind.identical, Kind.rounding, Kind.precision)
    return decision.statistic if good else None


def _differs(a: np.ndarray, b: np.ndarray, sigma: np.ndarray | float) -> bool:
    """Whether two meanings are further apart than rounding somewhere."""
    with np.errstate(all="ignore"):
        z = np.abs(a.astype(np.float64) - b) / sigma
    return bool(np.any(z > st.DISTINCT)) or bool(np.any(np.isnan(a) != np.isnan(b)))


def _tiers(suspect: Suspect, hypothesis: Hypothesis) -> Tiers:
    """Fast algorithms with the rival's weights."""
    node = dataclasses.replace(suspect.node, op=hypothesis.op or suspect.op)
    arrays = list(suspect.inputs)
    if hypothesis.inputs is not None:
        arrays = hypothesis.inputs(arrays)
    if hypothesis.after is not None or hypothesis.crop:
        return Tiers()
    if winograd_applies(node, arrays):
        return Tiers(winograd=lambda: winograd_runs(node, arrays))
    if strassen_applies(node, arrays):
        return Tiers(strassen=lambda sigma: strassen_runs(node, arrays, sigma))
    return Tiers()


def separated(a: Prediction, b: Prediction) -> bool:
    """Whether two predictions differ by more than rounding somewhere."""
    if a.value.shape != b.value.shape:
        return True
    sigmas: Iterator[np.ndarray] = (p.rounding.sigma for p in (a, b) if p.rounding is not None)
    sigma = np.sqrt(sum((np.square(s) for s in sigmas), np.zeros(()))) + TINY
    return _differs(a.value, b.value, sigma)
