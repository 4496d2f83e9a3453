"""TopK on a GPU: each element counts those that come before it, and knows its position.

A block has 256 elements of a row; ranks of the row come to shared memory, a tile at a time. That is
as many comparisons as there are pairs of elements, by all threads of the card, where a thread that
keeps a heap waits for each element. Very long rows are left to that.
"""

from __future__ import annotations

import math

from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES, I8, I32, I64, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import BlockBuilder, block_kernel
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS, emits
from verax.compiler.kernels.search import top as elsewhere
from verax.compiler.kernels.search.sorting import SORTED, rank, rank_bits
from verax.compiler.kernels.search.top import TopSpec
from verax.compiler.kernels.sizes import ceil_div

THREADS, TILE = 256, 1024
"""Of a block; and ranks in shared memory."""
UNROLL = 4
"""Comparisons of a step."""
MAX_LENGTH = 1 << 16
"""Of a row whose length is known."""

_CPU = EMITTERS[TopSpec, ANY_TARGET]


@emits(TopSpec, dtypes=SORTED, target="gpu", settle=_CPU.settle)
def emit_top(module: ModuleBuilder, spec: TopSpec) -> Kernel:
    """As `search.top.emit_top`. Items: some neighbors of a row."""
    if isinstance(spec.length, int) and spec.length > MAX_LENGTH:
        return elsewhere.emit_top(module, spec)
    size = rank_bits(spec.dtype) // 8 if rank_bits(spec.dtype) == 64 else 4
    f = block_kernel(module, spec, 4, THREADS, TILE * size, hint="top")
    if f.kernel is not None:
        return f.kernel
    _Ranked(f, spec, size).emit()
    rows = math.prod(spec.rows)
    comparisons = rows * spec.length * spec.length
    items = rows * ceil_div(spec.length, THREADS)
    return f.finish(items, comparisons, rows * spec.length * ELEMENT_SIZES[spec.dtype])


class _Ranked:
    """The elements of a block. size: bytes of a rank."""

    def __init__(self, f: BlockBuilder, spec: TopSpec, size: int) -> None:
        self.f, self.n, self.spec, self.size = f, Index32(f), spec, size
        self.kind = I64 if size == 8 else I32
        self.length = self.n.of(spec.length)
        row, chunk = f.split(f.begin, ceil_div(spec.length, THREADS))
        self.row = f.split(row, *spec.rows[1:]) if spec.rows else []
        self.x = f.at(f.args[0], *zip(self.row, spec.x), dtype=spec.dtype)
        self.index = self.n.add(self.n.mul(self.n.truncated(chunk), THREADS), f.thread)
        self.arith = LlvmArith(f, lanes=0)

    def emit(self) -> None:
        f, n, spec = self.f, self.n, self.spec
        last = n.minimum(self.index, n.sub(self.length, 1))  # for threads that have no element
        own = self._rank(last)
        tiles, _ = n.divmod(n.add(self.length, TILE - 1), TILE)
        with f.loop(n.wide(tiles), carry=[ir.Constant(I32, 0)]) as tile:
            first = n.mul(n.truncated(tile.index), TILE)
            f.barrier()  # the tile before was read
            self._store_ranks(first)
            f.barrier()
            tile.next([self._counted(first, own, tile.values[0])])
        position = tile.results[0]
        exists = f.b.and_(n.less(self.index, self.length), n.less(position, n.of(spec.k)))
        with f.when(exists):
            terms = *zip(self.row, spec.y), (n.wide(position), spec.to)
            value = f.load(self._element(self.index), spec.dtype, lanes=0)
            f.store(value, f.at(f.args[2], *terms, dtype=spec.dtype))
            f.store(f.i64(n.wide(self.index)), f.at(f.args[3], *terms, dtype="int64"))

    def _element(self, index: Int) -> ir.Value:
        return self.f.at(self.x, (self.n.wide(index), self.spec.step), dtype=self.spec.dtype)

    def _rank(self, index: Int) -> ir.Value:
        """That of an element; the lowest comes first."""
        m, spec = self.arith, self.spec
        value = m.bind(self.f.load(self._element(index), spec.dtype, lanes=0), spec.dtype)
        return rank(m, value, spec.dtype, spec.largest)

    def _shared(self, index: Int) -> ir.Value:
        return self.f.b.gep(self.f.shared, [self.n.value(self.n.mul(index, self.size))], I8)

    def _store_ranks(self, first: Int) -> None:
        """Of a tile, as many as there are."""
        f, n = self.f, self.n
        for start in range(0, TILE, THREADS):
            at = n.add(f.thread, start)
            index = n.add(first, at)
            with f.when(n.less(index, self.length)):
                f.b.store(self._rank(index), self._shared(at), align=self.size)

    def _counted(self, first: Int, own: ir.Value, count: ir.Value) -> ir.Value:
        """`count` and the elements of a tile that come before this thread's."""
        f, n = self.f, self.n
        here = n.minimum(n.sub(self.length, first), TILE)
        full, remainder = n.divmod(here, UNROLL)
        for start, trips, unroll in ((0, full, UNROLL), (n.mul(full, UNROLL), remainder, 1)):
            if isinstance(trips, int) and trips == 0:
                continue
            with f.loop(n.wide(trips), carry=[count]) as trip:
                begin = n.add(n.mul(n.truncated(trip.index), unroll), start)
                count = trip.values[0]
                for k in range(unroll):
                    at = n.add(begin, k)
                    rank_here = f.b.load(self._shared(at), align=self.size, typ=self.kind)
                    precedes = self._precedes(rank_here, n.add(first, at), own)
                    count = f.b.add(count, f.b.zext(precedes, I32))
                trip.next([count])
            count = trip.results[0]
        return count

    def _precedes(self, rank_here: ir.Value, index: Int, own: ir.Value) -> ir.Value:
        """i1: whether an element comes before this thread's; of equals the first does."""
        b = self.f.b
        lower = b.icmp_unsigned("<", rank_here, own)
        is_equal = b.icmp_unsigned("==", rank_here, own)
        return b.or_(lower, b.and_(is_equal, self.n.less(index, self.index)))
