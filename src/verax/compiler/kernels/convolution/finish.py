"""The epilogue of a tile whose sums are in the output already, a few vectors at a time in a loop:
beside a tile's sums there are no registers for a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.layout import Sizes, finished, load_lanes
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index
from verax.compiler.kernels.llvm.side_by_side import equal_groups, in_step

Where: TypeAlias = tuple[Index, Index, list[Index], Sizes]
"""Batch, block of channels, place, offset."""


def finish_stored(
    f: FunctionBuilder,
    spec: ConvSpec,
    size: tuple[int, int],
    operands: Sequence[ir.Value],
    blocks: int,
    wheres: Callable[[Index, Index], list[Where]],
    lanes: Callable[[Index], Index | None],
    store: Callable[..., None],
) -> None:
    """size: rows and columns of the tile. wheres(row, column): all its `blocks`
    in one. lanes(block): how
    many channels it has, None for all 16. store(value, *where): as the tile stored its sums."""
    y, kind, pointer = spec.y, spec.types.y, f.args[-1]
    rows, cols = size
    outer, across = (rows, cols) if cols > 1 else (1, rows)
    max_columns = max(1, in_step(f.module.target) // blocks)
    with f.loop(outer) as o:
        for first, count, width in equal_groups(across, max_columns):
            with f.loop(count) as i:
                start = f.iadd(f.imul(i.index, width), first)
                along = [f.iadd(start, k) for k in range(width)]
                here = [(o.index, k) if cols > 1 else (k, 0) for k in along]
                locations = [location for r, c in here for location in wheres(r, c)]
                counts = [lanes(location[1]) for location in locations]
                sums = [
                    load_lanes(f, y, y.at(f, pointer, *location, dtype=kind), n, kind)
                    for location, n in zip(locations, counts, strict=True)
                ]
                results = finished(f, spec.epilogue, operands, sums, locations, counts)
                for location, value in zip(locations, results, strict=True):
                    store(value, *location)
