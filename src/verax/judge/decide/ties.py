"""Choices that rounding may tip: integers by which a correct subject may differ.

An operator that quantizes says which real number it rounds, and how far rounding may move that
(`Operator.decides`): a difference by one at the edge between two integers is `rounding`.

An operator that selects (NonMaxSuppression, and the indices of MaxPool or TopK) gives integers,
and integers do not round. But what it compares does: an overlap computed in float32 lies on either
side of a threshold, equal scores have no order, and NaN is ordered differently by runtimes. Such a
difference is no mistake; it is `rounding` when a baseline evaluation gives the subject's result,
and `undecided` when it only shows that the choice was open.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, Operator, as_tuple
from verax.judge.decide.criterion import Decision
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY, Quantity, U
from verax.ops.images.detection import NonMaxSuppression
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.lookup import LookupTable
from verax.ops.quantized.quantization import QuantizeLinear
from verax.ops.sums.arg import TopK
from verax.records.verdict import Kind

UNDEFINED = "undefined cast"
"""The test of values that no standard defines."""
SIGMA_OF_SLACK = 1 / 8
"""Standard deviation of a quantity, as a part of the farthest that rounding may move it."""
ORDERS = 4
"""Orders of equal scores that are tried beside the promised one and its reverse."""


def near_tie(
    node: Node,
    ev: Evaluation,
    inputs: Sequence[Any],
    output: int,
    actual: np.ndarray,
    expected: np.ndarray,
) -> Decision | None:
    """The decision on integers of output number `output` that differ from the reference; None when
    that was no tie."""
    quantity = quantities(node, ev, inputs)[output]
    if quantity is not None and actual.shape == expected.shape:
        return _at_the_edge(node.op, quantity, inputs, actual, expected)
    if isinstance(node.op, Cast):
        return _undefined(np.asarray(inputs[0]), actual, expected)
    if isinstance(node.op, TopK):
        return _of_equals(node.op, np.asarray(inputs[0]), actual, expected)
    if not isinstance(node.op, NonMaxSuppression):
        return None
    open_choice = False
    for selection in _baseline_selections(node.op, ev, inputs):
        if selection.shape == actual.shape and bool((selection == actual).all()):
            return Decision(
                Kind.rounding,
                "another selection: an overlap lies so near to the threshold, or scores are so "
                "near to each other, that rounding decides",
                "near ties",
            )
        open_choice = open_choice or not np.array_equal(selection, expected)
    if open_choice and _same_but_few(actual, expected):
        return Decision(
            Kind.undecided,
            "another selection, where an overlap or equal scores leave the choice to rounding, "
            "though not seen to this answer",
            "near ties",
        )
    return None


def _undefined(x: np.ndarray, actual: np.ndarray, expected: np.ndarray) -> Decision | None:
    """The decision on integers that differ only where the number does not fit their type, which no
    standard defines; else None."""
    if x.dtype.kind in "iub" or actual.dtype.kind not in "iu" or actual.shape != expected.shape:
        return None
    limits = np.iinfo(actual.dtype)
    truncated = np.trunc(x.astype(np.float64))
    fits = (truncated >= float(limits.min)) & (truncated < float(limits.max) + 1)  # false for NaN
    differs = actual != expected
    if bool((differs & fits).any()):
        return None
    return Decision(
        Kind.undecided,
        f"{int(differs.sum())} of {actual.size} elements differ, all of them where the number is "
        f"NaN, infinite or beyond {actual.dtype}: what a cast gives then is not defined",
        UNDEFINED,
    )


def _of_equals(
    op: TopK, x: np.ndarray, actual: np.ndarray, expected: np.ndarray
) -> Decision | None:
    """The decision on indices that differ only among equal elements, which ONNX orders and other
    frameworks do not; else None."""
    axis = op.axis % max(x.ndim, 1)
    if actual.shape != expected.shape or not bool(((actual >= 0) & (actual < x.shape[axis])).all()):
        return None
    if bool((np.diff(np.sort(actual, axis), axis=axis) == 0).any()):
        return None  # an index occurs twice
    selected, meant = (np.take_along_axis(x, a.astype(np.int64), axis) for a in (actual, expected))
    if not bool((selected == meant).all()):
        return None
    return Decision(
        Kind.undecided,
        f"{int((actual != expected).sum())} of {actual.size} indices differ, all of them among "
        "equal elements: ONNX takes the lower index first, other frameworks leave the order open",
        "near ties",
    )


def rounds_to_integers(op: Operator) -> bool:
    """True if an operator rounds a computed quantity to integers: correct kernels may differ by one
    where that lies at the edge between two."""
    return type(op).decides is not Operator.decides


def quantities(node: Node, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
    """The quantity that each output of the node is rounded from; None for other outputs."""
    if not rounds_to_integers(node.op):
        return (None,) * len(node.outputs)
    with np.errstate(all="ignore"):
        return node.op.decides(ev, inputs)


def rounded_otherwise(
    quantity: Quantity, expected: np.ndarray, random: np.random.Generator, scale: float = 1.0
) -> np.ndarray:
    """A quantization's result with rounding noise of `scale` on what it rounds; where kernels may
    choose, every open edge is decided at random."""
    slack = scale * quantity.slack
    bottom, top = quantity.ends(slack - quantity.slack)
    is_open = (bottom < top) & (expected >= bottom) & (expected <= top)
    if not is_open.any():
        return expected
    if quantity.is_free:
        rounded = np.where(random.integers(0, 2, expected.shape) == 1, top, bottom)
    else:
        noise = slack * SIGMA_OF_SLACK * random.standard_normal(expected.shape)
        rounded = np.clip(np.rint(quantity.real + noise), bottom, top)
    return np.where(is_open, rounded, expected).astype(expected.dtype)


def _at_the_edge(
    op: Operator,
    quantity: Quantity,
    inputs: Sequence[Any],
    actual: np.ndarray,
    expected: np.ndarray,
) -> Decision | None:
    """The decision on integers that differ where the real number lies at the edge between two; None
    if others differ too."""
    differs = actual != expected
    if not bool(quantity.allows(actual)[differs].all()):
        return None
    largest = int(np.abs(actual.astype(np.int64) - expected.astype(np.int64)).max())
    by = "one" if largest == 1 else f"at most {largest}"
    count = f"{int(differs.sum())} of {actual.size} integers differ by {by}"
    if isinstance(op, QuantizeLinear) and op.halves == "even":
        # Where 1 / scale is a number of float32, nothing rounds before the quotient is exact.
        fraction = np.abs(quantity.real - np.floor(quantity.real) - 0.5)
        half = np.broadcast_to(
            (fraction <= st.FLOAT64_NOISE * np.abs(quantity.real) + TINY)
            & op.divides_exactly(np.shape(actual), inputs[1]),
            actual.shape,
        )
        if bool((half & differs).any()):
            info = np.iinfo(actual.dtype)
            allowed = (np.clip(y, info.min, info.max) == actual for y in op.ties(inputs))
            if not any(bool(same[half].all()) for same in allowed):
                return Decision(
                    Kind.mistake,
                    f"{count}; {int((half & differs).sum())} of them are exactly half-way and were "
                    "not rounded to even",
                    "quantum",
                    np.inf,
                )
    if isinstance(op, LookupTable):
        return Decision(
            Kind.rounding,
            f"{count}, each where the table's entry is a real number at the edge between two, or "
            "where the function rounded once is another integer than the table's",
            "quantum",
        )
    return Decision(
        Kind.rounding,
        f"{count}, each where the real number lies within its own rounding of the edge between the "
        "two",
        "quantum",
    )


def _baseline_selections(
    op: NonMaxSuppression, ev: Evaluation, inputs: Sequence[Any]
) -> Iterator[np.ndarray]:
    """Yield selections with the threshold shifted by the rounding of an overlap, in float64 and
    float32, with equal scores in several orders."""
    boxes, scores, max_output, overlap, lowest = (*inputs, None, None, None)[:5]
    threshold = float(0 if overlap is None else np.ravel(overlap)[0])
    random = np.random.default_rng(0)
    count = scores.shape[2]
    orders = [np.arange(count), np.arange(count)[::-1]]
    orders += [random.permutation(count) for _ in range(ORDERS)]
    steps = (0.0, -1.0, 1.0)
    for order, step, work in itertools.product(orders, steps, (np.float64, np.float32)):
        shifted = np.clip(threshold + step * st.OVERLAP_UNITS * U * max(threshold, U), 0, 1)
        selection = as_tuple(
            op.reference(
                ev,
                boxes[:, order].astype(work),
                scores[:, :, order].astype(work),
                max_output,
                np.asarray(shifted, work),
                lowest,
            )
        )[0]
        selection = selection.copy()
        selection[:, 2] = order[selection[:, 2]]
        yield selection


def _same_but_few(actual: np.ndarray, expected: np.ndarray) -> bool:
    """True if at least half of the selected rows are the same."""
    first, second = ({tuple(r) for r in rows.tolist()} for rows in (actual, expected))
    return 2 * len(first & second) >= max(len(first), len(second))


def nan_choice_decision(
    actual: np.ndarray, expected: np.ndarray, values: Sequence[np.ndarray]
) -> Decision | None:
    """The decision on indices that differ only where the selected value is NaN; None when others
    differ too.

    values: the node's float outputs in the reference.
    """
    differs = actual != expected
    floats = [v for v in values if v.dtype.kind == "f" and v.shape == actual.shape]
    if not any(bool(np.isnan(v[differs]).all()) for v in floats):
        return None
    return Decision(
        Kind.undecided,
        f"{int(differs.sum())} of {actual.size} indices differ, all of them where the value is "
        "NaN: runtimes differ in how NaN passes this operation",
        "non-finite",
    )
