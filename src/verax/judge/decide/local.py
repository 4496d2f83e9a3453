"""The local check: one node on the inputs that the subject itself gave it.

Earlier errors do not affect it, so that every faulty node is found, not only the first one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import OpenChoiceError, VeraxError
from verax.ir.graph import Node
from verax.ir.operator import Evaluation
from verax.ir.types import DType, TensorType
from verax.judge.decide import difference_of_squares
from verax.judge.decide.bits_of_units import reproduced_bits
from verax.judge.decide.criterion import Decision, Tiers, decide
from verax.judge.decide.error_distribution import noted
from verax.judge.decide.nan_origin import (
    Trail,
    infinity_decision,
    masked_as_zeros,
    nan_decision,
    overflowed,
)
from verax.judge.decide.orders import (
    fft_applies,
    fft_run,
    float32_runs,
    promised_run,
    winograd_applies,
    winograd_runs,
)
from verax.judge.decide.possible import FFT, WINOGRAD, is_claimed, is_possible, may_be_device
from verax.judge.decide.precision import (
    ITSELF,
    PRODUCTS,
    THREE_PRODUCTS,
    candidates,
    to_float64,
    unit_roundoff,
)
from verax.judge.decide.strassen import strassen_applies, strassen_runs
from verax.judge.decide.ties import nan_choice_decision, near_tie
from verax.judge.decide.unit_sums import FP16_ACCUMULATION
from verax.judge.decide.visibility import smallest_error, visible_error
from verax.numerics import strassen
from verax.numerics.compare import plain_figures, worst_places
from verax.numerics.error_model import KAPPA, Rounding, U
from verax.numerics.formats import FORMATS
from verax.ops.sums.arg import TopK
from verax.records.verdict import ErrorMetrics, Finding, Kind, Precision, WorstElement
from verax.reference.evaluate import evaluate_node, to_work

WORST = 5
"""Places that a finding lists."""


@dataclasses.dataclass(frozen=True)
class ReferenceValues:
    """A node's float64 outputs and the rounding of each (None: exact)."""

    ev: Evaluation
    outputs: tuple[np.ndarray, ...]
    roundings: tuple[Rounding | None, ...]
    problem: str = ""


def meaning(
    node: Node,
    inputs: Sequence[Any],
    declared: Sequence[TensorType | None],
    outputs: tuple[TensorType, ...],
    *,
    errors: bool = True,
) -> ReferenceValues:
    """A node's reference on arrays (None where omitted). `problem` says what is missing.

    inputs: in their declared element types or already in float64. errors: whether to compute the
    roundings too; without, all are None. Raises `VeraxError` when the operator refuses the inputs.
    """
    types = tuple(
        None if x is None or t is None else TensorType(t.dtype, x.shape)
        for x, t in zip(inputs, declared, strict=True)
    )
    wide = [
        None if x is None or t is None else to_work(x, t.dtype, np.dtype(np.float64))
        for x, t in zip(inputs, types)
    ]
    expected = evaluate_node(node, wide, types, outputs)
    shaped = tuple(TensorType(t.dtype, y.shape) for t, y in zip(outputs, expected))
    values = ReferenceValues(Evaluation(types, shaped), expected, (None,) * len(expected))
    return with_roundings(node, wide, values) if errors else values


def with_roundings(node: Node, inputs: Sequence[Any], values: ReferenceValues) -> ReferenceValues:
    """`values`, which a node gave on `inputs`, with the roundings or the problem that there is."""
    ev, expected = values.ev, values.outputs
    wide = [
        None if x is None or t is None else to_work(x, t.dtype, np.dtype(np.float64))
        for x, t in zip(inputs, ev.inputs, strict=True)
    ]
    try:
        with np.errstate(all="ignore"):
            roundings = tuple(node.op.error(_in_float32(ev), wide, expected))
    except NotImplementedError:
        return ReferenceValues(
            ev, expected, (None,) * len(expected), "the operator has no error model"
        )
    except OpenChoiceError as error:
        return ReferenceValues(ev, expected, (None,) * len(expected), error.cause)
    return ReferenceValues(
        ev,
        expected,
        tuple(
            # Who rounds to a narrow format says itself what is honest there.
            r if t.dtype.is_narrow else stored(r, y, t.dtype)
            for r, y, t in zip(roundings, expected, ev.outputs)
        ),
    )


