"""Registers all kernel families of this room, when a GPU is compiled for."""

from __future__ import annotations

from verax.compiler.kernels.gpu import loops, pooling, reduce

FAMILIES = (loops, pooling, reduce)


def register() -> None:
    """Nothing more: importing them registered them."""
