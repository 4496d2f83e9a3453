"""Data movement as index maps, found by asking the operator's own meaning.

A movement operator applied to the positions of its input's elements gives, for every output
element, the position it comes from. When that map is affine per axis (perhaps after splitting axes)
the operator is a strided copy; nothing about Transpose or DepthToSpace is restated here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

MAX_AXES = 10


@dataclasses.dataclass(frozen=True)
class StridedMap:
    """source position = offset + sum(strides[d] * i[d]) over the index space `dims`.

    The row-major order of `dims` is the row-major order of the output; `axes` says which output
    axis each dim is a part of.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    axes: tuple[int, ...] = ()

    def target_strides(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Strides over `dims` of an output that has `strides` per axis."""
        reversed_strides: list[int] = []
        inner: dict[int, int] = {}
        for n, axis in zip(reversed(self.dims), reversed(self.axes)):
            reversed_strides.append(strides[axis] * inner.get(axis, 1))
            inner[axis] = inner.get(axis, 1) * n
        return tuple(reversed(reversed_strides))


def strided_map(positions: np.ndarray) -> StridedMap | None:
    """The affine form of an index map (int64 source positions, shaped like the output), if any."""
    if positions.size == 0:
        return None
    offset = int(positions.reshape(-1)[0])
    dims: list[int] = []
    strides: list[int] = []
    axes: list[int] = []
    total = np.full((1,) * positions.ndim, offset, np.int64)
    for axis, size in enumerate(positions.shape):
        at = tuple(slice(None) if a == axis else 0 for a in range(positions.ndim))
        line = positions[at] - offset
        factors = _factor(line)
        if factors is None:
            return None
        for n, stride in factors:
            dims.append(n)
            strides.append(stride)
            axes.append(axis)
        shape = [1] * positions.ndim
        shape[axis] = size
        total = total + line.reshape(shape)
    if len(dims) > MAX_AXES or not np.array_equal(total, positions):
        return None
    return StridedMap(tuple(dims), tuple(strides), offset, tuple(axes))


def _factor(line: np.ndarray) -> list[tuple[int, int]] | None:
    """(size, stride) factors of one axis's positions, outermost first."""
    size = len(line)
    if size == 1:
        return [(1, 0)]
    stride = int(line[1] - line[0])
    breaks = np.flatnonzero(np.diff(line) != stride)
    if not len(breaks):
        return [(size, stride)]
    run = int(breaks[0]) + 1
    if size % run:
        return None
    folded = line.reshape(-1, run)
    if not np.array_equal(folded - folded[:, :1], np.broadcast_to(folded[0], folded.shape)):
        return None
    outer = _factor(folded[:, 0])
    return None if outer is None else [*outer, (run, stride)]


def beginnings(positions: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """(begins, steps): positions[i, j] = begins[i] + sum(steps * j), with as many of the last
    axes in j as can be; the first stays in i."""
    steps: list[int] = []
    while positions.ndim > 1:
        step = int(np.diff(positions).flat[0]) if positions.shape[-1] > 1 else 0
        if (np.diff(positions) != step).any():
            break
        steps.insert(0, step)
        positions = positions[..., 0]
    return positions, tuple(steps)