def _in_float32(ev: Evaluation) -> Evaluation:
    """`ev` with every float tensor declared float32: `stored` adds the rounding of other types."""

    def as_float32(type_: TensorType) -> TensorType:
        plain = type_.dtype.is_float and not type_.dtype.is_narrow
        return type_.with_dtype(DType.float32) if plain else type_

    return Evaluation(
        tuple(None if t is None else as_float32(t) for t in ev.inputs),
        tuple(map(as_float32, ev.outputs)),
        ev.work,
    )


def stored(rounding: Rounding | None, y: np.ndarray, dtype: DType) -> Rounding | None:
    """`rounding`, adjusted for a result that is stored in a format other than float32."""
    if rounding is None or not dtype.is_float or dtype is DType.float32:
        return rounding
    fmt = FORMATS[str(dtype)]
    if dtype is DType.float64:
        # The reference itself computes in this format: both sides err.
        scale = 2 * fmt.unit_roundoff / U
        return Rounding(rounding.sigma * scale, rounding.bound * scale)
    unit, smallest = fmt.unit_roundoff, fmt.smallest_subnormal
    added = np.abs(y) * unit + smallest
    return Rounding(np.hypot(rounding.sigma, KAPPA * added), rounding.bound + added)


def conform(actual: np.ndarray, declared: DType) -> np.ndarray:
    """`actual` in the declared element type where no value changes by that; else unchanged."""
    if actual.dtype == declared.counted:
        return actual
    if declared.is_float and actual.dtype.kind in "fV":
        with np.errstate(over="ignore"):
            return actual.astype(declared.numpy)
    with np.errstate(invalid="ignore"):
        cast = actual.astype(declared.counted)
        same = bool((cast.astype(np.float64) == actual.astype(np.float64)).all())
    return cast if same else actual


def check_node(
    node: Node,
    inputs: Sequence[Any],
    actual: Sequence[np.ndarray | None],
    outputs: tuple[TensorType, ...],
    *,
    region: tuple[str, ...] = (),
) -> list[Finding]:
    """Findings on the observed outputs of one node (None: not observed), on its actual inputs.

    inputs: arrays in their declared dtypes. region: exact nodes judged together with it, when
    their values were not observed. Fast algorithms (Winograd's, Strassen's, Fourier transforms),
    which err more, explain a difference as far as the subject may use them (`possible.using`).
    """
    try:
        declared = [None if x is None else TensorType.of(x) for x in inputs]
        reference = meaning(node, inputs, declared, outputs)
    except VeraxError as error:
        return [
            undecided(node, value, g, f"the meaning cannot be evaluated: {error.cause}", region)
            for value, g in zip(node.outputs, actual)
            if g is not None
        ]
    findings = []
    for i, (value, g) in enumerate(zip(node.outputs, actual)):
        if g is None:
            continue
        expected, rounding = reference.outputs[i], reference.roundings[i]
        g = conform(g, outputs[i].dtype)
        if isinstance(node.op, TopK) and not node.op.sorted and g.shape == expected.shape:
            # The order of unsorted results is the implementation's choice.
            g, expected = np.sort(g, node.op.axis), np.sort(expected, node.op.axis)
        if reference.problem and not exactly_equal(g, expected):
            findings.append(undecided(node, value, g, reference.problem, region))
            continue
        tiers = _tiers(node, reference.ev, inputs, i)
        decision = decide(g, expected, rounding, tiers)
        if decision.kind is Kind.undecided and decision.test == "non-finite":
            decision = (
                _nan_decision(node, reference, inputs, i, g)
                or infinity_decision(
                    [node],
                    g,
                    expected,
                    lambda i=i: float32_runs(node, reference.ev, inputs, i, promised=True),  # type: ignore[misc]
                )
                or decision
            )
        if decision.kind is Kind.mistake and g.dtype.kind in "iu":
            decision = _open_choice(node, reference, inputs, i, g, expected) or decision
        decision = _with_bits(node, reference, inputs, g, decision)
        sigma, bound = (None, None) if rounding is None else (rounding.sigma, rounding.bound)
        noted(value, g, expected, sigma, bound if g.dtype.kind in "biu" else None)
        judged = finding(node, value, decision, g, expected, region)
        if g.dtype.kind in "fV" and g.shape == expected.shape:
            visible = visible_error(decision, expected, rounding, tiers)
            if visible:
                visible = max(visible, smallest_error(expected, outputs[i].dtype))
            judged = dataclasses.replace(judged, visible=visible)
        if decision.kind is Kind.precision:
            precision = _precision(node, reference, inputs, i, g, decision)
            judged = dataclasses.replace(judged, precision=precision)
        findings.append(judged)
    return findings


