"""Importing it registers all kernel families of this room."""

from __future__ import annotations

from verax.compiler.kernels.gpu import loops, pooling, reduce

FAMILIES = (loops, pooling, reduce)
