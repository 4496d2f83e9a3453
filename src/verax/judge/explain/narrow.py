"""Computing only a few output channels of a costly node, so that most rivals are refused quickly.

A rival is tried on the channels where the subject errs most and on some others; only what fits
there is computed in full.
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
class Narrowed:
    """The part of a suspect that is looked at first.

    kept: output channels; groups: the groups that they make up, or None for an operator without
    groups; axis: of the channels in the output; given, expected: those channels in float64.
    """

    kept: np.ndarray
    groups: np.ndarray | None
    axis: int
    given: np.ndarray
    expected: np.ndarray

    def of(self, op: Operator, arrays: list[Any]) -> tuple[Operator, list[Any]]:
        """The operator and its inputs for the kept channels only, as many as are given."""
        rival, parts = self._parts(op, arrays)
        return rival, parts[: len(arrays)]

    def _parts(self, op: Operator, arrays: list[Any]) -> tuple[Operator, list[Any]]:
        x, w, b = (*arrays, None)[:3]
        if isinstance(op, Gemm):
            b = b if b is None or b.ndim == 0 or b.shape[-1] == 1 else b[..., self.kept]
            return op, [x, w[self.kept] if op.trans_b else w[:, self.kept], b]
        if isinstance(op, MatMul):
            return op, [x, w[..., self.kept]]
        assert isinstance(op, Conv | ConvTranspose)
        b = None if b is None else b[self.kept]
        if self.groups is None:
            return op, [x, w[self.kept] if isinstance(op, Conv) else w[:, self.kept], b]
        inputs = _members(self.groups, x.shape[1] // op.groups)
        filters = self.kept if isinstance(op, Conv) else inputs
        rival = dataclasses.replace(op, groups=len(self.groups))
        return rival, [x[:, inputs], w[filters], b]


def narrowed(suspect: Suspect) -> Narrowed | None:
    """Which part of a suspect to look at first; None when all of it is cheap."""
    op, given, expected = suspect.op, suspect.wide, suspect.expected
    if not isinstance(op, Conv | ConvTranspose | Gemm | MatMul) or given.shape != expected.shape:
        return None
    w = suspect.inputs[1]
    if given.ndim < 2 or (isinstance(op, MatMul) and w.ndim < 2):
        return None
    axis = 1 if isinstance(op, Conv | ConvTranspose | Gemm) else given.ndim - 1
    channels = given.shape[axis]
    if given.size * (w.size // max(1, channels)) <= CHEAP:
        return None
    groups = op.groups if isinstance(op, Conv | ConvTranspose) else 1
    with np.errstate(invalid="ignore", over="ignore"):
        squares = np.nan_to_num(np.square(given - expected), posinf=np.inf)
        size = squares.sum(axis=tuple(a for a in range(given.ndim) if a != axis))
    size = size.reshape(groups, -1).sum(axis=1) if groups > 1 else size
    worst = np.argsort(-size, kind="stable")[:WORST]
    chosen = np.unique([*worst, *np.linspace(0, len(size) - 1, OTHERS).astype(int)])
    if len(chosen) == len(size):
        return None
    kept = chosen if groups == 1 else _members(chosen, channels // groups)
    part = (slice(None),) * axis + (kept,)
    return Narrowed(kept, None if groups == 1 else chosen, axis, given[part], expected[part])


def _members(groups: np.ndarray, size: int) -> np.ndarray:
    """Channels of the groups, `size` in each."""
    return (groups[:, None] * size + np.arange(size)).ravel()
