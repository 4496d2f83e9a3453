"""Explains a faulty node: it is evaluated under each hypothesis, and those under which the
subject's numbers are within rounding are its explanations.

Three rules exclude wrong explanations: a hypothesis must differ from the reference by more than
rounding on this input, the subject must lie within the hypothesis's OWN rounding, and the remaining
difference must be far smaller than from the reference. A hypothesis that is merely nearer explains
nothing.
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
from verax.judge.explain.channel_sample import ChannelSample, channel_sample
from verax.judge.explain.coincidence import needed_bits, telling_bits
from verax.judge.explain.hypotheses.base import Hypothesis, Suspect
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.probes import probe_inputs, suspect_on
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
"""Elements that a hypothesis may give, and how many times those of the node's own tensors."""
IMPOSSIBLE = (VeraxError, ValueError, LookupError, ArithmeticError, TypeError)
"""What a hypothesis raises that cannot be computed for these shapes."""


@dataclass(frozen=True)
class Prediction:
    """A hypothesis's float64 output and its rounding (None: exact).

    runs: the hypothesis in float32, in several orders of summation, where that makes sense.
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
    actual: np.ndarray,
    types: tuple[TensorType, ...],
    *,
    output: int = 0,
) -> tuple[Explanation, ...]:
    """Explanations under which output number `output` is within rounding, best first.

    inputs: the node's actual inputs in their declared dtypes, None where omitted; actual: the
    subject's output; types: the declared output types. Empty when nothing in the library explains
    the numbers, or when the reference itself cannot be evaluated.
    """
    suspect = suspect_of(node, inputs, actual, types, output)
    return () if suspect is None else tuple(fit.explanation for fit in fits(suspect))


def suspect_of(
    node: Node,
    inputs: Sequence[Any],
    actual: np.ndarray,
    types: tuple[TensorType, ...],
    output: int = 0,
) -> Suspect | None:
    """The suspect with its float64 reference; None when that cannot be evaluated."""
    arrays = tuple(None if x is None else np.asarray(x) for x in inputs)
    try:
        declared = [None if x is None else TensorType.of(x) for x in arrays]
        reference = meaning(node, arrays, declared, types)
    except VeraxError:
        return None
    if reference.problem:
        return None
    actual = conform(np.asarray(actual), types[output].dtype)
    return Suspect(node, arrays, types, actual, reference, output)


def fits(suspect: Suspect, among: Iterable[Hypothesis] | None = None) -> tuple[Fit, ...]:
    """The hypotheses that explain a suspect, best first: the usual ones, then the nearest.

    among: the hypotheses to try; by default the whole library for the node.
    """
    look, bits = _QuickTest(suspect), telling_bits(suspect)
    fits_by_name: dict[str, Fit] = {}
    for hypothesis in hypotheses(suspect) if among is None else among:
        if bits < needed_bits(hypothesis.prior) or hypothesis.name in fits_by_name:
            continue
        if not look.passes(hypothesis):
            continue
        fit = _fit(suspect, hypothesis)
        if fit is not None:
            fits_by_name[hypothesis.name] = fit
    # A number chosen to fit says nothing where a hypothesis without one fits as well.
    fewest = min((f.hypothesis.fitted for f in fits_by_name.values()), default=0)
    simplest = [f for f in fits_by_name.values() if f.hypothesis.fitted == fewest]
    ranked = sorted(simplest, key=lambda f: (f.hypothesis.prior, f.statistic))
    return tuple(_unlike(suspect, ranked)[:MOST])


def _unlike(suspect: Suspect, ranked: list[Fit]) -> list[Fit]:
    """`ranked` without those that give the same numbers as an earlier one, here and on probes."""
    if len(ranked) < 2 or suspect.actual.shape != suspect.expected.shape:
        return ranked
    suspects = [suspect]
    for _, arrays in itertools.islice(probe_inputs(suspect, np.random.default_rng(0)), 3):
        probe = suspect_on(suspect, arrays, errors=False)
        if probe is not None:
            suspects.append(probe)
    distinct: list[Fit] = []
    seen: list[list[np.ndarray]] = []
    for fit in ranked:
        predictions = [predict(probed, fit.hypothesis, errors=False) for probed in suspects]
        values = [np.zeros(()) if p is None else p.value for p in predictions]
        if not any(all(map(same_numbers, values, probe)) for probe in seen):
            distinct.append(fit)
            seen.append(values)
    return distinct


def same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two float64 evaluations differ by no more than their own rounding."""
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        return _size(a.astype(np.float64) - b) <= st.SAME_MEANING * _size(b.astype(np.float64))


