"""Determinants of small matrices, without pivots: products of matrices alone (Bird 2011).

Elimination chooses pivots by size, which rounding may tip; the determinant itself is a polynomial.
With mu(F) the part of F above its diagonal, on which the sum of F's diagonal below each place
stands, negated: F <- mu(F) A, n - 1 times from F = A on, holds the determinant, up to its sign, at
its first place. What cancels there grows with n: at `LARGEST` random matrices in float32 lose a
digit.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion

LARGEST = 8
"""Rows of a matrix whose determinant is computed."""


def determinant(c: Conversion, x: str) -> str:
    """Of matrices [..., n, n] -> [...]. Refuses what is not square, or too large.

    Raises `ValueNeededError` while n is open."""
    rank = c.rank(x)
    if rank < 2:
        c.refuse(f"the determinant of {c.type(x)}, which is no matrix")
    rows, columns = (c.known_size(x, axis) for axis in (rank - 2, rank - 1))
    if rows != columns or not 1 <= rows <= LARGEST:
        c.refuse(
            f"the determinant of matrices of {rows} x {columns}; square ones of 1 to {LARGEST} "
            "rows are supported"
        )
    front = c.add("Shape", [x], end=rank - 2)
    flat = c.add("Concat", [front, c.ints([rows * rows])], axis=0)
    diagonal = c.constant(np.arange(rows) * (rows + 1), np.int64)
    on_diagonal = c.constant(np.eye(rows, dtype=bool), np.bool_)
    product = x
    for step in range(rows - 1):
        places = c.add("Gather", [c.add("Reshape", [product, flat]), diagonal], axis=rank - 2)
        below = c.add(
            "CumSum", [places, c.constant(rank - 2, np.int64)], exclusive=True, reverse=True
        )
        above = c.add("Trilu", [product, c.constant(1, np.int64)], upper=True)
        summed = c.add("Unsqueeze", [c.add("Neg", [below]), c.ints([-1])])
        factor, last = c.add("Where", [on_diagonal, summed, above]), x
        if step == rows - 2:  # only the first place of the last product counts
            factor = c.add("Slice", [factor, c.ints([0]), c.ints([1]), c.ints([rank - 2])])
            last = c.add("Slice", [x, c.ints([0]), c.ints([1]), c.ints([rank - 1])])
        product = c.add("MatMul", [factor, last])
    y = c.add("Reshape", [product, front])
    return c.add("Neg", [y]) if rows % 2 == 0 else y
