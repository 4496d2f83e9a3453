"""Positions along an axis, as a table: a constant, or written when the program runs."""

from __future__ import annotations

import numpy as np

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.iota import IotaSpec
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Pointer


def iota(lowering: Lowering, count: Size, label: str, dtype: str = "int32") -> Pointer:
    """Where 0, 1, 2, ... are, `count` numbers of them."""
    if isinstance(count, int):
        return lowering.weights.constant(np.arange(count, dtype=np.dtype(dtype))).pointer
    numbers = lowering.values.scratch(count * ELEMENT_SIZES[dtype])
    lowering.calls.call(IotaSpec(count, dtype), [numbers], f"{label}: positions")
    return numbers
