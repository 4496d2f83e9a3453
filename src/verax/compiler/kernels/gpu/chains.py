"""Long sums whose terms some threads of a block make while others add them up.

A sum of a decoder's product is one chain of multiply-adds, whose order is promised: no more than
one thread can add it up. What the chain takes, such as weights that are widened from a few bits,
threads make ahead, a tile at a time, into one of two buffers in shared memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from verax.compiler.kernels.gpu.finish import Channels
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I8, Index
from verax.compiler.kernels.llvm.gpu import WARP, BlockBuilder
from verax.compiler.kernels.target import LANES

THREADS = 256
"""Of a block."""


@dataclasses.dataclass
class Chains:
    """`rows` by `columns` sums of a block, at most THREADS: thread r * columns + c has that of row
    r and column c. terms: of a tile; buffer_bytes: of what is made for a tile."""

    f: BlockBuilder
    rows: int
    columns: int
    terms: int
    buffer_bytes: int

    def __post_init__(self) -> None:
        assert self.rows * self.columns <= THREADS
        self.n = n = Index32(self.f)
        self.row, self.column = n.divmod(self.f.thread, self.columns)
        self.is_sum = n.less(self.f.thread, self.rows * self.columns)
        adding = -(-self.rows * self.columns // WARP) * WARP
        # Warps that add do nothing else, unless all of them do.
        self.first_maker = adding if adding <= THREADS // 2 else 0

    @property
    def makers(self) -> int:
        """Threads that make terms."""
        return THREADS - self.first_maker

    @property
    def maker(self) -> Int:
        """The number of this thread among them; negative for others."""
        return self.n.sub(self.f.thread, self.first_maker)

    def making(self) -> AbstractContextManager[None]:
        """Code for those threads."""
        if not self.first_maker:
            return nullcontext()
        return self.f.when(self.f.b.not_(self.n.less(self.f.thread, self.first_maker)))

    def run(
        self,
        count: int,
        start: ir.Value,
        make: Callable[[Int, ir.Value], None],
        add: Callable[[Int, Int, ir.Value, ir.Value], ir.Value],
    ) -> ir.Value:
        """The sum of this thread over `count` terms from `start` on.

        make(first term, buffer): what a tile takes, written by the threads that make terms.
        add(first term, number in the tile, buffer, sum): the sum with a term more.
        """
        f, n = self.f, self.n
        tiles = -(-count // self.terms)
        with self.making():
            make(0, self._buffer(0))
        with f.loop(tiles, carry=[start]) as tile:
            t = n.truncated(tile.index)
            f.barrier()  # this tile is made, and the other buffer was read
            following = n.add(t, 1)
            with self.making(), self._when_there(following, tiles):
                make(n.mul(following, self.terms), self._buffer(following))
            tile.next([self._add_tile(count, t, tile.values[0], add)])
        return tile.results[0]  # type: ignore[no-any-return]

    def _when_there(self, tile: Int, tiles: int) -> AbstractContextManager[None]:
        if isinstance(tile, int):
            return nullcontext() if tile < tiles else self.f.when(self.n.less(tile, tiles))
        return self.f.when(self.n.less(tile, tiles))

    def _buffer(self, tile: Int) -> ir.Value:
        n = self.n
        byte = n.mul(n.and_(tile, 1), self.buffer_bytes)
        return self.f.b.gep(self.f.shared, [n.value(byte)], I8)

    def _add_tile(
        self,
        count: int,
        tile: Int,
        total: ir.Value,
        add: Callable[[Int, Int, ir.Value, ir.Value], ir.Value],
    ) -> ir.Value:
        """`total` with the terms of a tile, in order; others than sums add nothing."""
        f, n = self.f, self.n
        first, buffer = n.mul(tile, self.terms), self._buffer(tile)
        here = n.minimum(n.sub(count, first), self.terms)
        here = n.select(self.is_sum, here, 0)
        for start, trips, unroll in self._steps(here):
            with f.loop(n.wide(trips), carry=[total]) as trip:
                begin = n.add(n.mul(n.truncated(trip.index), unroll), start)
                total = trip.values[0]
                for k in range(unroll):
                    total = add(first, n.add(begin, k), buffer, total)
                trip.next([total])
            total = trip.results[0]
        return total

    def _steps(self, count: Int) -> list[tuple[Int, Int, int]]:
        full, remainder = self.n.divmod(count, UNROLL)
        return [(0, full, UNROLL), (self.n.mul(full, UNROLL), remainder, 1)]

    def channel(self, block: Index, row: Int) -> Channels:
        """The output of this thread. block: of 16 columns, that the columns begin with."""
        n = self.n
        more, within = n.divmod(self.column, LANES)
        at = self.f.iadd(block, n.wide(more))
        return Channels(self.f, 0, 0, at, n.wide(within), (0, 0, n.wide(row)))


UNROLL = 8
"""Terms of a step."""
