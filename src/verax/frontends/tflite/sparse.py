"""Sparse constants of a TFLite file, made dense.

A tensor's `sparsity` lists its levels from the outside in: first every axis, in an order of its
own, then the axes of blocks where it has such. A dense level goes through all its positions; a
sparse one lists, for each position of the level above, which of its positions there are. The values
lie in the order in which these levels are gone through; everything else is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.tflite.flatbuffer import FlatbufferTable

VECTORS = {1: "int32", 2: "uint16", 3: "uint8"}
"""Element types of a level's lists, by their number in the union."""
MAX_ELEMENTS = 1 << 30
"""Numbers that a dense constant may have: the file states its size, a few bytes may claim any."""


def dense(
    values: np.ndarray, dims: Sequence[int], sparsity: FlatbufferTable, location: str
) -> np.ndarray:
    """The dense constant. values: as they lie in the file. Raises `ModelError` where the levels
    contradict the shape or the number of values."""
    rank, order, blocks = len(dims), sparsity.array(0, "int32"), sparsity.array(1, "int32")
    levels = [level for _, level in zip(range(2 * rank + 1), sparsity.tables(2))]
    expected = [*range(rank)], [*range(rank, rank + len(blocks))]
    sorted_order = sorted(order[:rank].tolist()), sorted(order[rank:].tolist())
    if sorted_order != expected or len(levels) != len(order) or len(blocks) > rank:
        raise _contradicts(location)
    if len(set(blocks.tolist())) != len(blocks) or not set(blocks.tolist()) <= set(range(rank)):
        raise _contradicts(location)
    count = math.prod(dims)
    if count > MAX_ELEMENTS:
        raise ModelError(f"the shape {list(dims)} is absurdly large", place=location)
    at = [np.zeros(1, np.int64) for _ in dims]
    above = np.zeros(1, np.int64)
    for level_axis, level in zip(order.tolist(), levels):
        size = level.integer(1)
        parents, index, above = _positions(level, above, size, count, location)
        at = [a[parents] for a in at]
        axis = level_axis if level_axis < rank else int(blocks[level_axis - rank])
        at[axis] = index if level_axis < rank else at[axis] * size + index
    if any(((a < 0) | (a >= d)).any() for a, d in zip(at, dims)) or len(above) != len(values):
        raise _contradicts(location)
    array = np.zeros(tuple(dims), values.dtype)
    array[tuple(at)] = values
    return array


def _positions(
    level: FlatbufferTable, above: np.ndarray, size: int, limit: int, location: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every entry of a level: which of the entries above it belongs to, its position along the
    level, and its number for the level below."""
    if not level.integer(0, "int8"):
        if not 0 <= size <= limit or len(above) * size > limit:
            raise _contradicts(location)
        parents = np.repeat(np.arange(len(above)), size)
        index = np.tile(np.arange(size), len(above))
        return parents, index, above[parents] * size + index
    ends, indices = _vector(level, 2, location), _vector(level, 4, location)
    if len(above) and above.max() + 1 >= len(ends):
        raise _contradicts(location)
    first, counts = ends[above], ends[above + 1] - ends[above]
    if (counts < 0).any() or (first < 0).any() or counts.sum() > limit:
        raise _contradicts(location)
    parents = np.repeat(np.arange(len(above)), counts)
    below = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    below = below + first[parents]
    if len(below) and below.max() >= len(indices):
        raise _contradicts(location)
    return parents, indices[below], below


def _vector(level: FlatbufferTable, slot: int, location: str) -> np.ndarray:
    kind, table = level.integer(slot, "uint8"), level.table(slot + 1)
    if kind not in VECTORS or table is None:
        raise _contradicts(location)
    return table.array(0, VECTORS[kind]).astype(np.int64)


def _contradicts(location: str) -> ModelError:
    return ModelError("its sparsity contradicts its shape or its values", place=location)
