"""Which operators have kernels that count what they find; known before any rule is loaded."""

from __future__ import annotations

from verax.ir.operator import Operator

COUNTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Kinds whose results have a size that is known only when kernels ran (`Lowering.counted`)."""


def counts_size(op: Operator) -> bool:
    """Whether an operator has kernels that count what they find, which is a size of the result."""
    return op.kind in COUNTING
