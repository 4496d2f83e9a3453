"""The first elements of a row in order, and where they are: TopK.

An element and its position become one 64-bit number whose order is the order that is asked for: the
element's rank as 32 bits, then the position, so that of equals the lower one is first. A handful is
kept sorted in registers, few of many in a heap whose root is the worst of them; most of them, and
elements of 64 bits, are sorted by their bytes (`sorting`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    I32,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.search.sorting import SORTED, Row, rank, rank_bits
from verax.compiler.kernels.sizes import Size, ceil_div, minimum, numbers, static_size
from verax.compiler.kernels.target import LANES
from verax.ir.dim import same

MOST_ITEMS = 32
"""Each has scratch memory of its own."""
_HANDFUL = 16  # numbers that stay in registers, or nearly
_SHORT = 32  # rows that are not worth the counting of digits


@dataclasses.dataclass(frozen=True)
class TopSpec:
    """values[row, j], indices[row, j] = the j-th of x[row] and its place, j < k.

    rows: outer dims, with strides in elements of x and of both outputs; length: elements of a row,
    `step` apart; results are `to` apart. largest: from the largest on, else from the smallest; NaN
    is larger than all. Arguments of the kernel: x, scratch (`scratch_bytes`), values, indices.
    """

    rows: tuple[Size, ...]
    length: Size
    k: Size
    x: tuple[Size, ...]
    y: tuple[Size, ...]
    step: Size
    to: Size
    largest: bool
    dtype: str

    def __str__(self) -> str:
        rows = math.prod(self.rows)
        order = "largest" if self.largest else "smallest"
        return f"{self.k} {order} of {self.length} {self.dtype}, {rows} rows"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of the elements."""
        return (self.dtype,)

    @property
    def sorts(self) -> bool:
        """Whether the whole row is sorted: ranks of 64 bits leave no room for a place in a heap.
        Where sizes are read at run time there always is a heap."""
        if not (isinstance(self.length, int) and isinstance(self.k, int)):
            return False
        many = self.length > _SHORT and 8 * self.k > self.length
        return many or (rank_bits(self.dtype) == 64 and self.k > _HANDFUL)

    @property
    def items(self) -> Size:
        return minimum(math.prod(self.rows), MOST_ITEMS)

    @property
    def item_bytes(self) -> Size:
        """Scratch memory of one item: a heap, or what sorting a row needs."""
        if self.sorts:
            return Row.bytes(static_size(self.length), self.dtype)
        return ceil_div(8 * self.k, 64) * 64

    @property
    def scratch_bytes(self) -> Size:
        return self.items * self.item_bytes


def _with_known_length(spec: TopSpec) -> TopSpec:
    """Lines of 64-bit ranks are sorted, for which their length is a number."""
    return numbers(spec) if rank_bits(spec.dtype) == 64 else spec


@emits(TopSpec, dtypes=SORTED, settle=_with_known_length)
def emit_top(module: ModuleBuilder, spec: TopSpec) -> Kernel:
    """Items: some neighboring rows."""
    f = module.kernel(spec, 4, hint="top")
    if f.kernel is not None:
        return f.kernel
    rows = math.prod(spec.rows)
    rows_per_item = ceil_div(rows, spec.items)
    with f.items() as item:
        scratch = f.at(f.args[1], (item.index, spec.item_bytes), dtype="int8")
        start = f.imul(item.index, rows_per_item)
        end = f.clamp(f.iadd(start, rows_per_item), 0, rows)
        with f.loop(end, start=start) as row:
            row_indices = f.split(row.index, *spec.rows[1:]) if spec.rows else []
            x = f.at(f.args[0], *zip(row_indices, spec.x), dtype=spec.dtype)
            if spec.sorts:
                sorted_row = Row(f, static_size(spec.length), spec.dtype, scratch)
                sorted_row.sort(x, static_size(spec.step), spec.largest)
                _write(f, spec, x, sorted_row.place_at, row_indices)
            else:
                is_handful = isinstance(spec.k, int) and spec.k <= _HANDFUL
                find = _handful if is_handful else _heap
                numbers = find(f, spec, x, scratch)
                _write(f, spec, x, partial(_place_of, f, numbers), row_indices)
    count = rows * spec.length
    return f.finish(spec.items, count * 4, count * ELEMENT_SIZES[spec.dtype])


# --- elements as numbers that are ordered as asked


def _place_of(f: FunctionBuilder, numbers: ir.Value, j: Index) -> ir.Value:
    return f.b.and_(f.load(_at(f, numbers, j), "int64", lanes=0), f.i64((1 << 32) - 1))


def _rank(spec: TopSpec, m: LlvmArith, loaded: ir.Value) -> ir.Value:
    """The lowest comes first."""
    return rank(m, m.bind(loaded, spec.dtype), spec.dtype, spec.largest)


