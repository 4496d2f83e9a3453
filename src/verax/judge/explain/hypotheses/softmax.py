"""Softmax and its relatives: axis, flattening, logarithm, applied twice or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import (
    Hypothesis,
    Prior,
    Suspect,
    edited,
    from_inputs,
    hypotheses_of,
)
from verax.judge.explain.hypotheses.fitting import line
from verax.ops.pointwise.transcendental import Exp, Log, Sigmoid
from verax.ops.sums.softmax import AlongAxis, Hardmax, LogSoftmax, Softmax


@hypotheses_of("Softmax", "LogSoftmax", "Hardmax")
def softmax(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Softmax, LogSoftmax and Hardmax."""
    op = suspect.op
    assert isinstance(op, AlongAxis)
    rank = suspect.x.ndim
    for flatten in (op.flatten, not op.flatten):
        for axis in range(rank):
            if flatten == op.flatten and axis == op.axis % rank:
                continue
            over = f"axis {axis}" + (" and all after it" if flatten else "")
            yield Hypothesis(
                f"over {over}",
                f"it was computed over {over}",
                Prior.usual if not flatten else Prior.common,
                op=dataclasses.replace(op, axis=axis, flatten=flatten),  # type: ignore[call-arg]
                attributes={"axis": str(axis), "flatten": str(flatten)},
            )
    form: dict[str, Any] = {"axis": op.axis, "flatten": op.flatten}
    alternatives: tuple[tuple[str, Operator], ...] = (
        ("Softmax", Softmax(**form)),
        ("LogSoftmax", LogSoftmax(**form)),
        ("Hardmax", Hardmax(**form)),
        ("Sigmoid", Sigmoid()),
        ("Exp", Exp()),
        ("Log", Log()),
    )
    for name, alternative in alternatives:
        if alternative.kind != op.kind:
            yield Hypothesis(
                f"computed as {name}",
                f"{name} was computed",
                Prior.common,
                op=alternative,
                attributes={"operator": name},
            )
    yield Hypothesis(
        "left out",
        "the input was passed on as it is",
        Prior.usual,
        after=from_inputs(lambda inputs: inputs[0]),
    )
    if isinstance(op, Softmax):
        yield Hypothesis(
            "applied twice",
            "Softmax was applied twice",
            Prior.common,
            inputs=edited(0, lambda x: _softmax(op, x.astype(np.float64))),
        )
    yield from _temperature(suspect, op)


def _softmax(op: Softmax, x: np.ndarray) -> np.ndarray:
    return op.unlines(op.along(op.lines(x)), x.shape)


def _temperature(suspect: Suspect, op: AlongAxis) -> Iterator[Hypothesis]:
    """The input scaled by the factor that the numbers themselves show."""
    if suspect.wide.shape != suspect.x.shape or isinstance(op, Hardmax):
        return
    actual = suspect.wide
    with np.errstate(all="ignore"):
        logs = op.lines(np.log(actual) if isinstance(op, Softmax) else actual)
    if not np.isfinite(logs).all():
        return
    rows = op.lines(suspect.x.astype(np.float64))
    fit = line(rows - rows.mean(axis=1, keepdims=True), logs - logs.mean(axis=1, keepdims=True))
    if fit is not None and np.isfinite(fit[0]):
        yield Hypothesis(
            "input scaled",
            f"the input was multiplied by {fit[0]:.6g} first",
            Prior.uncommon,
            inputs=edited(0, lambda x: x.astype(np.float64) * fit[0]),
            fitted=1,
        )
