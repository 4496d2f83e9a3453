"""Strassen's algorithm, one level: which sums of quarters are multiplied, and where products go.

A product of matrices in quarters, C = A B with A = (A11 A12; A21 A22), B and C likewise, takes
seven products instead of eight (Strassen, "Gaussian Elimination is not Optimal", 1969):

    M1 = (A11 + A22)(B11 + B22)    C11 = M1 + M4 - M5 + M7
    M2 = (A21 + A22) B11           C12 = M3 + M5
    M3 = A11 (B12 - B22)           C21 = M2 + M4
    M4 = A22 (B21 - B11)           C22 = M1 - M2 + M3 + M6
    M5 = (A11 + A12) B22
    M6 = (A21 - A11)(B11 + B12)
    M7 = (A12 - A22)(B21 + B22)

Rows of A and columns of B are brought to one size before, by powers of two (`scaled_left`,
`scaled_right`), and the products' sums back afterwards (`unscaled`): an element then errs as its
own row and its own column are large, whatever stands in the others, and rows and columns of zeros
give zeros. (Such scaling is known as outside scaling: Dumitrescu, "Improving and estimating the
accuracy of Strassen's algorithm", 1998; Ballard, Benson, Druinsky, Lipshitz, Schwartz, "Improving
the numerical stability of fast matrix multiplication", 2016.) A row with a number that is not
finite counts as zeros: all of its results are infinite or NaN, and which depends on its own numbers
and on the signs of B alone (`not_finite_row`).

The order of additions here is what the promised bits are made of. An odd number of rows of A gets a
row of zeros below. Winograd's variant has fewer additions, and errs more (Higham, "Accuracy and
Stability of Numerical Algorithms", second edition, section 23.2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from verax.numerics import power_of_two
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.fma import fma32

V = TypeVar("V")
NAME = "Strassen"
"""What recipes, certificates and verdicts call it."""

Terms = tuple[tuple[int, int], ...]
"""(number, sign) of what is added up, in order."""

PRODUCTS = 7
LEFT: tuple[Terms, ...] = (
    ((0, 1), (3, 1)),
    ((2, 1), (3, 1)),
    ((0, 1),),
    ((3, 1),),
    ((0, 1), (1, 1)),
    ((2, 1), (0, -1)),
    ((1, 1), (3, -1)),
)
"""By product the quarters of A, which are numbered in reading order."""
RIGHT: tuple[Terms, ...] = (
    ((0, 1), (3, 1)),
    ((0, 1),),
    ((1, 1), (3, -1)),
    ((2, 1), (0, -1)),
    ((3, 1),),
    ((0, 1), (1, 1)),
    ((2, 1), (3, 1)),
)
"""By product the quarters of B."""
OUTPUT: tuple[Terms, ...] = (
    ((0, 1), (3, 1), (4, -1), (6, 1)),
    ((2, 1), (4, 1)),
    ((1, 1), (3, 1)),
    ((0, 1), (1, -1), (2, 1), (5, 1)),
)
"""By quarter of C the products, in ascending order."""
QUARTERS = range(len(OUTPUT))
ALL_BEGUN = 1 + max(terms[0][0] for terms in OUTPUT)
"""The first product before which every quarter of C has a term."""
assert min(terms[-1][0] for terms in OUTPUT) >= ALL_BEGUN, "and none is complete"
OUTPUT_OF: tuple[Terms, ...] = tuple(
    tuple((q, sign) for q, terms in enumerate(OUTPUT) for p, sign in terms if p == product)
    for product in range(PRODUCTS)
)
"""By product the quarters of C that it is added to."""


def left_factor(m: Arith[V], product: int, quarters: Sequence[V]) -> V:
    """What a product has on the left, of A's quarters."""
    (first, _), *remaining = LEFT[product]
    total = quarters[first]
    for quarter, sign in remaining:
        total = (m.add if sign > 0 else m.sub)(total, quarters[quarter])
    return total