def _rank_and_index(f: FunctionBuilder, spec: TopSpec, x: ir.Value, i: Index) -> ir.Value:
    """Rank and place of element i as one i64."""
    m = LlvmArith(f, lanes=0)
    at = f.at(x, (i, spec.step), dtype=spec.dtype)
    element_rank = _rank(spec, m, f.load(at, spec.dtype, lanes=0))
    high = f.b.shl(f.b.zext(element_rank, I64), f.i64(32))
    return f.b.or_(high, f.i64(i))


def _at(f: FunctionBuilder, base: ir.Value, i: Index) -> ir.Value:
    return f.at(base, (i, 1), dtype="int64")


def _write(
    f: FunctionBuilder,
    spec: TopSpec,
    x: ir.Value,
    index_of: Callable[[Index], ir.Value],
    row_indices: Sequence[Index],
) -> None:
    """Write the k elements whose indices `index_of(j)` gives, and these indices."""
    values = f.at(f.args[2], *zip(row_indices, spec.y), dtype=spec.dtype)
    indices = f.at(f.args[3], *zip(row_indices, spec.y), dtype="int64")
    with f.loop(spec.k) as j:
        index = index_of(j.index)
        value = f.load(f.at(x, (index, spec.step), dtype=spec.dtype), spec.dtype, lanes=0)
        f.store(value, f.at(values, (j.index, spec.to), dtype=spec.dtype))
        f.store(index, f.at(indices, (j.index, spec.to), dtype="int64"))


# --- a handful


def _handful(f: FunctionBuilder, spec: TopSpec, x: ir.Value, scratch: ir.Value) -> ir.Value:
    """The k smallest numbers, sorted at every moment; of 64-bit ranks, which lie beside their
    places, the places."""
    b, wide = f.b, rank_bits(spec.dtype) == 64
    words = 2 if wide else 1
    best: list[ir.Value] = [f.i64(-1)] * (static_size(spec.k) * words)

    def one_by_itself(i: Index) -> list[ir.Value]:
        if not wide:
            return [_rank_and_index(f, spec, x, i)]
        at = f.at(x, (i, spec.step), dtype=spec.dtype)
        return [_rank(spec, LlvmArith(f, lanes=0), f.load(at, spec.dtype, lanes=0)), f.i64(i)]

    def inserted(new: list[ir.Value], best: Sequence[ir.Value]) -> list[ir.Value]:
        inserted_values = []
        for k in range(0, len(best), words):
            old = best[k : k + words]
            smaller = b.icmp_unsigned("<", new[0], old[0])
            if wide:
                earlier = b.icmp_unsigned("<", new[1], old[1])
                equal = b.icmp_unsigned("==", new[0], old[0])
                smaller = b.or_(smaller, b.and_(equal, earlier))
            inserted_values += [b.select(smaller, n, o) for n, o in zip(new, old)]
            new = [b.select(smaller, o, n) for n, o in zip(new, old)]
        return inserted_values

    full = spec.length // LANES * LANES if same(spec.step, 1) else 0
    if not same(full, 0):
        with f.loop(full, step=LANES, carry=best) as group:
            m = LlvmArith(f)
            loaded = f.load(f.at(x, (group.index, 1), dtype=spec.dtype), spec.dtype)
            ranks = _rank(spec, m, loaded)
            worst = group.values[-words]
            worst = worst if wide else b.trunc(b.lshr(worst, f.i64(32)), I32)
            mask = b.zext(_better(f, spec, ranks, worst, group.index), I32)
            before, insert_block, after = b.block, f.block("walk"), f.block("after")
            b.cbranch(b.icmp_unsigned("!=", mask, I32(0)), insert_block, after)
            b.position_at_end(insert_block)  # the lanes that may be better, one by one
            left, current = b.phi(I32), [b.phi(I64) for _ in best]
            lane = b.zext(b.cttz(left, ir.Constant(ir.IntType(1), 1)), I64)
            inserted_values = inserted(one_by_itself(b.add(f.i64(group.index), lane)), current)
            fewer = b.and_(left, b.sub(left, I32(1)))
            for phi, start, again in zip(
                (left, *current), (mask, *group.values), (fewer, *inserted_values), strict=True
            ):
                phi.add_incoming(start, before)
                phi.add_incoming(again, insert_block)
            b.cbranch(b.icmp_unsigned("!=", fewer, I32(0)), insert_block, after)
            b.position_at_end(after)
            merged = []
            for old, new in zip(group.values, inserted_values, strict=True):
                phi = b.phi(I64)
                phi.add_incoming(old, before)
                phi.add_incoming(new, insert_block)
                merged.append(phi)
            group.next(merged)
        best = group.results
    if not same(spec.length, full):
        with f.loop(spec.length, start=full, carry=best) as one:
            one.next(inserted(one_by_itself(one.index), one.values))
        best = one.results
    for j, entry in enumerate(best[words - 1 :: words]):
        f.store(entry, _at(f, scratch, j))
    return scratch


