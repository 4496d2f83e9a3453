"""The canonical order of reductions, and reductions in NumPy that keep it.

The reduced axes are flattened in row-major order (of the logical tensor) to a length n. Sixteen
partial results start from the identity; lane j takes the elements j, j + 16, j + 32, ... in
turn; then a fixed tree joins the lanes: (0, 8), (1, 9), ... (7, 15), then distance 4, 2, 1:

    for k in range(n): lane[k % 16] = lane[k % 16] op x[k]
    for d in (8, 4, 2, 1): for j in range(d): lane[j] = lane[j] op lane[j + d]

A compiler can follow this at full speed when the reduced axis is contiguous (one vector) and
when it is not (sixteen vectors), whatever the width of the machine's registers. The order
decides the bits of float sums and products; maxima and minima (NaN wins, -0 < +0) and integers
come out the same in any order. float16 and bfloat16 are reduced in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.formats import FLOATS, dtype_name, numpy_dtype

LANES = 16
"""Interleaved partial results of a row; lanes of a logical vector, on every machine."""
CHANNEL_BLOCK = LANES
"""Input channels that a contraction takes together before it moves to the next kernel position;
also what a blocked tensor keeps side by side."""
KINDS = ("sum", "prod", "max", "min")


def identity(kind: str, dtype: str) -> float | int:
    """The value that lanes start from: it changes no result."""
    if kind == "sum":
        return 0
    if kind == "prod":
        return 1
    if dtype in FLOATS:
        return -math.inf if kind == "max" else math.inf
    if dtype == "bool":
        return int(kind == "min")
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min if kind == "max" else info.max)


def combine(m: Arith[Any], kind: str, a: Any, b: Any) -> Any:
    """One step of a reduction: a op b."""
    step: Callable[[Any, Any], Any] = {
        "sum": m.add, "prod": m.mul, "max": m.max, "min": m.min,
    }[kind]  # fmt: skip
    return step(a, b)


def reduce(
    x: np.ndarray, axes: Sequence[int] | None, kind: str = "sum", keepdims: bool = False
) -> np.ndarray:
    """`x` reduced over `axes` (None: all) in the canonical order; kind: one of KINDS.

    No elements give the identity. The dtype is kept; ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown reduction {kind!r}; known: {', '.join(KINDS)}")
    rank = x.ndim
    reduced = sorted(range(rank) if axes is None else {a % rank for a in axes})
    kept = [a for a in range(rank) if a not in reduced]
    outer = tuple(x.shape[a] for a in kept)
    n = math.prod(x.shape[a] for a in reduced)
    dtype = dtype_name(x.dtype)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    flat = x.transpose([*kept, *reduced]).reshape(math.prod(outer), n)
    result = _reduce_rows(flat.astype(numpy_dtype(work)), kind, work)
    result = NumpyArith().convert(result, dtype)
    shape = tuple(1 if a in reduced else x.shape[a] for a in range(rank)) if keepdims else outer
    return result.reshape(shape)


def _reduce_rows(rows: np.ndarray, kind: str, dtype: str) -> np.ndarray:
    """(outer, n) -> (outer,)."""
    m = NumpyArith()
    count, n = rows.shape
    lanes = np.full((count, LANES), identity(kind, dtype), rows.dtype)
    for start in range(0, n, LANES):
        part = rows[:, start : start + LANES]
        width = part.shape[1]
        lanes[:, :width] = combine(m, kind, lanes[:, :width], part)
    distance = LANES // 2
    while distance:
        lanes[:, :distance] = combine(
            m, kind, lanes[:, :distance], lanes[:, distance : 2 * distance]
        )
        distance //= 2
    return lanes[:, 0]