def scaled_left(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a [..., m, k], float32, multiplied by powers of two, and what undoes it, [..., m, 1]:
    0 for rows of zeros, infinity for those that are not finite, which become zeros."""
    m = NumpyArith()
    with np.errstate(all="ignore"):
        largest = power_of_two.magnitude(m, a).max(axis=-1, keepdims=True, initial=0)
        inverse = power_of_two.inverse_scale(m, largest)
        return power_of_two.scaled(m, a, inverse), power_of_two.scale(m, inverse)


def scaled_right(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`scaled_left` for the columns of b [k, n]: what undoes it is [n]."""
    m = NumpyArith()
    with np.errstate(all="ignore"):
        inverse = power_of_two.inverse_scale(m, _largest_of_columns(m, b))
        scaled = np.ascontiguousarray(power_of_two.scaled(m, b, inverse))
        return scaled, power_of_two.scale(m, inverse)


def right_scales(b: np.ndarray) -> np.ndarray:
    """What undoes the scaling of the columns of b [k, n] alone: [n]."""
    m = NumpyArith()
    with np.errstate(all="ignore"):
        return power_of_two.scale(m, power_of_two.inverse_scale(m, _largest_of_columns(m, b)))


def _largest_of_columns(m: NumpyArith, b: np.ndarray) -> np.ndarray:
    magnitudes: np.ndarray = power_of_two.magnitude(m, np.asarray(b, np.float32))
    return magnitudes.max(axis=0, initial=0)


def unscaled(y: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Sums of products [..., m, n] times the scales of their columns, then of their rows. No -0."""
    with np.errstate(all="ignore"):
        return fma32(y * right, np.broadcast_to(left, y.shape), np.zeros((), np.float32))


def not_finite_row(a: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """The results [n] of a row a [k] of which some numbers are not finite, for the signs [k, n] of
    a finite right factor: infinities and NaN as direct summation has them."""
    with np.errstate(all="ignore"):
        special = np.where(np.isfinite(a), np.zeros((), a.dtype), a)
        return (special[:, None] * signs).sum(axis=0)


def quarters(matrix: np.ndarray) -> list[np.ndarray]:
    """Of the last two axes, which are even: upper left, upper right, lower left, lower right."""
    m, n = (size // 2 for size in matrix.shape[-2:])
    return [
        matrix[..., r, c] for r in (slice(m), slice(m, None)) for c in (slice(n), slice(n, None))
    ]


def right_factors(b: np.ndarray) -> list[np.ndarray]:
    """What all products have on the right, in the type of b, which is rounded to."""
    blocks = quarters(b)
    return [_added(terms, blocks) for terms in RIGHT]


def quarters_by_column(b: np.ndarray) -> list[np.ndarray]:
    """`quarters` of b.T, each transposed: [n / 2, k / 2] of b [n, k]."""
    left_upper, left_lower, right_upper, right_lower = quarters(b)
    return [left_upper, right_upper, left_lower, right_lower]


def write_right_factor(product: int, blocks: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Write to `out` what a product has on the right, of the quarters `blocks` of B."""
    (first, _), *more = RIGHT[product]
    if not more:
        out[...] = blocks[first]
        return
    ((second, sign),) = more
    (np.add if sign > 0 else np.subtract)(blocks[first], blocks[second], out=out)


def combined_products(products: Sequence[np.ndarray]) -> np.ndarray:
    """C of the seven products, rounded after each addition."""
    blocks = [_added(terms, products) for terms in OUTPUT]
    rows = [np.concatenate(blocks[i : i + 2], axis=-1) for i in (0, 2)]
    return np.concatenate(rows, axis=-2)


def _added(terms: Terms, values: Sequence[np.ndarray]) -> np.ndarray:
    """Their sum, in order. The first sign is +."""
    total = values[terms[0][0]]
    for index, sign in terms[1:]:
        total = total + values[index] if sign > 0 else total - values[index]
    return total
