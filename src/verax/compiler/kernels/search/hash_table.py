"""Hash table of the distinct values of a row, looked up for each element.

The row is sorted instead as soon as there are more than `MAX_DISTINCT`: no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import I64, FunctionBuilder
from verax.compiler.kernels.search.sorting import int64_pointer, rank
from verax.compiler.kernels.target import LANES

MAX_DISTINCT, SLOTS = 64, 256
"""Values at most, and places where they may be in the table: most of them free."""
BYTES = 8 * (2 * SLOTS + 2 * MAX_DISTINCT)
_MIX = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 over the golden ratio: spreads what is alike
_FREE = -1


@contextmanager
def try_hash_table(f: FunctionBuilder, size: int, rises: bool, dtype: str) -> Iterator[None]:
    """The different values by looking up; inside goes what is done where they are too many.

    Arguments of the kernel are those of a `UniqueSpec`.
    """
    b = f.b
    many, end = f.block("many"), f.block("unique")
    _Table(f, size, dtype).find(rises, many)
    b.branch(end)
    b.position_at_end(many)
    yield
    b.branch(end)
    b.position_at_end(end)


class _Table:
    """Numbers of values by their ranks, in scratch memory; values are numbered as they appear."""

    def __init__(self, f: FunctionBuilder, size: int, dtype: str) -> None:
        self.f, self.b, self.size, self.dtype = f, f.b, size, dtype
        self.x, scratch, self.values, self.first, self.inverse, self.counts, self.count = f.args
        self.slot_ranks, self.slots = scratch, int64_pointer(f, scratch, SLOTS)
        self.ranks = int64_pointer(f, self.slots, SLOTS)
        self.numbers = int64_pointer(f, self.ranks, MAX_DISTINCT)

    def _load(self, base: ir.Value, i: ir.Value) -> ir.Value:
        return self.f.load(int64_pointer(self.f, base, i), "int64", lanes=0)

    def find(self, rises: bool, many: ir.Block) -> None:
        """All outputs; to `many` where there are too many."""
        f = self.f
        free = ir.Constant(f.vector_type("int64"), [_FREE] * LANES)
        with f.loop(SLOTS, step=LANES) as i:
            f.store(free, int64_pointer(f, self.slots, i.index))
        count = self._look_up(many)
        if rises:
            self._sort(count)
        with f.loop(count) as i:
            source = f.at(self.x, (self._load(self.first, f.i64(i.index)), 1), dtype=self.dtype)
            value = f.load(source, self.dtype, lanes=0)
            f.store(value, f.at(self.values, (i.index, 1), dtype=self.dtype))
        f.store(count, self.count)

    def _look_up(self, many: ir.Block) -> ir.Value:
        """First places, frequencies, and the number of each element; how many values."""
        f, b, m = self.f, self.b, LlvmArith(self.f, lanes=0)
        before, head, body, probe, other_block, unknown, new, found_block, end = (
            b.block, *map(f.block, ("head", "element", "probe", "other", "unknown", "new", "found",
                                    "known"))
        )  # fmt: skip
        b.branch(head)
        b.position_at_end(head)
        i, count = b.phi(I64), b.phi(I64)
        i.add_incoming(f.i64(0), before)
        count.add_incoming(f.i64(0), before)
        b.cbranch(b.icmp_signed("<", i, f.i64(self.size)), body, end)
        b.position_at_end(body)
        x = m.bind(f.load(f.at(self.x, (i, 1), dtype=self.dtype), self.dtype, lanes=0), self.dtype)
        ranked = rank(m, x, self.dtype)
        ranked = ranked if ranked.type == I64 else b.zext(ranked, I64)
        start = b.lshr(b.mul(ranked, f.i64(_MIX)), f.i64(64 - (SLOTS - 1).bit_length()))
        began = b.block
        b.branch(probe)
        b.position_at_end(probe)
        slot = b.phi(I64)
        slot.add_incoming(start, began)
        value_number = self._load(self.slots, slot)
        same = b.icmp_unsigned("==", self._load(self.slot_ranks, slot), ranked)
        is_used = b.icmp_signed(">=", value_number, f.i64(0))
        b.cbranch(b.and_(same, is_used), found_block, other_block)
        b.position_at_end(other_block)
        following = b.and_(b.add(slot, f.i64(1)), f.i64(SLOTS - 1))
        slot.add_incoming(following, other_block)
        b.cbranch(is_used, probe, unknown)
        b.position_at_end(unknown)
        b.cbranch(b.icmp_signed("<", count, f.i64(MAX_DISTINCT)), new, many)
        b.position_at_end(new)
        for base, at, value in (
            (self.slot_ranks, slot, ranked), (self.slots, slot, count), (self.ranks, count, ranked),
            (self.first, count, i), (self.counts, count, f.i64(0)),
        ):  # fmt: skip
            f.store(value, int64_pointer(f, base, at))
        more = b.add(count, f.i64(1))
        b.branch(found_block)
        b.position_at_end(found_block)
        mine, now = b.phi(I64), b.phi(I64)
        for block, one, all_ in ((probe, value_number, count), (new, count, more)):
            mine.add_incoming(one, block)
            now.add_incoming(all_, block)
        f.store(b.add(self._load(self.counts, mine), f.i64(1)), int64_pointer(f, self.counts, mine))
        f.store(mine, int64_pointer(f, self.inverse, i))
        i.add_incoming(b.add(i, f.i64(1)), found_block)
        count.add_incoming(now, found_block)
        b.branch(head)
        b.position_at_end(end)
        return count

    def _sort(self, count: ir.Value) -> None:
        """Number the values again, rising: each has as many before it as are smaller."""
        f, b = self.f, self.b
        with f.loop(count) as i:
            mine = self._load(self.ranks, f.i64(i.index))
            with f.loop(count, carry=[f.i64(0)]) as j:
                smaller = b.icmp_unsigned("<", self._load(self.ranks, f.i64(j.index)), mine)
                j.next([b.add(j.values[0], b.zext(smaller, I64))])
            f.store(j.results[0], int64_pointer(f, self.numbers, i.index))
        for output in (self.first, self.counts):
            with f.loop(count) as i:  # the slots are no longer needed
                value_number = self._load(self.numbers, f.i64(i.index))
                value = self._load(output, f.i64(i.index))
                f.store(value, int64_pointer(f, self.slots, value_number))
            with f.loop(count) as i:
                f.store(self._load(self.slots, f.i64(i.index)), int64_pointer(f, output, i.index))
        with f.loop(self.size) as i:
            value_number = self._load(self.inverse, f.i64(i.index))
            f.store(self._load(self.numbers, value_number), int64_pointer(f, self.inverse, i.index))
