"""The canonical order of reductions, and reductions in NumPy that keep it.

The reduced axes are flattened in row-major order (of the logical tensor) to a length n. w partial
results start from the identity; each takes every w-th element in turn; then a fixed tree joins
them, those at distance w / 2 first:

    for k in range(n): part[k % w] = part[k % w] op x[k]
    for d in (w / 2, ..., 2, 1): for j in range(d): part[j] = part[j] op part[j + d]

w is 32 for sums of floats (SUMS), otherwise 16 (LANES). "squares" is a sum whose first line is
part[k % w] = fma(x[k], x[k], part[k % w]).

Sums of floats are taken so in blocks of BLOCK elements, the last of which may be shorter. What
the blocks come to is added in ascending order to a total that begins as +0, and what the rounding
of each addition lost (Knuth's two-sum) is added up beside it and to the total in the end: however
long a row is, its error is that of its blocks and two roundings. A row of one block has the bits
of that block.

A compiler can follow this at full speed when the reduced axis is contiguous (two vectors, which
need not wait for one another) and when it is not (a vector for each partial result), whatever the
width of the machine's registers. The order decides the bits of float sums and products; maxima and
minima (NaN wins, -0 < +0) and integers come out the same in any order. float16 and bfloat16 are
reduced in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.formats import FLOATS, dtype_name, numpy_dtype
from verax.numerics.lanes import LANES as LANES

V = TypeVar("V")

CHANNEL_BLOCK = LANES
"""Input channels that a contraction takes together before it moves to the next kernel position;
also what a blocked tensor keeps side by side."""
SUMS = 2 * LANES
"""Interleaved partial results of a sum of floats."""
BLOCK = 1024
"""Elements that floats are summed of before the two-sums: 32 additions in each partial result."""
KINDS = ("sum", "squares", "prod", "max", "min")


def identity(kind: str, dtype: str) -> float | int:
    """The value that lanes start from: it changes no result."""
    if kind in ("sum", "squares"):
        return 0
    if kind == "prod":
        return 1
    if dtype in FLOATS:
        return -math.inf if kind == "max" else math.inf
    if dtype == "bool":
        return int(kind == "min")
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min if kind == "max" else info.max)


def combine(m: Arith[Any], kind: str, a: Any, x: Any) -> Any:
    """One step of a reduction: a op x, where a is a partial result and x an element."""
    return m.fma(x, x, a) if kind == "squares" else join(m, kind, a, x)


def join(m: Arith[Any], kind: str, a: Any, b: Any) -> Any:
    """Two partial results made one."""
    step: Callable[[Any, Any], Any] = {
        "sum": m.add, "squares": m.add, "prod": m.mul, "max": m.max, "min": m.min,
    }[kind]  # fmt: skip
    return step(a, b)


def in_blocks(kind: str, dtype: str) -> bool:
    """Whether it is a sum of floats, which is taken in blocks of BLOCK elements."""
    return kind in ("sum", "squares") and dtype in FLOATS


def add_block(m: Arith[V], total: V, lost: V, block: V) -> tuple[V, V]:
    """(total + block, lost + what that addition's rounding lost), the latter exact before it is
    added; `lost` is no number from where the total overflows on."""
    new_total = m.add(total, block)
    added = m.sub(new_total, total)
    missing = m.add(m.sub(total, m.sub(new_total, added)), m.sub(block, added))
    return new_total, m.add(lost, missing)


def sum_of_blocks(m: Arith[V], total: V, lost: V) -> V:
    """The sum, from what `add_block` gave last."""
    exact = m.lt(m.abs(lost), m.like(math.inf, lost))
    return m.select(exact, m.add(total, lost), total)


def elements_read(n: int, stride: int) -> int:
    """How many of n elements are in each `every`-th group of LANES, from the first on."""
    groups, remainder = divmod(n, stride * LANES)
    return groups * LANES + min(LANES, remainder)


def reduce(
    x: np.ndarray,
    axes: Sequence[int] | None,
    kind: str = "sum",
    keepdims: bool = False,
    every: int = 1,
) -> np.ndarray:
    """`x` reduced over `axes` (None: all) in the canonical order; kind: one of KINDS. every: of the
    groups of LANES elements in that order, which are taken, from the first on.

    No elements give the identity. The dtype is kept; "squares" are of floats. ValueError for an
    unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown reduction {kind!r}; known: {', '.join(KINDS)}")
    rank = x.ndim
    reduced = sorted(range(rank) if axes is None else {a % rank for a in axes})
    kept_axes = [a for a in range(rank) if a not in reduced]
    outer = tuple(x.shape[a] for a in kept_axes)
    n = math.prod(x.shape[a] for a in reduced)
    dtype = dtype_name(x.dtype)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    flat = x.transpose([*kept_axes, *reduced]).reshape(math.prod(outer), n)
    if every > 1:
        flat = flat[:, np.arange(n) // LANES % every == 0]
    result = _reduce_rows(flat.astype(numpy_dtype(work)), kind, work)
    result = NumpyArith().convert(result, dtype)
    shape = tuple(1 if a in reduced else x.shape[a] for a in range(rank)) if keepdims else outer
    return result.reshape(shape)


def _reduce_rows(rows: np.ndarray, kind: str, dtype: str) -> np.ndarray:
    """(outer, n) -> (outer,)."""
    count, n = rows.shape
    if not in_blocks(kind, dtype) or n <= BLOCK:
        return _reduce_block(rows, kind, dtype)
    m = NumpyArith()
    full = n // BLOCK
    sums = _reduce_block(rows[:, : full * BLOCK].reshape(count, full, BLOCK), kind, dtype)
    blocks = [
        *sums.T,
        *([_reduce_block(rows[:, full * BLOCK :], kind, dtype)] if n % BLOCK else []),
    ]
    total = lost = np.zeros(count, rows.dtype)
    for block in blocks:
        total, lost = add_block(m, total, lost, block)
    return sum_of_blocks(m, total, lost)


def _reduce_block(rows: np.ndarray, kind: str, dtype: str) -> np.ndarray:
    """(..., n) -> (...,): the partial results, then their tree."""
    m = NumpyArith()
    *outer, n = rows.shape
    distance = SUMS if in_blocks(kind, dtype) else LANES
    partials = np.full((*outer, distance), identity(kind, dtype), rows.dtype)
    for start in range(0, n, distance):
        chunk = rows[..., start : start + distance]
        width = chunk.shape[-1]
        partials[..., :width] = combine(m, kind, partials[..., :width], chunk)
    while distance > 1:
        distance //= 2
        partials = join(m, kind, partials[..., :distance], partials[..., distance:])
    return np.asarray(partials[..., 0])
