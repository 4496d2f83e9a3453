"""Choices that rounding may tip: integers by which an honest subject may differ.

An operator that selects (NonMaxSuppression, and the indices of MaxPool or TopK) gives integers,
and integers do not round. But what it compares does: an overlap computed in float32 lies on either
side of a threshold, equal scores have no order, and a NaN wins or loses as the runtime likes. Such
a difference is no mistake; it is `rounding` when an honest evaluation gives the subject's answer,
and `undecided` when one only shows that the choice was open.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, Operator, as_tuple
from verax.judge.criterion import Decision
from verax.numerics import statistics as st
from verax.numerics.error_model import U
from verax.ops.arg import TopK
from verax.ops.detection import NonMaxSuppression
from verax.ops.quantization import QuantizeLinear
from verax.ops.requantization import Requantize
from verax.records.verdict import Kind

ORDERS = 4
"""Orders of equal scores that are tried beside the promised one and its reverse."""


def near_tie(
    node: Node, ev: Evaluation, inputs: Sequence[Any], given: np.ndarray, expected: np.ndarray
) -> Decision | None:
    """What to say of a selection that differs from the meaning; None when it was no tie."""
    if rounds_freely(node.op) and given.shape == expected.shape:
        return _at_the_edge(node.op, inputs, given, expected)
    if isinstance(node.op, TopK):
        return _of_equals(node.op, np.asarray(inputs[0]), given, expected)
    if not isinstance(node.op, NonMaxSuppression):
        return None
    open_choice = False
    for other in _honest_selections(node.op, ev, inputs):
        if other.shape == given.shape and bool((other == given).all()):
            return Decision(
                Kind.rounding,
                "another selection: an overlap lies so near to the threshold, or scores are so "
                "near to each other, that rounding decides",
                "near ties",
            )
        open_choice = open_choice or not np.array_equal(other, expected)
    if open_choice and _same_but_few(given, expected):
        return Decision(
            Kind.undecided,
            "another selection, where an overlap or equal scores leave the choice to rounding, "
            "though not seen to this answer",
            "near ties",
        )
    return None


def _of_equals(op: TopK, x: np.ndarray, given: np.ndarray, expected: np.ndarray) -> Decision | None:
    """Indices that differ only among equal elements: ONNX orders these, other frameworks do not."""
    axis = op.axis % max(x.ndim, 1)
    if given.shape != expected.shape or not bool(((given >= 0) & (given < x.shape[axis])).all()):
        return None
    if bool((np.diff(np.sort(given, axis), axis=axis) == 0).any()):
        return None  # an index occurs twice
    chosen, meant = (np.take_along_axis(x, a.astype(np.int64), axis) for a in (given, expected))
    if not bool((chosen == meant).all()):
        return None
    return Decision(
        Kind.undecided,
        f"{int((given != expected).sum())} of {given.size} indices differ, all of them among equal "
        "elements: ONNX takes the lower index first, other frameworks leave the order open",
        "near ties",
    )


def rounds_freely(op: Operator) -> bool:
    """Whether honest kernels round this operator's halves in different ways.

    ONNX says where halves go; LiteRT's kernels for floats send them away from zero in one place and
    to even in another.
    """
    return isinstance(op, Requantize) or (isinstance(op, QuantizeLinear) and op.halves == "away")


def _real(op: Operator, inputs: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """What a quantisation rounds, and how far from half-way it may still go either way.

    Kernels round halves up, away from zero or to even, once or twice, and some multiply in
    float32: each moves the edge by at most the factor's rounding and a unit of the first rounding,
    2^shift.
    """
    if isinstance(op, QuantizeLinear):
        x, scale, zero = (np.asarray(a, np.float64) for a in (*inputs, 0)[:3])
        lanes = [-1 if a == op.axis % max(x.ndim, 1) else 1 for a in range(x.ndim)]
        scale, zero = (np.reshape(a, lanes if a.size > 1 else ()) for a in (scale, zero))
        real = x / scale + zero
        return real, 2 * U * np.abs(x / scale)
    assert isinstance(op, Requantize)
    x, multiplier, shift = (np.asarray(a, np.float64) for a in inputs)
    lanes = [-1 if a == op.axis % max(x.ndim, 1) else 1 for a in range(x.ndim)]
    factor, unit = (np.reshape(a, lanes) if a.ndim else a for a in (multiplier, shift))
    real = x * factor * 2.0 ** (unit - 31) + op.zero_point
    return real, 2 * U * np.abs(real) + np.minimum(2.0**unit, 0.5)


def rounded_otherwise(
    op: Operator, inputs: Sequence[Any], expected: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """A quantisation's result with every half that is open rounded by a toss."""
    real, slack = _real(op, inputs)
    low, high = np.floor(real), np.ceil(real)
    is_open = np.abs(real - (low + 0.5)) <= slack
    is_open &= (expected == low) | (expected == high)
    tossed = np.where(random.integers(0, 2, real.shape) == 1, high, low)
    return np.where(is_open, tossed, expected).astype(expected.dtype)


