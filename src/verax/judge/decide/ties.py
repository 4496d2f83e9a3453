"""Choices that rounding may tip: integers by which an honest subject may differ.

An operator that quantises says which real number it rounds, and how far honest arithmetic may move
that (`Operator.decides`): a difference by one at the edge between two integers is `rounding`.

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
from verax.judge.decide.criterion import Decision
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY, Quantity, U
from verax.ops.images.detection import NonMaxSuppression
from verax.ops.pointwise.cast import Cast
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
    given: np.ndarray,
    expected: np.ndarray,
) -> Decision | None:
    """What to say of integers of output number `output` that differ from the meaning; None when
    that was no tie."""
    quantity = quantities(node, ev, inputs)[output]
    if quantity is not None and given.shape == expected.shape:
        return _at_the_edge(node.op, quantity, inputs, given, expected)
    if isinstance(node.op, Cast):
        return _undefined(np.asarray(inputs[0]), given, expected)
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


def _undefined(x: np.ndarray, given: np.ndarray, expected: np.ndarray) -> Decision | None:
    """Integers that differ only where the number does not fit them: no standard says what then."""
    if x.dtype.kind in "iub" or given.dtype.kind not in "iu" or given.shape != expected.shape:
        return None
    limits = np.iinfo(given.dtype)
    whole = np.trunc(x.astype(np.float64))
    fits = (whole >= float(limits.min)) & (whole < float(limits.max) + 1)  # false for NaN
    differs = given != expected
    if bool((differs & fits).any()):
        return None
    return Decision(
        Kind.undecided,
        f"{int(differs.sum())} of {given.size} elements differ, all of them where the number is "
        f"NaN, infinite or beyond {given.dtype}: what a cast gives then is not defined",
        UNDEFINED,
    )


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
    """Whether an operator rounds a computed quantity to integers: honest kernels may differ by one
    where that lies at the edge between two."""
    return type(op).decides is not Operator.decides


def quantities(node: Node, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
    """What each output of the node is rounded from; None for outputs that are not."""
    if not rounds_freely(node.op):
        return (None,) * len(node.outputs)
    with np.errstate(all="ignore"):
        return node.op.decides(ev, inputs)


def rounded_otherwise(
    quantity: Quantity, expected: np.ndarray, random: np.random.Generator, scale: float = 1.0
) -> np.ndarray:
    """A quantisation's result with rounding noise of `scale` on what it rounds; where kernels
    choose, every edge that is open is decided by a toss."""
    slack = scale * quantity.slack
    bottom, top = quantity.ends(slack - quantity.slack)
    is_open = (bottom < top) & (expected >= bottom) & (expected <= top)
    if not is_open.any():
        return expected
    if quantity.is_free:
        chosen = np.where(random.integers(0, 2, expected.shape) == 1, top, bottom)
    else:
        noise = slack * SIGMA_OF_SLACK * random.standard_normal(expected.shape)
        chosen = np.clip(np.rint(quantity.real + noise), bottom, top)
    return np.where(is_open, chosen, expected).astype(expected.dtype)


def _at_the_edge(
    op: Operator, quantity: Quantity, inputs: Sequence[Any], given: np.ndarray, expected: np.ndarray
) -> Decision | None:
    """Integers that differ where the real number lies at the edge between two."""
    differs = given != expected
    if not bool(quantity.allows(given)[differs].all()):
        return None
    count = f"{int(differs.sum())} of {given.size} integers differ by one"
    if isinstance(op, QuantizeLinear) and op.halves == "even":
        # Where 1 / scale is a number of float32, nothing rounds before the quotient is exact.
        fraction = np.abs(quantity.real - np.floor(quantity.real) - 0.5)
        half = np.broadcast_to(
            (fraction <= st.FLOAT64_NOISE * np.abs(quantity.real) + TINY)
            & op.divides_exactly(np.shape(given), inputs[1]),
            given.shape,
        )
        if bool((half & differs).any()):
            info = np.iinfo(given.dtype)
            honest = (np.clip(y, info.min, info.max) == given for y in op.ties(inputs))
            if not any(bool(same[half].all()) for same in honest):
                return Decision(
                    Kind.mistake,
                    f"{count}; {int((half & differs).sum())} of them are exactly half-way and were "
                    "not rounded to even",
                    "quantum",
                    np.inf,
                )
    return Decision(
        Kind.rounding,
        f"{count}, each where the real number lies within its own rounding of the edge between the "
        "two",
        "quantum",
    )


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