def _with_bits(
    node: Node,
    reference: ReferenceValues,
    inputs: Sequence[Any],
    actual: np.ndarray,
    decision: Decision,
) -> Decision:
    """The decision on a product, `precision` where a GPU's matrix units give all of its bits."""
    is_coarse = decision.kind is Kind.precision
    is_named = is_coarse and decision.test.startswith(("TF32", THREE_PRODUCTS))
    is_in_16_bits = is_coarse and decision.test.startswith((ITSELF, FP16_ACCUMULATION))
    is_unclaimed = decision.kind is Kind.undecided and decision.test == strassen.NAME
    is_open = decision.kind is Kind.mistake or is_in_16_bits or is_unclaimed
    if node.op.kind not in PRODUCTS or not (is_named or (is_open and may_be_device())):
        return decision
    reproduced = reproduced_bits(node, inputs, actual)
    if reproduced is None:
        return decision
    name, words = reproduced
    test = decision.test if is_named else name
    return dataclasses.replace(decision, kind=Kind.precision, test=test, reason=words)


def exactly_equal(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Whether all bits agree (used where no error model is known)."""
    return actual.shape == expected.shape and decide(actual, expected, None).kind is Kind.identical


def _tiers(node: Node, ev: Evaluation, inputs: Sequence[Any], i: int) -> Tiers:
    applies = {
        WINOGRAD: winograd_applies(node, inputs),
        strassen.NAME: strassen_applies(node, inputs),
        FFT: fft_applies(node, inputs),
    }
    may = {name: applies[name] and is_possible(name) for name in applies}
    names = " and ".join(name for name in applies if applies[name] and not may[name])
    return Tiers(
        orders=lambda: float32_runs(node, ev, inputs, i, promised=False),
        promised=lambda: promised_run(node, ev, inputs, i),
        winograd=(lambda: winograd_runs(node, inputs)) if may[WINOGRAD] else None,
        strassen=(lambda s: strassen_runs(node, inputs, s)) if may[strassen.NAME] else None,
        fft=(lambda: fft_run(node, inputs)) if may[FFT] else None,
        unstable=(lambda actual, t: difference_of_squares.recognize(node.op, inputs, actual, t))
        if difference_of_squares.applies(node.op, i)
        else None,
        precisions=lambda actual: candidates(node, ev, inputs, i, actual),
        ruled_out=f"; {names} was ruled out" if names else "",
        claimed=is_claimed(strassen.NAME),
    )


def _nan_decision(
    node: Node, reference: ReferenceValues, inputs: Sequence[Any], i: int, actual: np.ndarray
) -> Decision | None:
    """The decision on finite numbers where the node's reference is NaN; None where it is not, or
    where an input may differ from what the subject read."""
    if overflowed((t.dtype, a) for t, a in zip(reference.ev.inputs, inputs) if t is not None):
        return None
    trail = Trail()
    trail.add(node, inputs, reference.outputs)
    origin = trail.origins.get(node.outputs[i])

    def alternative() -> bool:
        safe_node = masked_as_zeros(node)
        if safe_node.op == node.op:
            return False
        declared = [None if x is None else TensorType.of(x) for x in inputs]
        safe = meaning(safe_node, inputs, declared, reference.ev.outputs)
        judged = decide(actual, safe.outputs[i], safe.roundings[i])
        return judged.kind in (Kind.identical, Kind.rounding)

    return None if origin is None else nan_decision(
        actual,
        reference.outputs[i],
        origin,
        lambda: float32_runs(node, reference.ev, inputs, i, promised=True),
        alternative,
    )  # fmt: skip


def _open_choice(
    node: Node,
    reference: ReferenceValues,
    inputs: Sequence[Any],
    output: int,
    actual: np.ndarray,
    expected: np.ndarray,
) -> Decision | None:
    """The decision instead of a mistake where rounding or NaN left the choice open, else None."""
    if actual.dtype != expected.dtype:
        return None
    tie = near_tie(node, reference.ev, inputs, output, actual, expected)
    if tie is None and actual.shape == expected.shape:
        tie = nan_choice_decision(actual, expected, reference.outputs)
    return tie


def _precision(
    node: Node,
    reference: ReferenceValues,
    inputs: Sequence[Any],
    i: int,
    actual: np.ndarray,
    decision: Decision,
) -> Precision:
    """The record of an arithmetic that was confirmed by recomputing."""
    wide = [to_float64(x) for x in inputs]
    unit = unit_roundoff(node, reference.ev, wide, reference.outputs[i], actual)
    record = Precision(node.outputs[i], node.name or node.outputs[0], decision.test, unit, True)
    if decision.unstable is None:
        return record
    lost, needs_leave = decision.unstable.lost, not decision.unstable.is_allowed
    return dataclasses.replace(record, lost_digits=lost, needs_leave=needs_leave)


def finding(
    node: Node,
    value: str,
    decision: Decision,
    actual: np.ndarray,
    expected: np.ndarray,
    region: tuple[str, ...] = (),
) -> Finding:
    """The record of a decision, with plain figures and the worst places."""
    return Finding(
        value=value,
        node=node.name or node.outputs[0],
        operator=node.op.kind,
        kind=decision.kind,
        reason=decision.reason,
        test=decision.test,
        elements=int(actual.size),
        statistic=decision.statistic,
        group=decision.group,
        bound_ratio=decision.bound_ratio,
        sigma=decision.sigma,
        error=decision.error,
        ratio=decision.ratio,
        plain=plain(actual, expected),
        worst=worst_elements(actual, expected),
        region=region,
    )


def undecided(
    node: Node, value: str, actual: np.ndarray, reason: str, region: tuple[str, ...] = ()
) -> Finding:
    """A finding that says why nothing can be decided."""
    decision = Decision(Kind.undecided, reason, "none")
    return finding(node, value, decision, actual, actual.astype(np.float64), region)


def plain(actual: np.ndarray, expected: np.ndarray) -> ErrorMetrics:
    """The figures people quote, for the record; infinite ones when the shapes differ."""
    if actual.shape != expected.shape:
        return ErrorMetrics(math.inf, math.inf, 0.0, -math.inf, {}, int(actual.size))
    return ErrorMetrics(**dataclasses.asdict(plain_figures(actual, expected)))


def worst_elements(actual: np.ndarray, expected: np.ndarray) -> tuple[WorstElement, ...]:
    """The elements with the largest differences."""
    if actual.shape != expected.shape:
        return ()
    wide = actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        size = np.abs(wide - expected)
        if np.isnan(size).any():
            same = (wide == expected) | (np.isnan(wide) & np.isnan(expected))
            size = np.where(same, 0.0, size)
    return tuple(
        WorstElement(index, float(expected[index]), float(wide[index]))
        for index in worst_places(size, WORST)
    )