def _at_the_edge(
    op: Operator, inputs: Sequence[Any], given: np.ndarray, expected: np.ndarray
) -> Decision | None:
    """Integers that differ where the real number lies half-way between two."""
    real, slack = _real(op, inputs)
    differs = given != expected
    if bool((np.abs(given.astype(np.float64) - real) <= 0.5 + slack)[differs].all()):
        return Decision(
            Kind.rounding,
            f"{int(differs.sum())} of {given.size} integers differ by one, each where the real "
            "number lies half-way between the two: kernels round halves in different ways",
            "quantum",
        )
    return None


def _honest_selections(
    op: NonMaxSuppression, ev: Evaluation, inputs: Sequence[Any]
) -> Iterator[np.ndarray]:
    """Selections with the threshold moved by what rounding of an overlap may be, in float64 and
    float32, with equal scores in several orders."""
    boxes, scores, most, overlap, lowest = (*inputs, None, None, None)[:5]
    threshold = float(0 if overlap is None else np.ravel(overlap)[0])
    random = np.random.default_rng(0)
    count = scores.shape[2]
    orders = [np.arange(count), np.arange(count)[::-1]]
    orders += [random.permutation(count) for _ in range(ORDERS)]
    steps = (0.0, -1.0, 1.0)
    for order, step, work in itertools.product(orders, steps, (np.float64, np.float32)):
        moved = np.clip(threshold + step * st.OVERLAP_UNITS * U * max(threshold, U), 0, 1)
        chosen = as_tuple(
            op.reference(
                ev,
                boxes[:, order].astype(work),
                scores[:, :, order].astype(work),
                most,
                np.asarray(moved, work),
                lowest,
            )
        )[0]
        chosen = chosen.copy()
        chosen[:, 2] = order[chosen[:, 2]]
        yield chosen


def _same_but_few(given: np.ndarray, expected: np.ndarray) -> bool:
    """Whether most of what was selected is the same."""
    one, other = ({tuple(r) for r in rows.tolist()} for rows in (given, expected))
    return 2 * len(one & other) >= max(len(one), len(other))


def behind_nan(
    given: np.ndarray, expected: np.ndarray, values: Sequence[np.ndarray]
) -> Decision | None:
    """Indices that differ only where the value chosen is NaN; None when others differ too.

    values: the node's float outputs by the meaning.
    """
    differs = given != expected
    floats = [v for v in values if v.dtype.kind == "f" and v.shape == given.shape]
    if not any(bool(np.isnan(v[differs]).all()) for v in floats):
        return None
    return Decision(
        Kind.undecided,
        f"{int(differs.sum())} of {given.size} indices differ, all of them where the value is NaN: "
        "runtimes differ in how NaN passes this operation",
        "non-finite",
    )
