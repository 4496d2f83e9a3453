"""Positions along an axis, as a table: a constant, or written when the program runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.iota import IotaSpec
from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.copies import View
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Pointer
from verax.numerics.expr import Input


def iota(lowering: Lowering, count: Size, label: str, dtype: str = "int32") -> Pointer:
    """Where 0, 1, 2, ... are, `count` numbers of them."""
    if isinstance(count, int):
        return lowering.weights.constant(np.arange(count, dtype=np.dtype(dtype))).pointer
    numbers = lowering.values.scratch(count * ELEMENT_SIZES[dtype])
    lowering.calls.call(IotaSpec(count, dtype), [numbers], f"{label}: positions")
    return numbers


def gather_along(
    lowering: Lowering,
    source: View,
    target: View,
    tables: Sequence[tuple[int, Pointer]],
    label: str,
) -> None:
    """Every element of `target` from where `tables` say: (axis, positions along it in `source`,
    int32, one for each along it in `target`). Other axes are the same in both."""
    rank, steps = len(target.shape), list(source.strides)
    indices = [Access("int32", tuple(int(a == axis) for a in range(rank))) for axis, _ in tables]
    lookups = tuple(
        Lookup(i, source.shape[axis], source.strides[axis], checked=False)
        for i, (axis, _) in enumerate(tables)
    )
    for axis, _ in tables:
        steps[axis] = 0
    spec = LoopSpec(
        target.shape,
        (*indices, Access(source.dtype, tuple(steps), 0, lookups)),
        (Access(target.dtype, target.strides),),
        (Input(len(indices), source.dtype),),
    )
    pointers = [table for _, table in tables]
    lowering.calls.call(spec, [*pointers, source.pointer, target.pointer], label)