def predict(
    suspect: Suspect,
    hypothesis: Hypothesis,
    *,
    errors: bool = True,
    narrow: ChannelSample | None = None,
) -> Prediction | None:
    """The node's output under a hypothesis; None when it cannot be computed.

    errors: whether to compute the rounding too. narrow: compute only those channels.
    """
    try:
        with np.errstate(all="ignore"):
            return _predict(suspect, hypothesis, errors, narrow)
    except IMPOSSIBLE:
        return None


def _predict(
    suspect: Suspect, hypothesis: Hypothesis, errors: bool, narrow: ChannelSample | None
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
        reference = meaning(node, arrays, declared, types, errors=errors)
        if reference.problem:
            return None
        value, rounding = reference.outputs[suspect.output], reference.roundings[suspect.output]
        if hypothesis.after is None and not hypothesis.crop:
            runs = partial(float32_runs, node, reference.ev, arrays, suspect.output)
    target_shape = suspect.actual.shape if narrow is None else narrow.actual.shape
    if hypothesis.crop and value.shape != target_shape:
        value, rounding = _cropped(value, rounding, target_shape)
    if hypothesis.after is not None:
        after = hypothesis.after
        value = np.asarray(after.value(value, arrays))
        rounding = after.rounding(rounding, value, arrays) if errors else None
    return Prediction(value, rounding, runs)


def _is_huge(suspect: Suspect, op: Operator, arrays: list[Any], declared: list[Any]) -> bool:
    """True if a hypothesis's output is far larger than all tensors of the node itself."""
    shaped = [
        None if x is None or t is None else TensorType(t.dtype, x.shape)
        for x, t in zip(arrays, declared)
    ]
    outputs = inferred_outputs(op, shaped, arrays)
    own = suspect.actual.size + sum(x.size for x in suspect.inputs if x is not None)
    limit = max(HUGE, HUGE_SHARE * own) * 8
    return outputs is not None and output_bytes(outputs, np.dtype(np.float64)) > limit


def _cropped(
    value: np.ndarray, rounding: Rounding | None, shape: tuple[int, ...]
) -> tuple[np.ndarray, Rounding | None]:
    """`value` and `rounding`, cut at the ends of the axes to `shape`."""
    if value.ndim != len(shape):
        return value, rounding
    window = tuple(slice(0, n) for n in shape)
    if rounding is None:
        return value[window], None
    return value[window], Rounding(rounding.sigma[window], rounding.bound[window])


class _QuickTest:
    """A cheap test of a hypothesis, on a few channels and without rounding."""

    def __init__(self, suspect: Suspect) -> None:
        self.suspect, self.narrow = suspect, channel_sample(suspect)
        rounding = suspect.meaning.roundings[suspect.output]
        self.noise = 0.0 if rounding is None else _size(rounding.sigma)
        self.comparable = suspect.wide.shape == suspect.expected.shape
        self.integers = suspect.actual.dtype.kind in "biu"
        self.sample_indices: tuple[np.ndarray, ...] | None = None
        self.before = self.narrow_error = 0.0
        if self.comparable:
            error = suspect.wide - suspect.expected
            self.before = _size(error)
            if error.size > SAMPLE:
                self.sample_indices = _sample(error)
                self.sampled = suspect.wide[self.sample_indices]
                self.before = _size(error[self.sample_indices])
                if rounding is not None:
                    self.noise = _size(rounding.sigma[self.sample_indices])
            if self.narrow is not None:
                self.narrow_error = _size(self.narrow.actual - self.narrow.expected)

    def passes(self, hypothesis: Hypothesis) -> bool:
        """True if the remaining difference is small enough for the full test."""
        after, narrow = hypothesis.after, self.narrow
        own = hypothesis.op is not None or hypothesis.inputs is not None
        if not own or (after is not None and (after.moves or after.exact)):
            narrow = None
        prediction = predict(self.suspect, hypothesis, errors=False, narrow=narrow)
        actual = self.suspect.wide if narrow is None else narrow.actual
        if prediction is None or prediction.value.shape != actual.shape:
            return False
        if not self.comparable or self.integers:
            return True
        before = self.before if narrow is None else self.narrow_error
        with np.errstate(all="ignore"):
            if narrow is None and self.sample_indices is not None:
                left = _size(self.sampled - prediction.value[self.sample_indices])
            else:
                left = _size(actual - prediction.value)
        return left <= max(st.NEAR_EXPLAINED * before, st.EXPLAINED_NOISE * self.noise)


def _sample(error: np.ndarray) -> tuple[np.ndarray, ...]:
    """Indices of elements to test first: those with the largest errors, and random others."""
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
    prediction = predict(suspect, hypothesis)
    actual = suspect.actual
    if prediction is None or prediction.value.shape != actual.shape:
        return None
    if not _single_elements_fit(suspect, prediction):
        return None
    statistic = fit_statistic(suspect, hypothesis, prediction)
    if statistic is None:
        return None
    if actual.dtype.kind in "biu" or suspect.expected.shape != actual.shape:
        return Fit(hypothesis, statistic)
    sigma = np.zeros(1) + TINY if prediction.rounding is None else prediction.rounding.sigma + TINY
    if not _differs(prediction.value, suspect.expected, sigma):
        return None
    with np.errstate(all="ignore"):
        before = st.group_test(st.standardised(suspect.wide - suspect.expected, sigma)).statistic
        after = st.group_test(st.standardised(suspect.wide - prediction.value, sigma)).statistic
    if prediction.rounding is not None and after > st.EXPLAINED * before:
        return None
    return Fit(hypothesis, statistic)


def _single_elements_fit(suspect: Suspect, prediction: Prediction) -> bool:
    """False if an element is further off than any tier of the criterion allows."""
    if prediction.rounding is None or suspect.actual.dtype.kind in "biu":
        return True
    if winograd_applies(suspect.node, suspect.inputs):
        return True
    if strassen_applies(suspect.node, suspect.inputs):
        return True
    with np.errstate(all="ignore"):
        error = np.abs(suspect.wide - prediction.value)
        limit = st.WINOGRAD_T * st.group_limit(1) * (prediction.rounding.sigma + TINY)
        far = error > np.maximum(limit, FLUSHED * st.FLUSHED_TERMS)
    return not bool((far & np.isfinite(prediction.value)).any())


def fit_statistic(suspect: Suspect, hypothesis: Hypothesis, prediction: Prediction) -> float | None:
    """T of the subject under a prediction, None when it is not within its rounding."""
    tiers = _tiers(suspect, hypothesis)
    with np.errstate(all="ignore"):
        decision = decide(suspect.actual, prediction.value, prediction.rounding, tiers)
        near = decision.kind is Kind.mistake and decision.statistic <= st.ORDERS_WORTH
        if near and prediction.runs is not None and suspect.actual.size <= SAMPLE:
            orders = dataclasses.replace(tiers, orders=prediction.runs)
            with contextlib.suppress(*IMPOSSIBLE):
                decision = decide(suspect.actual, prediction.value, prediction.rounding, orders)
    good = decision.kind in (Kind.identical, Kind.rounding, Kind.precision)
    return decision.statistic if good else None


def _differs(a: np.ndarray, b: np.ndarray, sigma: np.ndarray | float) -> bool:
    """True if two evaluations differ by more than rounding at some element."""
    with np.errstate(all="ignore"):
        z = np.abs(a.astype(np.float64) - b) / sigma
    return bool(np.any(z > st.DISTINCT)) or bool(np.any(np.isnan(a) != np.isnan(b)))


def _tiers(suspect: Suspect, hypothesis: Hypothesis) -> Tiers:
    """The criterion's tiers of fast algorithms, with the hypothesis's operator and weights."""
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
