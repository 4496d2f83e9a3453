"""The first elements of a row in order, and where they are: TopK.

An element and its position become one 64-bit number whose order is the order that is asked for: the
element's rank as 32 bits, then the position, so that of equals the lower one is first. A handful is
kept sorted in registers, few of many in a heap whose root is the worst of them; most of them are
sorted by their bytes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from verax.compiler.kernels import llvm_text as ir
from verax.compiler.kernels.arith import LlvmArith, Typed
from verax.compiler.kernels.builder import (
    ELEMENT_SIZES,
    I32,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES
from verax.numerics.formats import SIGNED

KNOWN = ("float16", "bfloat16", "float32", "int8", "uint8", "int16", "uint16", "int32", "uint32")
MOST_ITEMS = 32
"""Each has scratch memory of its own."""
_DIGITS = 256
_HANDFUL = 16  # numbers that stay in registers, or nearly
_SHORT = 32  # rows that are not worth the counting of digits


@dataclasses.dataclass(frozen=True)
class TopSpec:
    """values[row, j], indices[row, j] = the j-th of x[row] and its place, j < k.

    rows: outer dims, with strides in elements of x and of both outputs; length: elements of a row,
    `step` apart; results are `to` apart. largest: from the largest on, else from the smallest; NaN
    is larger than all. Arguments of the kernel: x, scratch (`scratch_bytes`), values, indices.
    """

    rows: tuple[int, ...]
    length: int
    k: int
    x: tuple[int, ...]
    y: tuple[int, ...]
    step: int
    to: int
    largest: bool
    dtype: str

    def __str__(self) -> str:
        rows = math.prod(self.rows)
        how = "largest" if self.largest else "smallest"
        return f"{self.k} {how} of {self.length} {self.dtype}, {rows} rows"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of the elements."""
        return (self.dtype,)

    @property
    def bits(self) -> int:
        """Of an element's rank."""
        return {1: 8, 2: 32 if "float" in self.dtype else 16}.get(ELEMENT_SIZES[self.dtype], 32)

    @property
    def sorts(self) -> bool:
        """Whether the whole row is sorted."""
        return self.length > _SHORT and 8 * self.k > self.length

    @property
    def items(self) -> int:
        return min(math.prod(self.rows), MOST_ITEMS)

    @property
    def item_bytes(self) -> int:
        """Scratch memory of one item: a heap, or the row twice and a count for every digit."""
        needed = 16 * self.length + 4 * _DIGITS if self.sorts else 8 * self.k
        return -(-needed // 64) * 64

    @property
    def scratch_bytes(self) -> int:
        return self.items * self.item_bytes


@emits(TopSpec, dtypes=KNOWN)
def emit_top(module: ModuleBuilder, spec: TopSpec) -> Kernel:
    """Items: some neighbouring rows."""
    f = module.kernel(spec, 4, hint="top")
    if f.kernel is not None:
        return f.kernel
    rows = math.prod(spec.rows)
    each = -(-rows // spec.items)
    with f.items() as item:
        scratch = f.at(f.args[1], (item.index, spec.item_bytes), dtype="int8")
        start = f.imul(item.index, each)
        end = f.clamp(f.iadd(start, each), 0, rows)
        with f.loop(end, start=start) as row:
            place = f.split(row.index, *spec.rows[1:]) if spec.rows else []
            x = f.at(f.args[0], *zip(place, spec.x), dtype=spec.dtype)
            find = _sorted if spec.sorts else _handful if spec.k <= _HANDFUL else _heap
            _write(f, spec, x, find(f, spec, x, scratch), place)
    count = rows * spec.length
    return f.finish(spec.items, count * 4, count * ELEMENT_SIZES[spec.dtype])


# --- elements as numbers that are ordered as asked


def _rank(spec: TopSpec, m: LlvmArith, x: Typed) -> ir.Value:
    """i32s whose unsigned order is the order of the elements; equal zeros are one."""
    all_ones = m.const(-1 if spec.bits == 32 else (1 << spec.bits) - 1, "int32")
    sign = m.const(-(1 << 31) if spec.bits == 32 else 1 << (spec.bits - 1), "int32")
    if "float" in spec.dtype:
        x = m.convert(x, "float32")
        bits = m.bitcast(m.add(x, m.const(0.0, "float32")), "int32")
        flip = m.or_(m.shift_right(bits, m.const(31, "int32")), sign)
        rank = m.select(m.is_nan(x), all_ones, m.xor(bits, flip))
    elif spec.bits == 32:
        rank = m.bitcast(x, "int32")
        rank = m.xor(rank, sign) if spec.dtype in SIGNED else rank
    else:
        rank = m.convert(x, "int32")
        rank = m.add(rank, sign) if spec.dtype in SIGNED else rank
    return m.unbind(m.xor(rank, all_ones) if spec.largest else rank)


def _number(f: FunctionBuilder, spec: TopSpec, x: ir.Value, i: Index) -> ir.Value:
    """Rank and place of element i as one i64."""
    m = LlvmArith(f, lanes=0)
    at = f.at(x, (i, spec.step), dtype=spec.dtype)
    rank = _rank(spec, m, m.bind(f.load(at, spec.dtype, lanes=0), spec.dtype))
    high = f.b.shl(f.b.zext(rank, I64), f.i64(32))
    return f.b.or_(high, f.i64(i))


def _at(f: FunctionBuilder, base: ir.Value, i: Index) -> ir.Value:
    return f.at(base, (i, 1), dtype="int64")


def _write(
    f: FunctionBuilder, spec: TopSpec, x: ir.Value, found: ir.Value, place: Sequence[Index]
) -> None:
    values = f.at(f.args[2], *zip(place, spec.y), dtype=spec.dtype)
    indices = f.at(f.args[3], *zip(place, spec.y), dtype="int64")
    with f.loop(spec.k) as j:
        number = f.load(_at(f, found, j.index), "int64", lanes=0)
        index = f.b.and_(number, f.i64((1 << 32) - 1))
        value = f.load(f.at(x, (index, spec.step), dtype=spec.dtype), spec.dtype, lanes=0)
        f.store(value, f.at(values, (j.index, spec.to), dtype=spec.dtype))
        f.store(index, f.at(indices, (j.index, spec.to), dtype="int64"))


# --- a handful


def _handful(f: FunctionBuilder, spec: TopSpec, x: ir.Value, scratch: ir.Value) -> ir.Value:
    """The k smallest numbers, sorted at every moment."""
    b = f.b
    best: list[ir.Value] = [f.i64(-1)] * spec.k

    def inserted(number: ir.Value, best: Sequence[ir.Value]) -> list[ir.Value]:
        found = []
        for old in best:
            smaller = b.icmp_unsigned("<", number, old)
            found.append(b.select(smaller, number, old))
            number = b.select(smaller, old, number)
        return found

    full = spec.length // LANES * LANES if spec.step == 1 else 0
    if full:
        with f.loop(full, step=LANES, carry=best) as group:
            m = LlvmArith(f)
            loaded = f.load(f.at(x, (group.index, 1), dtype=spec.dtype), spec.dtype)
            ranks = _rank(spec, m, m.bind(loaded, spec.dtype))
            worst = b.trunc(b.lshr(group.values[-1], f.i64(32)), I32)
            some = b.bitcast(b.icmp_unsigned("<=", ranks, f.splat(worst)), ir.IntType(LANES))
            mask = b.zext(some, I32)
            before, walk, after = b.block, f.block("walk"), f.block("after")
            b.cbranch(b.icmp_unsigned("!=", mask, I32(0)), walk, after)
            b.position_at_end(walk)  # the lanes that may be better, one by one
            left, kept = b.phi(I32), [b.phi(I64) for _ in best]
            lane = b.zext(b.cttz(left, ir.Constant(ir.IntType(1), 1)), I64)
            number = _number(f, spec, x, b.add(f.i64(group.index), lane))
            found = inserted(number, kept)
            fewer = b.and_(left, b.sub(left, I32(1)))
            for phi, start, again in zip(
                (left, *kept), (mask, *group.values), (fewer, *found), strict=True
            ):
                phi.add_incoming(start, before)
                phi.add_incoming(again, walk)
            b.cbranch(b.icmp_unsigned("!=", fewer, I32(0)), walk, after)
            b.position_at_end(after)
            merged = []
            for old, new in zip(group.values, found, strict=True):
                phi = b.phi(I64)
                phi.add_incoming(old, before)
                phi.add_incoming(new, walk)
                merged.append(phi)
            group.next(merged)
        best = group.results
    if spec.length > full:
        with f.loop(spec.length, start=full, carry=best) as one:
            one.next(inserted(_number(f, spec, x, one.index), one.values))
        best = one.results
    for j, number in enumerate(best):
        f.store(number, _at(f, scratch, j))
    return scratch


# --- few of many


def _heap(f: FunctionBuilder, spec: TopSpec, x: ir.Value, heap: ir.Value) -> ir.Value:
    """The k smallest numbers, sorted; no parent in the heap is smaller than its children."""
    b = f.b
    with f.loop(spec.k) as j:
        f.store(f.i64(-1), _at(f, heap, j.index))

    def offer(i: Index) -> None:
        number = _number(f, spec, x, i)
        root = f.load(heap, "int64", lanes=0)
        with f.when(b.icmp_unsigned("<", number, root)):
            sift(f, heap, f.i64(spec.k), number)

    full = spec.length // LANES * LANES if spec.step == 1 else 0
    if full:
        with f.loop(full, step=LANES) as group:
            m = LlvmArith(f)
            loaded = f.load(f.at(x, (group.index, 1), dtype=spec.dtype), spec.dtype)
            ranks = _rank(spec, m, m.bind(loaded, spec.dtype))
            root = b.trunc(b.lshr(f.load(heap, "int64", lanes=0), f.i64(32)), I32)
            better = b.icmp_unsigned("<=", ranks, f.splat(root))
            some = b.bitcast(better, ir.IntType(LANES))
            any_ = b.icmp_unsigned("!=", some, some.type(0))
            with f.when(any_), f.loop(LANES) as lane:
                offer(f.iadd(group.index, lane.index))
    if spec.length > full:
        with f.loop(spec.length, start=full) as one:
            offer(one.index)
    if spec.k > 1:  # the worst goes to the end, and the heap is one shorter
        with f.loop(spec.k - 1) as done:
            size = b.sub(f.i64(spec.k - 1), f.i64(done.index))
            last, root = (
                f.load(_at(f, heap, size), "int64", lanes=0),
                f.load(heap, "int64", lanes=0),
            )
            f.store(root, _at(f, heap, size))
            sift(f, heap, size, last)
    return heap


def sift(
    f: FunctionBuilder, heap: ir.Value, size: ir.Value, number: ir.Value, start: Index = 0
) -> None:
    """Put `number` at `start` (the root) in a heap of `size` and let it sink to where it belongs:
    no parent is smaller than its children."""
    b = f.b
    before, walk, inside, sink, end = b.block, *(f.block(n) for n in ("walk", "in", "sink", "end"))
    b.branch(walk)
    b.position_at_end(walk)
    at = b.phi(I64)
    at.add_incoming(f.i64(start), before)
    left = b.add(b.shl(at, f.i64(1)), f.i64(1))
    b.cbranch(b.icmp_signed("<", left, size), inside, end)
    b.position_at_end(inside)
    right = b.add(left, f.i64(1))
    right = b.select(b.icmp_signed("<", right, size), right, left)
    first, second = (f.load(_at(f, heap, i), "int64", lanes=0) for i in (left, right))
    other = b.icmp_unsigned(">", second, first)
    child, worst = b.select(other, right, left), b.select(other, second, first)
    b.cbranch(b.icmp_unsigned(">", worst, number), sink, end)
    b.position_at_end(sink)
    f.store(worst, _at(f, heap, at))
    at.add_incoming(child, sink)
    b.branch(walk)
    b.position_at_end(end)
    f.store(number, _at(f, heap, at))


# --- all of them


def _sorted(f: FunctionBuilder, spec: TopSpec, x: ir.Value, scratch: ir.Value) -> ir.Value:
    """The numbers of the row sorted by their ranks' bytes, the lowest first; places keep order."""
    b = f.b
    source, target = scratch, _at(f, scratch, spec.length)
    counts = _at(f, scratch, 2 * spec.length)
    with f.loop(spec.length) as i:
        f.store(_number(f, spec, x, i.index), _at(f, source, i.index))

    def counter(number: ir.Value, shift: int) -> ir.Value:
        digit = b.and_(b.lshr(number, f.i64(shift)), f.i64(_DIGITS - 1))
        return f.at(counts, (digit, 1), dtype="int32")

    for shift in range(32, 32 + spec.bits, 8):
        with f.loop(_DIGITS, step=LANES) as d:
            zeros = ir.Constant(f.vector_type("int32"), None)
            f.store(zeros, f.at(counts, (d.index, 1), dtype="int32"))
        with f.loop(spec.length) as i:
            place = counter(f.load(_at(f, source, i.index), "int64", lanes=0), shift)
            seen = f.load(place, "int32", lanes=0)
            f.store(b.add(seen, I32(1)), place)
        with f.loop(_DIGITS, carry=[I32(0)]) as d:
            place = f.at(counts, (d.index, 1), dtype="int32")
            (before,) = d.values
            after = b.add(before, f.load(place, "int32", lanes=0))
            f.store(before, place)
            d.next([after])
        with f.loop(spec.length) as i:
            number = f.load(_at(f, source, i.index), "int64", lanes=0)
            place = counter(number, shift)
            to = f.load(place, "int32", lanes=0)
            f.store(b.add(to, I32(1)), place)
            f.store(number, _at(f, target, b.zext(to, I64)))
        source, target = target, source
    return source
