"""The walk over outputs that the window kernels share: blocks of channels, rows, tiles.

Work items are (batch, channel block, depth, chunk of tile rows). Remainders at the right and at the
bottom are emitted as smaller tiles, so that a tile never has a condition inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from verax.compiler.kernels.layout import Sizes, Triple
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index
from verax.compiler.kernels.sizes import Size, ceil_div, static_size


@dataclasses.dataclass(frozen=True)
class OutputTile:
    """Outputs computed together: `rows` x `cols` from (row, col), of one block of channels.

    inside: how many of the rows and of the columns there are, where the image ends within the tile,
    which only running tells; None for all.
    """

    batch: Index
    block: Index
    depth: Index
    row: Index
    col: Index
    rows: int
    cols: int
    inside: tuple[Index, Index] | None = None

    def pixels(self) -> list[tuple[int, int]]:
        return [(r, c) for r in range(self.rows) for c in range(self.cols)]


EmitTile: TypeAlias = Callable[[OutputTile], None]


@dataclasses.dataclass(frozen=True)
class Walk:
    """batch, blocks, count: what there is. rows, cols: a tile. chunk: rows of tiles per item.
    blocks_outer: an item's block changes after its rows, not before. aligned: tiles begin at
    multiples of their size."""

    batch: Size
    blocks: Size
    count: Sizes
    rows: int
    cols: int
    chunk: int = 1
    blocks_outer: bool = True
    aligned: bool = True

    @property
    def full(self) -> Size:
        """Whole rows of tiles."""
        return self.count[1] // tile_extent(self.rows, self.count[1])

    @property
    def chunks(self) -> Size:
        if isinstance(self.full, int):
            return -(-self.full // self.chunk)
        all_rows = ceil_div(self.count[1], self.rows)  # of which none may be a whole one
        return ceil_div(all_rows, self.chunk)

    @property
    def items(self) -> Size:
        return self.batch * self.blocks * self.count[0] * self.chunks

    def emit(self, f: FunctionBuilder, tile: EmitTile, after: EmitTile | None = None) -> None:
        """The loop over this call's items; `tile` emits one tile, `after` what follows a whole row
        of them, which it is given as one tile."""
        if self.aligned and not all(isinstance(n, int) for n in self.count[1:]):
            assert after is None, "tiles that begin anywhere have rows that are followed"
            self._emit_aligned(f, tile)
            return
        rows = tile_extent(self.rows, self.count[1])
        remainder = self.count[1] - self.full * rows
        with f.items() as item:
            n, block, d, chunk = item_position(
                f, item.index, self.blocks, self.count[0], self.chunks, self.blocks_outer
            )
            is_known = isinstance(self.full, int)
            trips: Index = min(self.chunk, self.full) if is_known else 0
            if not is_known or (self.full % self.chunk and self.chunks > 1):
                left = f.iadd(self.full, f.imul(chunk, -self.chunk))
                trips = f.clamp(left, 0, self.chunk)
            with f.loop(trips) as t:
                row = f.imul(f.iadd(f.imul(chunk, self.chunk), t.index), rows)
                self._emit_row(f, tile, after, OutputTile(n, block, d, row, 0, rows, 0))
            if remainder != 0:
                is_last: AbstractContextManager[None] = nullcontext()
                if not isinstance(chunk, int):
                    last_chunk = f.i64(self.chunks - 1)
                    is_last = f.when(f.b.icmp_signed("==", f.i64(chunk), last_chunk))
                with is_last:
                    for first, left in f.remainder(remainder, rows):
                        row = self.full * rows + first
                        last = OutputTile(n, block, d, row, 0, left, 0)
                        self._emit_row(f, tile, after, last)

    def _emit_aligned(self, f: FunctionBuilder, tile: EmitTile) -> None:
        """The same for an image whose sizes are read at run time: a tile is emitted twice, whole
        and for where the image ends within it."""
        _, down, across = self.count
        tile_rows, chunks = ceil_div(down, self.rows), self.chunks
        with f.items() as item:
            n, block, d, chunk = item_position(
                f, item.index, self.blocks, self.count[0], chunks, self.blocks_outer
            )
            first = f.imul(chunk, self.chunk)
            trips = f.clamp(f.iadd(tile_rows, f.imul(first, -1)), 0, self.chunk)
            with f.loop(trips) as r, f.loop(ceil_div(across, self.cols)) as c:
                row = f.imul(f.iadd(first, r.index), self.rows)
                col = f.imul(c.index, self.cols)
                ends = f.iadd(down, f.imul(row, -1)), f.iadd(across, f.imul(col, -1))
                full_tile = OutputTile(n, block, d, row, col, self.rows, self.cols)
                is_whole = f.b.and_(
                    f.b.icmp_signed(">=", f.i64(ends[0]), f.i64(self.rows)),
                    f.b.icmp_signed(">=", f.i64(ends[1]), f.i64(self.cols)),
                )
                with f.b.if_else(is_whole) as (yes, no):
                    with yes:
                        tile(full_tile)
                    with no:
                        tile(dataclasses.replace(full_tile, inside=ends))

    def _emit_row(
        self, f: FunctionBuilder, tile: EmitTile, after: EmitTile | None, tile_start: OutputTile
    ) -> None:
        across = self.count[2]
        cols = tile_extent(self.cols, across)
        full, remainder = divmod(across, cols)
        with f.loop(full) as c:
            tile(dataclasses.replace(tile_start, col=f.imul(c.index, cols), cols=cols))
        for first, left in f.remainder(remainder, cols):
            tile(dataclasses.replace(tile_start, col=full * cols + first, cols=left))
        if after is not None:
            after(dataclasses.replace(tile_start, cols=static_size(across)))


def tile_extent(max_size: int, extent: Size) -> int:
    """Outputs of a tile along an axis."""
    return min(max_size, extent) if isinstance(extent, int) else max_size


def choose_tile(
    count: Triple, max_outputs: int, widest: int, cycles: Callable[[int, int], float]
) -> tuple[int, int]:
    """(rows, cols) of at most `most` outputs, `widest` in a row, whose tiles walk `count` in the
    fewest `cycles`."""
    best: tuple[float, int, int] | None = None
    for rows in range(1, min(count[1], max_outputs) + 1):
        for cols in range(1, min(count[2], widest, max_outputs // rows) + 1):
            cost = 0.0
            for n_rows, r in _pieces(count[1], rows):
                for n_cols, c in _pieces(count[2], cols):
                    cost += n_rows * n_cols * cycles(r, c)
            if best is None or cost < best[0]:
                best = cost, rows, cols
    assert best is not None
    return best[1:]


def item_position(
    f: FunctionBuilder, item: Index, blocks: Size, depth: Size, chunks: Size, blocks_outer: bool
) -> tuple[Index, Index, Index, Index]:
    """Image, block of channels, depth and chunk of rows of an item."""
    if blocks_outer:
        n, block, d, chunk = f.split(item, blocks, depth, chunks)
    else:
        n, d, chunk, block = f.split(item, depth, chunks, blocks)
    return n, block, d, chunk


FEW_PIXELS = 64
"""Images of no more are split by channels. In larger ones a thread has all channels of some rows,
as in convolutions: what one writes the same one reads, and no line goes from core to core."""


def splits_channels(rows: int, cols: int) -> bool:
    """Whether threads have channels of an image of this size, and not rows."""
    return rows * cols <= FEW_PIXELS


def choose_chunk(items: int, tile_rows: int, blocks_outer: bool = True) -> int:
    """Rows of tiles per item, so that `items` others times the chunks reach `ITEMS`; where rows are
    outer, at least `PARTS` chunks, if there are as many rows."""
    min_chunks = max(1 if blocks_outer else PARTS, -(-ITEMS // items))
    return -(-tile_rows // min(tile_rows, min_chunks))


ITEMS, PARTS = 16, 4
"""Items that split well over a few threads, and parts of an image: an item of few rows is slow."""


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    return [(n, size) for n, size in ((extent // tile, tile), (1, extent % tile)) if n and size]
