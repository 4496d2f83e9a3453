"""Winograd's filtering of integers, which is exact: the sums are those of direct summation.

The kernel's transform is scaled until it is whole, so that a tile of outputs comes out `SCALE`
times too large, and is divided again. All of it is arithmetic modulo 2^32 (of the input's
transform: modulo 2^16), a ring, so what wraps around on the way does no harm. What must hold, and
`fits` checks it of the actual weights and data: transformed numbers fit into the 16 bits that are
multiplied, and the results times the power of two of `SCALE` into 32; its odd part has an inverse
modulo 2^32.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from verax.numerics import winograd
from verax.numerics.arith import Arith

V = TypeVar("V")

FILTER = {
    2: ((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)),
    4: ((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 12)),
}
"""By tile 2 G and 24 G, but for the last row of 24 G: half of it is left to `output_transform`, for
else the last number of all, 24 * 24 times a weight, had more than 16 bits."""
SCALE = {2: 2 * 2, 4: 24 * 24}
"""How many times too large outputs are."""


def _largest_factor(matrix: Sequence[Sequence[int]]) -> int:
    """How many times the largest input the largest result may be, along both axes."""
    return int(max(sum(map(abs, row)) for row in matrix)) ** 2


INPUT_GROWTH = {tile: _largest_factor(winograd.INPUT[tile]) for tile in winograd.TILES}
FILTER_GROWTH = {tile: _largest_factor(FILTER[tile]) for tile in winograd.TILES}
SHIFT = {tile: (scale & -scale).bit_length() - 1 for tile, scale in SCALE.items()}
"""Of the power of two in the scale."""


class Whole(Generic[V]):
    """The operations of the transforms on integers, which a multiply-add does not round."""

    def __init__(self, m: Arith[V]) -> None:
        self.m, self.add, self.sub, self.like = m, m.add, m.sub, m.like

    def fma(self, a: V, b: V, c: V) -> V:
        return self.m.add(self.m.mul(a, b), c)


def input_transform(m: Arith[V], tile: int, d: Sequence[V]) -> list[V]:
    """B^T d, for tile + 2 integers."""
    integers: Any = Whole(m)
    return winograd.input_transform(integers, tile, d)


def output_transform(m: Arith[V], tile: int, x: Sequence[V]) -> list[V]:
    """A^T x, for tile + 2 integers; of 4, the last twice."""
    integers: Any = Whole(m)
    last = x[-1] if tile == 2 else m.add(x[-1], x[-1])
    return winograd.output_transform(integers, tile, [*x[:-1], last])


def unscaled(m: Arith[V], tile: int, x: V) -> V:
    """x / `SCALE` of int32, for its multiples, as far as `fits` goes."""
    odd = SCALE[tile] >> SHIFT[tile]
    if odd > 1:
        inverse = pow(odd, -1, 2**32)
        x = m.mul(x, m.like(inverse - (inverse >> 31 << 32), x))
    return m.shift_right(x, m.like(SHIFT[tile], x))


def transformed_filters(w: np.ndarray, tile: int) -> np.ndarray:
    """The scaled transform of every kernel: [..., 3, 3] -> int32 [tile + 2, tile + 2, ...]."""

    def along(g: Sequence[np.ndarray]) -> list[np.ndarray]:
        rows = ([a * b for a, b in zip(row, g, strict=True) if a] for row in FILTER[tile])
        return [functools.reduce(np.add, terms) for terms in rows]

    kernel = winograd.KERNEL
    taps = np.ascontiguousarray(w.reshape(-1, kernel * kernel).T, np.int32)
    transformed = winograd.both_ways(
        along, [list(taps[kernel * y : kernel * (y + 1)]) for y in range(kernel)]
    )
    return np.array(transformed).reshape(tile + 2, tile + 2, *w.shape[:-2])


def fits(w: np.ndarray, low: int, high: int, tile: int) -> bool:
    """Whether outputs come out right for weights [o, c, 3, 3] and data from `low` to `high`, or 0
    around them."""
    low, high = min(low, 0), max(high, 0)
    largest = max(-int(w.min(initial=0)), int(w.max(initial=0)))
    short = max(-low, high) * INPUT_GROWTH[tile] < 2**15 and largest * FILTER_GROWTH[tile] < 2**15
    over = tuple(range(1, w.ndim))
    up = np.maximum(w, 0).sum(axis=over, dtype=np.int64)
    down = up - w.sum(axis=over, dtype=np.int64)
    max_sum = max((up * high - down * low).max(initial=0), (down * high - up * low).max(initial=0))
    return short and int(max_sum) << SHIFT[tile] < 2**31
