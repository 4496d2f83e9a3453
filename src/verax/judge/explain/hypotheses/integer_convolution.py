"""Convolutions of small integers: what goes wrong in any convolution, and with zero points."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import (
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
)
from verax.judge.explain.hypotheses.convolution import convolution, windows_of
from verax.ops.windows.integer_convolution import ConvInteger, ConvTransposeInteger

DATA_ZERO, WEIGHT_ZERO = 2, 3


@hypotheses_of("ConvInteger", "ConvTransposeInteger")
def integer_convolution(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on ConvInteger and ConvTransposeInteger."""
    op = suspect.op
    assert isinstance(op, ConvInteger | ConvTransposeInteger)
    for index, label in ((DATA_ZERO, "data"), (WEIGHT_ZERO, "weights")):
        if suspect.has(index) and np.any(suspect.inputs[index]):
            yield Hypothesis(
                f"zero point of the {label} ignored",
                f"the zero point of the {label} was taken as 0",
                Prior.usual,
                inputs=edited(index, np.zeros_like),
            )
    node = dataclasses.replace(suspect.node, op=op.convolution())
    plain = dataclasses.replace(suspect, node=node, inputs=suspect.inputs[:2])
    if isinstance(op, ConvInteger):
        yield from _padded_with_zeros(suspect, plain, op)
    for hypothesis in convolution(plain):
        alternative = None if hypothesis.op is None else _integer(op, hypothesis.op)
        edit = None if hypothesis.inputs is None else _with_zero_points(hypothesis.inputs)
        yield dataclasses.replace(hypothesis, op=alternative, inputs=edit)


def _padded_with_zeros(suspect: Suspect, plain: Suspect, op: ConvInteger) -> Iterator[Hypothesis]:
    """Padding with the number 0 where the zero point stands for it."""
    windows = windows_of(plain)
    if not suspect.has(DATA_ZERO) or not np.any(suspect.inputs[DATA_ZERO]):
        return
    if not windows.can_store_pads(suspect.x):
        return
    widths = ((0, 0), (0, 0), *windows.pads)
    yield Hypothesis(
        "padded with 0, not with the zero point",
        "the input was padded with the number 0, which is not what 0 means: its zero point is",
        Prior.usual,
        op=dataclasses.replace(op, pads=((0, 0),) * windows.rank),
        inputs=edited(0, lambda x: np.pad(x, widths)),
        crop=True,
    )


def _integer(op: Any, alternative: Operator) -> Operator:
    """The operator on integers with the attributes of an alternative convolution."""
    fields = {f.name for f in dataclasses.fields(op)}
    return dataclasses.replace(
        op, **{k: v for k, v in alternative.attributes().items() if k in fields}
    )


def _with_zero_points(edit: Edit) -> Edit:
    """An edit of data and weights, the zero points kept."""

    def edits(arrays: Arrays) -> Arrays:
        return [*edit(arrays[:2])[:2], *arrays[2:]]

    return edits
