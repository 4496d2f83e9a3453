"""Sorting a row by the bytes of its numbers, the lowest first: what TopK and Unique have in common.

An element becomes a rank: bits whose unsigned order is the order of the elements. Ranks of up to 32
bits lie with their place in one 64-bit number; those of 64 bits beside it. Places of equal ranks
keep their order. A byte in which all ranks agree costs nothing but looking.
"""

from __future__ import annotations

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    I32,
    I64,
    FunctionBuilder,
    Index,
)
from verax.compiler.kernels.target import LANES
from verax.numerics.formats import SIGNED

DIGITS = 256
SORTED = (
    *("float16", "bfloat16", "float32", "float64"),
    *(f"{sign}int{n}" for n in (8, 16, 32, 64) for sign in ("", "u")),
)
"""Types whose elements have a rank."""


def rank_bits(dtype: str) -> int:
    """Bits of an element's rank: 8, 16, 32 or 64."""
    size = ELEMENT_SIZES[dtype]
    return 32 if size == 2 and "float" in dtype else 8 * size


def rank(m: LlvmArith, x: Typed, dtype: str, falling: bool = False) -> ir.Value:
    """The rank, as an int32 (int64 of 64-bit types); equal zeros are one, NaN is above all.
    falling: the greatest element has the lowest rank."""
    bits = rank_bits(dtype)
    kind, width = ("int64", 64) if bits == 64 else ("int32", 32)
    all_ones = m.const(-1 if bits == width else (1 << bits) - 1, kind)
    sign = m.const(-(1 << (width - 1)) if bits == width else 1 << (bits - 1), kind)
    if "float" in dtype:
        if bits == 32:
            x = m.convert(x, "float32")
        word = m.bitcast(m.add(x, m.const(0.0, m.dtype(x))), kind)
        flip = m.or_(m.shift_right(word, m.const(width - 1, kind)), sign)
        ordered = m.select(m.is_nan(x), all_ones, m.xor(word, flip))
    elif bits == width:
        ordered = m.bitcast(x, kind)
        ordered = m.xor(ordered, sign) if dtype in SIGNED else ordered
    else:
        ordered = m.convert(x, kind)
        ordered = m.add(ordered, sign) if dtype in SIGNED else ordered
    return m.unbind(m.xor(ordered, all_ones) if falling else ordered)


def int64_pointer(f: FunctionBuilder, base: ir.Value, i: Index) -> ir.Value:
    """Where the i-th 64-bit number lies."""
    return f.at(base, (i, 1), dtype="int64")


class Row:
    """A row being sorted, in scratch memory (`Row.bytes`).

    Afterwards `rank_at` and `place_at` read the sorted row.
    """

    def __init__(self, f: FunctionBuilder, length: int, dtype: str, scratch: ir.Value) -> None:
        self.f, self.b, self.length, self.dtype = f, f.b, length, dtype
        self.wide = rank_bits(dtype) == 64
        self.arrays = 2 if self.wide else 1
        sides = [int64_pointer(f, scratch, n * length) for n in range(2 * self.arrays)]
        self.sources, self.targets = sides[: self.arrays], sides[self.arrays :]
        self.counts = int64_pointer(f, scratch, 2 * self.arrays * length)

    @staticmethod
    def bytes(length: int, dtype: str) -> int:
        """Scratch memory of a row: each array twice, and a count for every value of every byte."""
        bits = rank_bits(dtype)
        needed = (4 if bits == 64 else 2) * 8 * length + 4 * DIGITS * (bits // 8)
        return -(-needed // 64) * 64

    def sort(self, x: ir.Value, step: int, falling: bool = False) -> None:
        """Read the elements, `step` apart, and sort them."""
        f, b = self.f, self.b
        shifts = [8 * k + (0 if self.wide else 32) for k in range(rank_bits(self.dtype) // 8)]
        zeros = ir.Constant(f.vector_type("int32"), None)
        with f.loop(DIGITS * len(shifts), step=LANES) as d:
            f.store(zeros, f.at(self.counts, (d.index, 1), dtype="int32"))
        m = LlvmArith(f, lanes=0)
        with f.loop(self.length) as i:
            at = f.at(x, (i.index, step), dtype=self.dtype)
            loaded = m.bind(f.load(at, self.dtype, lanes=0), self.dtype)
            rank_and_index, index = rank(m, loaded, self.dtype, falling), f.i64(i.index)
            if self.wide:
                f.store(index, int64_pointer(f, self.sources[1], i.index))
            else:
                rank_and_index = b.or_(b.shl(b.zext(rank_and_index, I64), f.i64(32)), index)
            f.store(rank_and_index, int64_pointer(f, self.sources[0], i.index))
            for k, shift in enumerate(shifts):
                counter = self._counter(k, rank_and_index, shift)
                f.store(b.add(f.load(counter, "int32", lanes=0), I32(1)), counter)
        for k, shift in enumerate(shifts):
            self._pass(k, shift)

    def _counter(self, k: int, rank_and_index: ir.Value, shift: int) -> ir.Value:
        digit = self.b.and_(self.b.lshr(rank_and_index, self.f.i64(shift)), self.f.i64(DIGITS - 1))
        return self.f.at(self.counts, k * DIGITS, (digit, 1), dtype="int32")

    def _pass(self, k: int, shift: int) -> None:
        """By one byte, unless all ranks agree in it."""
        f, b = self.f, self.b
        first = f.load(self.sources[0], "int64", lanes=0)
        same = f.load(self._counter(k, first, shift), "int32", lanes=0)
        before, work, after = b.block, f.block("digit"), f.block("sorted")
        b.cbranch(b.icmp_unsigned("==", same, I32(self.length)), after, work)
        b.position_at_end(work)
        with f.loop(DIGITS, carry=[I32(0)]) as d:
            at = f.at(self.counts, k * DIGITS, (d.index, 1), dtype="int32")
            (total,) = d.values
            more = b.add(total, f.load(at, "int32", lanes=0))
            f.store(total, at)
            d.next([more])
        with f.loop(self.length) as i:
            entries = [f.load(int64_pointer(f, s, i.index), "int64", lanes=0) for s in self.sources]
            counter = self._counter(k, entries[0], shift)
            to = f.load(counter, "int32", lanes=0)
            f.store(b.add(to, I32(1)), counter)
            for value, target in zip(entries, self.targets):
                f.store(value, int64_pointer(f, target, b.zext(to, I64)))
        last = b.block
        b.branch(after)
        b.position_at_end(after)
        sides: list[ir.Value] = []
        for pointer, swapped in zip(
            (*self.sources, *self.targets), (*self.targets, *self.sources), strict=True
        ):
            phi = b.phi(pointer.type)
            phi.add_incoming(pointer, before)
            phi.add_incoming(swapped, last)
            sides.append(phi)
        self.sources, self.targets = sides[: self.arrays], sides[self.arrays :]

    def rank_at(self, i: Index) -> ir.Value:
        """Of the sorted row, an i64 that differs where ranks do."""
        rank_and_index = self.f.load(int64_pointer(self.f, self.sources[0], i), "int64", lanes=0)
        return rank_and_index if self.wide else self.b.lshr(rank_and_index, self.f.i64(32))

    def place_at(self, i: Index) -> ir.Value:
        """Where the i-th of the sorted row came from, i64."""
        rank_and_index = self.f.load(int64_pointer(self.f, self.sources[-1], i), "int64", lanes=0)
        return (
            rank_and_index if self.wide else self.b.and_(rank_and_index, self.f.i64((1 << 32) - 1))
        )
