"""What whole tiles leave of rows whose number is read at run time: tiles of one length, the last of
which overlaps the one before it.

Tiles of falling powers of two would be code for each, and the shortest are as slow as these. What
they write has to be final at once, and be read by nobody meanwhile: rows in two tiles are written
twice, perhaps by two threads.
"""

from __future__ import annotations

from collections.abc import Callable

from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index
from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import Target

HIDDEN_SUMS = 8
"""Registers of sums that hide the latency of a multiply-add: four cycles, two of them a cycle."""


def short_rows(tile_rows: int, blocks: int, target: Target) -> int:
    """Rows of such tiles with so many blocks of columns; 0 where whole tiles are hardly longer."""
    short = -(-HIDDEN_SUMS // (blocks * target.physical))
    return short if tile_rows > 2 * short else 0


def emit_short_tiles(
    f: FunctionBuilder,
    count: tuple[Size, Size],
    begin: Size,
    short: int,
    emit: Callable[[Index, int, Index], None],
    tile: Index,
) -> None:
    """Tiles for the rows from `begin` on: emit(first row, rows, tile). Row by row where there are
    fewer rows in all than `short`. count: of all rows, and of these."""
    rows, remainder = count
    has_rows = f.b.icmp_signed(">=", f.i64(rows), f.i64(short))
    last = f.i64(rows - short)
    with f.loop(f.b.select(has_rows, f.i64(ceil_div(remainder, short)), f.i64(0))) as piece:
        row = f.i64(f.iadd(f.imul(piece.index, short), begin))
        emit(f.b.select(f.b.icmp_signed("<", row, last), row, last), short, tile)
    with f.loop(f.b.select(has_rows, f.i64(0), f.i64(remainder))) as single:
        emit(f.iadd(single.index, begin), 1, tile)
