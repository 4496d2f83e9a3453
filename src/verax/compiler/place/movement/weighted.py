"""Sums of neighbors by their weights, in the order and arithmetic that interpolation promises."""

from __future__ import annotations

from collections.abc import Iterable

from verax.numerics.expr import Expr, TracingArith

M = TracingArith()


def weighted_sum(terms: Iterable[tuple[Expr, Expr]]) -> Expr:
    """The first product rounded, then one fused multiply-add per further (value, weight); float64,
    which promises its meaning as NumPy computes it, takes a product and a sum."""
    total: Expr | None = None
    for value, weight in terms:
        if total is not None and total.dtype == "float32":
            total = M.fma(value, weight, total)
        else:
            product = M.mul(value, weight)
            total = product if total is None else M.add(product, total)
    assert total is not None
    return total
