"""Importing it registers all kernel families of this room."""

from __future__ import annotations

from verax.compiler.kernels.gpu import (
    attention,
    loops,
    packing,
    pooling,
    products,
    reduce,
    strassen,
    winograd,
)

FAMILIES = (attention, loops, packing, pooling, products, reduce, strassen, winograd)
