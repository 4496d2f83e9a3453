"""Importing it registers all kernel families of this room."""

from __future__ import annotations

from verax.compiler.kernels.gpu import (
    attention,
    block_scaled,
    loops,
    packing,
    pooling,
    products,
    reduce,
    stored,
    strassen,
    top,
    winograd,
)

FAMILIES = (
    *(attention, block_scaled, loops, packing, pooling, products, reduce, stored, strassen),
    *(top, winograd),
)
