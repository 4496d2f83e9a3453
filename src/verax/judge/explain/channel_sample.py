"""Computes only a few output channels of a costly node, so that most hypotheses fail quickly.

A hypothesis is tried on the channels with the subject's largest errors and on some others; only if
it fits there it is computed in full.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import Suspect
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose

CHEAP = 1 << 22
"""Products that are computed in full without a thought."""
WORST, OTHERS = 3, 3
"""Channels (or groups) looked at: those with the largest errors, and others spread evenly."""


@dataclass(frozen=True)
class ChannelSample:
    """The output channels of a suspect that are computed first.

    channels: their indices; groups: the groups that they make up, or None for an operator without
    groups; axis: of the channels in the output; actual, expected: those channels in float64.
    """

    channels: np.ndarray
    groups: np.ndarray | None
    axis: int
    actual: np.ndarray
    expected: np.ndarray

    def of(self, op: Operator, arrays: list[Any]) -> tuple[Operator, list[Any]]:
        """The operator and its inputs for these channels only, as many inputs as in `arrays`."""
        alternative, restricted = self._restricted(op, arrays)
        return alternative, restricted[: len(arrays)]

    def _restricted(self, op: Operator, arrays: list[Any]) -> tuple[Operator, list[Any]]:
        x, w, b = (*arrays, None)[:3]
        if isinstance(op, Gemm):
            b = b if b is None or b.ndim == 0 or b.shape[-1] == 1 else b[..., self.channels]
            return op, [x, w[self.channels] if op.trans_b else w[:, self.channels], b]
        if isinstance(op, MatMul):
            return op, [x, w[..., self.channels]]
        assert isinstance(op, Conv | ConvTranspose)
        b = None if b is None else b[self.channels]
        if self.groups is None:
            return op, [x, w[self.channels] if isinstance(op, Conv) else w[:, self.channels], b]
        inputs = _members(self.groups, x.shape[1] // op.groups)
        filters = self.channels if isinstance(op, Conv) else inputs
        alternative = dataclasses.replace(op, groups=len(self.groups))
        return alternative, [x[:, inputs], w[filters], b]


def channel_sample(suspect: Suspect) -> ChannelSample | None:
    """The channels of a suspect to compute first; None when all of it is cheap."""
    op, actual, expected = suspect.op, suspect.wide, suspect.expected
    if not isinstance(op, Conv | ConvTranspose | Gemm | MatMul) or actual.shape != expected.shape:
        return None
    w = suspect.inputs[1]
    if actual.ndim < 2 or (isinstance(op, MatMul) and w.ndim < 2):
        return None
    axis = 1 if isinstance(op, Conv | ConvTranspose | Gemm) else actual.ndim - 1
    channel_count = actual.shape[axis]
    if actual.size * (w.size // max(1, channel_count)) <= CHEAP:
        return None
    groups = op.groups if isinstance(op, Conv | ConvTranspose) else 1
    with np.errstate(invalid="ignore", over="ignore"):
        squares = np.nan_to_num(np.square(actual - expected), posinf=np.inf)
        size = squares.sum(axis=tuple(a for a in range(actual.ndim) if a != axis))
    size = size.reshape(groups, -1).sum(axis=1) if groups > 1 else size
    worst = np.argsort(-size, kind="stable")[:WORST]
    selected = np.unique([*worst, *np.linspace(0, len(size) - 1, OTHERS).astype(int)])
    if len(selected) == len(size):
        return None
    indices = selected if groups == 1 else _members(selected, channel_count // groups)
    index = (slice(None),) * axis + (indices,)
    return ChannelSample(
        indices, None if groups == 1 else selected, axis, actual[index], expected[index]
    )


def _members(groups: np.ndarray, size: int) -> np.ndarray:
    """Channels of the groups, `size` in each."""
    return (groups[:, None] * size + np.arange(size)).ravel()