def _better(
    f: FunctionBuilder, spec: TopSpec, ranks: ir.Value, worst: ir.Value, first: Index
) -> ir.Value:
    """Bit by bit, which of 16 elements from `first` on may be better than the worst of those that
    were found: of equals the earlier is, but there are none before k elements have been seen."""
    b, worst = f.b, f.splat(worst)
    below, equal = (b.icmp_unsigned(relation, ranks, worst) for relation in ("<", "<="))
    begins = b.icmp_signed("<", f.i64(first), f.i64(spec.k))
    lanes = ir.IntType(LANES)
    return b.select(begins, b.bitcast(equal, lanes), b.bitcast(below, lanes))


# --- few of many


def _heap(f: FunctionBuilder, spec: TopSpec, x: ir.Value, heap: ir.Value) -> ir.Value:
    """The k smallest numbers, sorted; no parent in the heap is smaller than its children."""
    b = f.b
    with f.loop(spec.k) as j:
        f.store(f.i64(-1), _at(f, heap, j.index))

    def offer(i: Index) -> None:
        rank_and_index = _rank_and_index(f, spec, x, i)
        root = f.load(heap, "int64", lanes=0)
        with f.when(b.icmp_unsigned("<", rank_and_index, root)):
            sift(f, heap, f.i64(spec.k), rank_and_index)

    full = spec.length // LANES * LANES if same(spec.step, 1) else 0
    if not same(full, 0):
        with f.loop(full, step=LANES) as group:
            m = LlvmArith(f)
            loaded = f.load(f.at(x, (group.index, 1), dtype=spec.dtype), spec.dtype)
            ranks = _rank(spec, m, loaded)
            root = b.trunc(b.lshr(f.load(heap, "int64", lanes=0), f.i64(32)), I32)
            is_better = _better(f, spec, ranks, root, group.index)
            any_ = b.icmp_unsigned("!=", is_better, is_better.type(0))
            with f.when(any_), f.loop(LANES) as lane:
                offer(f.iadd(group.index, lane.index))
    if not same(spec.length, full):
        with f.loop(spec.length, start=full) as one:
            offer(one.index)
    if not same(spec.k, 1):  # the worst goes to the end, and the heap is one shorter
        with f.loop(spec.k - 1) as done:
            size = b.sub(f.i64(spec.k - 1), f.i64(done.index))
            last, root = (
                f.load(_at(f, heap, size), "int64", lanes=0),
                f.load(heap, "int64", lanes=0),
            )
            f.store(root, _at(f, heap, size))
            sift(f, heap, size, last)
    return heap


def make_heap(f: FunctionBuilder, numbers: ir.Value, count: ir.Value) -> None:
    """Put `count` numbers in the order of a heap, where they are."""
    b = f.b
    half = b.lshr(count, f.i64(1))
    with f.loop(half) as i:
        at = b.sub(b.sub(half, f.i64(1)), f.i64(i.index))
        sift(f, numbers, count, f.load(_at(f, numbers, at), "int64", lanes=0), at)


def falling_rank(m: LlvmArith, score: Typed) -> Typed:
    """32 bits that are the smaller, without a sign, the larger a float32 is; both zeros alike."""
    bits = m.bitcast(m.add(score, m.const(0.0, "float32")), "int32")
    sign = m.const(-(1 << 31), "int32")
    rising = m.xor(bits, m.or_(m.shift_right(bits, m.const(31, "int32")), sign))
    return m.xor(rising, m.const(-1, "int32"))


def sift(
    f: FunctionBuilder, heap: ir.Value, size: ir.Value, value: ir.Value, start: Index = 0
) -> None:
    """Put `value` at `start` (the root) in a max-heap of `size` and sift it down:
    no parent is smaller than its children."""
    b = f.b
    before, loop_block, inside, sink, end = (
        b.block,
        *(f.block(n) for n in ("walk", "in", "sink", "end")),
    )
    b.branch(loop_block)
    b.position_at_end(loop_block)
    at = b.phi(I64)
    at.add_incoming(f.i64(start), before)
    left = b.add(b.shl(at, f.i64(1)), f.i64(1))
    b.cbranch(b.icmp_signed("<", left, size), inside, end)
    b.position_at_end(inside)
    right = b.add(left, f.i64(1))
    right = b.select(b.icmp_signed("<", right, size), right, left)
    first, second = (f.load(_at(f, heap, i), "int64", lanes=0) for i in (left, right))
    right_is_larger = b.icmp_unsigned(">", second, first)
    child, worst = b.select(right_is_larger, right, left), b.select(right_is_larger, second, first)
    b.cbranch(b.icmp_unsigned(">", worst, value), sink, end)
    b.position_at_end(sink)
    f.store(worst, _at(f, heap, at))
    at.add_incoming(child, sink)
    b.branch(loop_block)
    b.position_at_end(end)
    f.store(value, _at(f, heap, at))
