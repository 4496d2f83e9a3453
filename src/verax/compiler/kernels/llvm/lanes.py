"""What the lanes of a vector come to together."""

from __future__ import annotations

from collections.abc import Callable

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder
from verax.compiler.kernels.target import LANES

Join = Callable[[ir.Value, ir.Value], ir.Value]


def joined_lanes(f: FunctionBuilder, value: ir.Value, join: Join) -> ir.Value:
    """Sixteen lanes joined two by two, in the order of `numerics.reductions`; in every lane."""
    for distance in (8, 4, 2, 1):
        lanes = [(distance + j) % LANES for j in range(LANES)]
        value = join(value, f.shuffle(value, lanes))
    return f.shuffle(value, [0] * LANES)
