"""How long expressions of dimensions may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from verax.base.errors import GraphError

MAX_TERMS, MAX_DEGREE, MAX_DEPTH, MAX_WRITTEN = 4096, 64, 64, 1 << 14
"""Of an expression: terms, factors in one of them, divisions inside of divisions, symbols and
operations when it is written out. Sizes of real networks have a dozen terms; a small file could ask
for any number: what stands twice in each of its divisions is written 2**depth times."""


def require_bounded(length: int, limit: int) -> None:
    """Raises `GraphError` for what no real network has."""
    if length > limit:
        raise GraphError(
            "an expression of dimensions is absurdly long", next_step="give sizes with --shape"
        )


def degree(terms: Iterable[tuple[Any, int]]) -> int:
    """The most factors that a term has."""
    return max((sum(power for _, power in monomial) for monomial, _ in terms), default=0)


def depth_within(terms: Iterable[tuple[Any, int]]) -> int:
    """How many divisions lie inside of each other."""
    return max((atom.depth for monomial, _ in terms for atom, _ in monomial), default=0)


def length(monomial: Iterable[tuple[Any, int]]) -> int:
    """How many symbols and operations are written for it."""
    return 1 + sum(atom.written * power for atom, power in monomial)
