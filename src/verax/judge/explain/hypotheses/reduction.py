"""Reductions: another statistic, other axes, another divisor."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import (
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    hypotheses_of,
    pointwise,
    rearranged,
    with_attributes,
)
from verax.ops.sums.arg import ArgMax, ArgMin
from verax.ops.sums.cumulative import CumSum
from verax.ops.sums.reduction import (
    ReduceL1,
    ReduceL2,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceSum,
    ReduceSumSquare,
    Reduction,
)

ALTERNATIVES: tuple[type[Reduction], ...] = (
    ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceL1, ReduceL2, ReduceSumSquare,
    ReduceLogSumExp,
)  # fmt: skip


@hypotheses_of(
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"),
)
def reduction(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on ReduceSum, ReduceMean and their like."""
    op = suspect.op
    assert isinstance(op, Reduction)
    for kind in ALTERNATIVES:
        if kind.__name__ != op.kind:
            alternative: Operator = kind(  # type: ignore[call-arg]
                keepdims=op.keepdims, noop_with_empty_axes=op.noop_with_empty_axes
            )
            yield Hypothesis(
                f"computed as {alternative.kind}",
                f"{alternative.kind} was computed",
                Prior.common,
                op=alternative,
                attributes={"operator": alternative.kind},
            )
    rank = suspect.x.ndim
    named = suspect.inputs[1] if suspect.has(1) else None
    actual = op.reduced_axes(rank, named)
    for axes in itertools.combinations(range(rank), len(actual)):
        if axes != actual:
            yield Hypothesis(
                f"over axes {axes}",
                f"it was computed over the axes {axes}, not {actual}",
                Prior.usual,
                inputs=_with_axes(axes),
                attributes={"axes": str(axes)},
            )
    if len(actual) < rank:
        over_all = dataclasses.replace(op, keepdims=True)  # type: ignore[call-arg]
        yield Hypothesis(
            "axes ignored",
            f"the axes {actual} were ignored: every place holds the result over every axis",
            Prior.usual,
            op=over_all,
            inputs=_with_axes(tuple(range(rank))),
            after=rearranged(lambda y: np.broadcast_to(y.reshape(()), suspect.expected.shape)),
            attributes={"axes": str(tuple(range(rank)))},
        )
    if op.kind in ("ReduceMax", "ReduceMin") and suspect.actual.dtype.kind == "f":
        largest = float(np.finfo(suspect.actual.dtype).max)
        begin, bounded = (-largest, np.maximum) if op.kind == "ReduceMax" else (largest, np.minimum)
        yield Hypothesis(
            "begins at a finite number",
            f"the search began at {begin:.7g}, not at {'-' if begin < 0 else ''}infinity",
            Prior.usual,
            after=pointwise(lambda y, b=begin, f=bounded: f(y, b)),
        )
    count = float(np.prod([suspect.x.shape[a] for a in actual]))
    if op.kind == "ReduceMean" and count > 1:
        for name, words, factor in (
            ("divided by one less", "the sums were divided by N - 1", count / (count - 1)),
            ("divided by one more", "the sums were divided by N + 1", count / (count + 1)),
        ):
            yield Hypothesis(
                name,
                words,
                Prior.common,
                inputs=lambda a, f=factor: [a[0].astype(np.float64) * f, *a[1:]],
            )


def _with_axes(axes: tuple[int, ...]) -> Edit:
    def edit(arrays: Arrays) -> Arrays:
        return [arrays[0], np.array(axes, np.int64)]

    return edit


@hypotheses_of("ArgMax", "ArgMin")
def extremum_index(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on ArgMax and ArgMin."""
    op, rank = suspect.op, suspect.x.ndim
    assert isinstance(op, ArgMax | ArgMin)
    for axis in range(rank):
        if axis != op.axis % rank:
            yield from with_attributes(
                op, f"axis {axis}", f"it was taken along axis {axis}", Prior.usual, axis=axis
            )
    yield from with_attributes(
        op,
        "the other of equal ones",
        "of equal elements the other end was named",
        Prior.usual,
        select_last_index=not op.select_last_index,
    )
    opposite: type[Operator] = ArgMin if isinstance(op, ArgMax) else ArgMax
    yield Hypothesis(
        f"computed as {opposite.__name__}",
        f"{opposite.__name__} was computed",
        Prior.common,
        op=opposite(**op.attributes()),
        attributes={"operator": opposite.__name__},
    )


@hypotheses_of("CumSum")
def running_sum(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on CumSum."""
    op = suspect.op
    assert isinstance(op, CumSum)
    for field in ("exclusive", "reverse"):
        yield from with_attributes(
            op,
            f"{field} the other way",
            f"{field} was taken as {not getattr(op, field)}",
            Prior.usual,
            **{field: not getattr(op, field)},
        )
    for axis in range(suspect.x.ndim):
        yield Hypothesis(
            f"along axis {axis}",
            f"it was summed along axis {axis}",
            Prior.usual,
            inputs=lambda a, axis=axis: [a[0], np.array(axis, np.int64)],
        )
