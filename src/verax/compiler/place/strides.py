"""Physical layouts in the terms of the kernels: three spatial axes, strides in elements."""

from __future__ import annotations

from collections.abc import Sequence

from verax.compiler.kernels.layout import Strides, Triple
from verax.compiler.place.storage import LANES, Physical
from verax.compiler.plan.layouts import Layout


def triple(values: Sequence[int], missing: int) -> Triple:
    """Per-axis values of one to three spatial axes as (depth, row, column)."""
    d, h, w = ((missing,) * (3 - len(values)) + tuple(values))[:3]
    return d, h, w


def kernel_strides(physical: Physical) -> Strides:
    """Strides of a tensor with batch, channels and one to three spatial axes."""
    if physical.layout is Layout.blocked:
        batch, block, *space, _ = physical.strides
        return Strides(batch, block, *triple(space, 0))
    batch, channel, *space = physical.axis_strides
    return Strides(batch, LANES * channel, *triple(space, 0), channel)
