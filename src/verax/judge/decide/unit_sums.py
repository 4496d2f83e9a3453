"""Sums of matrix units over factors that they multiply exactly: numbers of 8 or 16 bits.

Nothing is lost in the factors then, and what makes a GPU's product coarser than float32's is the
sum alone: FP8 units keep 13 bits of every term and of the sum so far, fp16 accumulators 11, and
those with a float32 accumulator cut towards zero in every step. `numerics.matrix_units` has the
units; here is which of them a product may have gone through, and how far that takes it from the
exact sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, as_tuple
from verax.judge.decide.coarse import on_grid
from verax.numerics.formats import FLOAT16, FORMATS
from verax.numerics.matrix_units.bounds import bias, sigma
from verax.numerics.matrix_units.routes import ROUTES, Route
from verax.numerics.matrix_units.units import E5M2_E4M3

FP8 = ("float8_e4m3fn", "float8_e5m2")
EXACT_FACTORS = (*FP8, "bfloat16", "float16")
"""Formats of factors, those with the fewest bits first."""


@dataclass(frozen=True)
class UnitSum:
    """How a matrix unit may have added up a product. name: what a verdict calls it."""

    name: str
    route: Route


def factor_format(factor: np.ndarray) -> str | None:
    """The narrowest format of `EXACT_FACTORS` that has every number of `factor` (float64); None
    where none has, or where a number is not finite."""
    if not np.isfinite(factor).all():
        return None
    return next((name for name in EXACT_FACTORS if on_grid(factor, FORMATS[name])), None)


def unit_sums(formats: Sequence[str], results: np.ndarray) -> tuple[UnitSum, ...]:
    """What may have added up products of factors in these two formats, the strictest first.

    results: float64; numbers beyond float16 were not accumulated in it.
    """
    if all(f in FP8 for f in formats):
        return _fp8_sums(formats)
    if "bfloat16" in formats:
        return (UnitSum(_units("bf16"), ROUTES["Triton, bf16"]),)
    into_float32 = UnitSum(_units("fp16"), ROUTES["Triton, fp16"])
    if not on_grid(results, FLOAT16):
        return (into_float32,)
    accumulation = (
        UnitSum(FP16_ACCUMULATION, ROUTES[f"{library}, fp16 accumulation"])
        for library in ("Triton", "cuBLAS")
    )
    return (into_float32, *accumulation)


FP16_ACCUMULATION = "fp16 accumulation"


def _units(short: str) -> str:
    return f"{short} factors, float32 sums in matrix units"


def _fp8_sums(formats: Sequence[str]) -> tuple[UnitSum, ...]:
    left, right = formats
    short = left.removeprefix("float8_").removesuffix("fn")
    slow = ROUTES[f"scaled_mm {short}"]
    fast = ROUTES[f"scaled_mm {short}, fast accumulation"]
    if left != right:
        unit = replace(E5M2_E4M3, factors=(left, right))
        slow, fast = (replace(route, unit=unit) for route in (slow, fast))
    by_fp16 = ROUTES[f"Triton, {short} by mma.sync"]
    return (
        UnitSum("fp8 in fp16 units", by_fp16),
        UnitSum("fp8, float32 sums of 128 products", slow),
        UnitSum("fp8 with fast accumulation", fast),
    )


def unit_error(
    node: Node, ev: Evaluation, factors: Sequence[Any], route: Route
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the error of a product's sums that took that route; float64,
    of the product's shape.

    factors: both, in float64. Source: `numerics.matrix_units.bounds`.
    """
    op, scale = node.op, abs(getattr(node.op, "alpha", 1.0))
    left, right = factors
    factor_moments = (
        (left, right),
        (left**2, right**2),
        (np.abs(left), np.abs(right)),
        (np.ones_like(left), np.ones_like(right)),
    )
    with np.errstate(all="ignore"):
        total, squares, magnitudes, terms = (
            np.asarray(as_tuple(op.reference(ev, *pair))[0]) for pair in factor_moments
        )
    root = np.sqrt(np.abs(squares) * scale)  # the scale was multiplied once, and R has it itself
    k = max(1, round(float(np.max(np.abs(terms), initial=0.0)) / (scale or 1.0)))
    moments = total, np.abs(magnitudes), root, k
    mean, spread = bias(route, *moments), sigma(route, *moments)
    return np.nan_to_num(mean, posinf=0.0, neginf=0.0), np.nan_to_num(spread, posinf=0.0)
