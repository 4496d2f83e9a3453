"""What the lanes of a vector come to together."""

from __future__ import annotations

from collections.abc import Callable

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder
from verax.compiler.kernels.target import LANES

Join = Callable[[ir.Value, ir.Value], ir.Value]


def joined_lanes(f: FunctionBuilder, value: ir.Value, join: Join) -> ir.Value:
    """Sixteen lanes joined two by two, in the order of `numerics.reductions`; in every lane."""
    for distance in (8, 4, 2, 1):
        lanes = [(distance + j) % LANES for j in range(LANES)]
        value = join(value, f.shuffle(value, lanes))
    return f.shuffle(value, [0] * LANES)


def joined_lane(f: FunctionBuilder, value: ir.Value, join: Join) -> ir.Value:
    """The same as a scalar, of ever fewer lanes: `join` takes vectors of 8, 4 and 2 of them, and
    scalars in the end."""
    for width in (8, 4, 2):
        low, high = (f.shuffle(value, range(i, i + width)) for i in (0, width))
        value = join(low, high)
    return join(*(f.b.extract_element(value, ir.Constant(I32, i)) for i in range(2)))
