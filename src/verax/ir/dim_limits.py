"""How long expressions of dimensions may be."""

from __future__ import annotations

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
