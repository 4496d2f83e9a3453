"""Numbers that dimensions are never below or above.

Sizes are at least 1, or within the bounds that are stated of their symbols (`ir.assumptions`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from verax.ir.assumptions import is_counted


class Bounded(Protocol):
    """An atom of a dimension: a symbol, a division or a maximum."""

    @property
    def lower_bound(self) -> int: ...

    @property
    def upper_bound(self) -> int | None: ...

    @property
    def may_be_negative(self) -> bool: ...


class BoundedDim(Protocol):
    """A dimension that is no number."""

    def lowest(self) -> int | None: ...

    def highest(self) -> int | None: ...


def lowest_of(dim: int | BoundedDim) -> int | None:
    """A number that a dimension is never below; None where none is seen."""
    return dim if isinstance(dim, int) else dim.lowest()


def highest_of(dim: int | BoundedDim) -> int | None:
    """A number that a dimension is never above; None where none is seen."""
    return dim if isinstance(dim, int) else dim.highest()


def may_be_negative(*sides: int | BoundedDim) -> bool:
    """Whether all of them may be, as n - 1 where n was counted and there may be none."""
    lows = map(lowest_of, sides)
    return is_counted(*sides) and not any(low is not None and low >= 0 for low in lows)


def lowest_sum(
    terms: Iterable[tuple[tuple[tuple[Bounded, int], ...], int]], sign: int
) -> int | None:
    """A number that a polynomial, or (sign -1) its negative, is never below; None where none is
    seen. terms: atoms with their powers, and a factor."""
    total = 0
    for monomial, factor in terms:
        if any(atom.may_be_negative for atom, _ in monomial):
            return None
        term = factor * sign
        for atom, power in monomial:
            end = atom.lower_bound if factor * sign > 0 else atom.upper_bound
            if end is None:
                return None
            term *= end**power
        total += term
    return total


def lowest_quotient(
    numerator: int | BoundedDim, denominator: int | BoundedDim, ceiling: bool
) -> int:
    """A number that a quotient of sizes, which is never negative, is never below."""
    low, divisor_low, divisor_high = (
        lowest_of(numerator),
        lowest_of(denominator),
        highest_of(denominator),
    )
    if low is None or low <= 0:
        return 0
    if divisor_low is None or divisor_low < 1 or divisor_high is None:
        return int(ceiling)
    return -(-low // divisor_high) if ceiling else low // divisor_high


def highest_quotient(
    numerator: int | BoundedDim, denominator: int | BoundedDim, ceiling: bool
) -> int | None:
    """A number that a quotient of sizes is never above; None where none is seen."""
    high, divisor_low = highest_of(numerator), lowest_of(denominator)
    if high is None or high < 0 or divisor_low is None or divisor_low < 1:
        return None
    return -(-high // divisor_low) if ceiling else high // divisor_low
