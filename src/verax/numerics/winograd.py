"""Winograd's minimal filtering F(m x m, 3 x 3): its transforms, written once for every machine.

A tile of m x m outputs of a 3 x 3 correlation is A^T [(G g G^T) * (B^T d B)] A with the (m + 2)^2
inputs d under it and the kernel g. It takes (m + 2)^2 products instead of 9 m^2. The matrices are
those of Lavin and Gray (2015), interpolation at 0, 1, -1 (and 2, -2) and infinity; the order of
additions below is what the promised bits are made of. Transforms run down the columns first, then
along the rows.

A tile of float32 shares its rounding, so what direct summation does to zeros, to what is not finite
and to large numbers is kept by rules of its own: `scales` and `factor`. They go by magnitudes: the
bits of |x| as int32, the largest of a pixel's channels. Those order as the numbers do, from 0 to
`NOT_FINITE`, above which lies what is not a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from verax.numerics import power_of_two
from verax.numerics.arith import Arith

V = TypeVar("V")
TILES = (2, 4)
"""Outputs of a tile along an axis, of the members that exist."""
KERNEL = 3
NAMES = {tile: f"Winograd F({tile}x{tile}, 3x3)" for tile in (*TILES, 6)}
"""What recipes, certificates and verdicts call them; F(6x6, 3x3) is what others take: here its
transforms cost what its products save."""

INPUT = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
"""B^T by tile."""
FILTER = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}
"""G by tile, in float64."""
OUTPUT = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
"""A^T by tile."""

NOT_FINITE = power_of_two.EXPONENT
"""The least magnitude of what is not finite."""
EXPONENT = 80
"""Of the power of two that tiles are scaled by whose largest number is out of the ordinary."""
LARGE, SMALL = (127 + 40) << 23, (127 - 40) << 23
"""Magnitudes of 2^40 and 2^-40: a tile is scaled whose largest is not below, or below the other."""
LARGEST_WEIGHT = 2.0**48
"""Weights are below it. Then nothing overflows between the transforms: numbers below 2^48 grow by
10 * 10 in the first, and by 19 * 19 in the second, which leaves 2^16 for the channels."""


def scales(m: Arith[V], largest: V) -> tuple[V, V]:
    """(factor of a tile's inputs, its inverse), powers of two in float32, by the largest finite
    magnitude under the tile. Tiles of zeros are ordinary."""
    down, one, up = (m.const(2.0**e, "float32") for e in (-EXPONENT, 0, EXPONENT))
    large, small = m.ge(largest, m.like(LARGE, largest)), m.lt(largest, m.like(SMALL, largest))
    small = m.and_(small, m.gt(largest, m.like(0, largest)))
    return (
        m.select(large, down, m.select(small, up, one)),
        m.select(large, up, m.select(small, down, one)),
    )


def factor(m: Arith[V], field: V, inverse: V) -> V:
    """What one output's transformed sum is multiplied by, in float32: the inverse of its tile's
    scale; 0 where the 3 x 3 inputs that it sees are all zero, so that no other's rounding is left
    there; NaN where one of them is not finite. field: the largest magnitude among them."""
    zero, nan = m.const(0.0, "float32"), m.const(float("nan"), "float32")
    value = m.select(m.eq(field, m.like(0, field)), zero, inverse)
    return m.select(m.ge(field, m.like(NOT_FINITE, field)), nan, value)


def input_transform(m: Arith[V], tile: int, d: Sequence[V]) -> list[V]:
    """B^T d in float32, for tile + 2 numbers."""
    if tile == 2:
        return [m.sub(d[0], d[2]), m.add(d[1], d[2]), m.sub(d[2], d[1]), m.sub(d[1], d[3])]
    even, odd = _scaled(m, -4, d[2], d[4]), _scaled(m, -4, d[1], d[3])
    outer, inner = m.sub(d[4], d[2]), m.sub(d[3], d[1])
    inner = m.add(inner, inner)
    return [
        _scaled(m, 4, d[0], _scaled(m, -5, d[2], d[4])),
        m.add(odd, even),
        m.sub(even, odd),
        m.add(outer, inner),
        m.sub(outer, inner),
        _scaled(m, 4, d[1], _scaled(m, -5, d[3], d[5])),
    ]


def output_transform(m: Arith[V], tile: int, x: Sequence[V]) -> list[V]:
    """A^T x in float32, for tile + 2 numbers."""
    near, apart = m.add(x[1], x[2]), m.sub(x[1], x[2])
    if tile == 2:
        return [m.add(x[0], near), m.sub(apart, x[3])]
    far, between = m.add(x[3], x[4]), m.sub(x[3], x[4])
    return [
        m.add(m.add(x[0], near), far),
        _scaled(m, 2, between, apart),
        _scaled(m, 4, far, near),
        m.add(_scaled(m, 8, between, apart), x[5]),
    ]


def _scaled(m: Arith[V], factor: float, x: V, y: V) -> V:
    """factor x + y, rounded once."""
    return m.fma(m.like(factor, x), x, y)


def both_ways(
    along: Callable[[Sequence[V]], list[V]], grid: Sequence[Sequence[V]]
) -> list[list[V]]:
    """`along` applied down each column of `grid`, then along each row of what that gives."""
    columns = [along([row[x] for row in grid]) for x in range(len(grid[0]))]
    return [along([column[y] for column in columns]) for y in range(len(columns[0]))]


_AT_A_TIME = 4096
"""Kernels that are transformed together: their float64 numbers stay in the second cache."""


def transformed_filters(w: np.ndarray, tile: int) -> np.ndarray:
    """G g G^T of every kernel: [..., 3, 3] -> float32 [tile + 2, tile + 2, ...].

    Computed in float64, terms without a factor of 0 added from left to right, and rounded once. No
    result is larger than the largest weight of its kernel.
    """

    def along(g: Sequence[np.ndarray]) -> list[np.ndarray]:
        products: dict[tuple[int, float], tuple[float, np.ndarray]] = {}
        rows = []
        for row in FILTER[tile]:
            total: np.ndarray | None = None
            for i, factor in enumerate(row):
                if not factor:
                    continue
                if (i, abs(factor)) not in products:
                    product = g[i] if factor == 1 else factor * g[i]
                    products[i, abs(factor)] = factor, product
                sign, term = products[i, abs(factor)]
                if total is None:
                    total = term if sign == factor else -term
                else:  # taking away rounds as adding the negative does
                    total = total + term if sign == factor else total - term
            assert total is not None
            rows.append(total)
        return rows

    kernels = w.reshape(-1, KERNEL * KERNEL)
    transformed = np.empty((tile + 2, tile + 2, len(kernels)), np.float32)
    for start in range(0, len(kernels), _AT_A_TIME):
        chunk = slice(start, start + _AT_A_TIME)
        taps = np.ascontiguousarray(kernels[chunk].T, np.float64)
        grid = [list(taps[KERNEL * y : KERNEL * (y + 1)]) for y in range(KERNEL)]
        for i, row in enumerate(both_ways(along, grid)):
            for j, values in enumerate(row):
                transformed[i, j, chunk] = values
    return transformed.reshape(*transformed.shape[:2], *w.shape[:-2])
