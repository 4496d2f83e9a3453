"""Rounding of products that matrix units sum up (tensor cores and their like).

A unit adds a group of products to its accumulator and cuts what is left towards zero: in each step
by some 0.54 units in the last place of the sum so far, and by 0.18 for every product that it cuts.
So the error of a chain of n steps grows with n and points to zero, where float32's grows with the
square root of n and points nowhere. The constants were measured on an NVIDIA H100, the greatest
ones of its units with a float32 accumulator; a kernel that sums parts of a chain in float32 errs
less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, as_tuple
from verax.numerics.error_model import Rounding, U

PRODUCTS_PER_STEP = {"tf32": 8, "bfloat16": 16, "float16": 16}
"""Products that a unit adds in one step, by the format of the factors."""
WRITE_BACK, CUT_PRODUCT = 0.54, 0.18
"""Bias of a step towards zero, in U of the sum so far: of the write-back, and of each product."""
WANDERING = 0.35
"""Standard deviation per step, in U of the root of the sum of the products' squares, where products
have both signs: 0.33 at K = 512 and 0.31 at K = 2048."""


def matrix_unit_sigma(
    node: Node, ev: Evaluation, factors: Sequence[Any], expected: np.ndarray, fmt: str
) -> np.ndarray:
    """Standard deviation, in addition to float32's, of a product whose sums are one chain of steps
    over all its terms; float64, of the shape of `expected`.

    factors: the node's inputs as they are multiplied, in float64; expected: their product. fmt: the
    name of the factors' format.
    """
    op, scale = node.op, abs(getattr(node.op, "alpha", 1.0))
    ones = [np.ones_like(factors[0]), np.ones_like(factors[1])]
    with np.errstate(all="ignore"):
        squares, absolute, terms = (
            scale * np.asarray(as_tuple(op.reference(ev, *pair))[0])
            for pair in (
                (factors[0] ** 2, factors[1] ** 2),
                (np.abs(factors[0]), np.abs(factors[1])),
                ones,
            )
        )
    group = PRODUCTS_PER_STEP[fmt]
    steps = np.maximum(terms, 1.0) / group + 1
    towards_zero = (WRITE_BACK + CUT_PRODUCT * group) / 2
    size = np.hypot(
        WANDERING * np.sqrt(np.abs(squares)),
        towards_zero * np.minimum(np.abs(expected), np.abs(absolute)),
    )
    return np.nan_to_num(steps * U * size, posinf=0.0)


def in_matrix_units(rounding: Rounding, extra: np.ndarray, fmt: str) -> Rounding:
    """`rounding` of float32 sums, widened by what matrix units add (`matrix_unit_sigma`)."""
    group = PRODUCTS_PER_STEP[fmt]
    return Rounding(np.hypot(rounding.sigma, extra), rounding.bound * (4 + 4 / group) + 8 * extra)
