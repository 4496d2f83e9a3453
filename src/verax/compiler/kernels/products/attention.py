"""Attention without its scores in memory: a few queries at a time, against all keys.

A work unit is a group of neighboring queries of one head. Its scores, a row for each query, are
computed tile by tile into scratch memory that stays in cache, where the mask and Softmax are
applied; the rows are then multiplied with the values. Keys and values are packed in panels of
columns ahead (`gemm.PackSpec`, with `panels`), once for all groups of queries.

Bits: a score is one FMA per feature from +0, ascending, times the scale, by the divisor, plus the
mask; Softmax is the maximum, exp of the differences, their sum in the order of
`numerics.reductions`, a division; a result is one FMA per key from +0, ascending. Neither the tiles
nor the groups decide any of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from verax.compiler.kernels.convolution.schedule import ConvSchedule, fits
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    I1,
    I32,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
    Term,
)
from verax.compiler.kernels.llvm.lanes import joined_lanes, sum_of_floats
from verax.compiler.kernels.products.attention_spec import AttentionSchedule, AttentionSpec, Shared
from verax.compiler.kernels.registry import Space, Stage, emits
from verax.compiler.kernels.sizes import Size, ceil_div, equal, numbers, static_size
from verax.compiler.kernels.target import LANES, Target
from verax.numerics import functions

F32, F64 = "float32", "float64"
_Store = Callable[[list[list[ir.Value]], Index, Index], None]
SCORES_BYTES = 1 << 16
"""What the scores of a group may take of the caches nearest to a core."""
KNOWN = (F32, F64, "bool")
UNROLL = 4
"""Steps of a sum that are written out."""


def _fits(spec: AttentionSpec, blocks: int, rows: int, target: Target) -> bool:
    """Whether a tile fits the registers; a vector of float64 takes twice as many."""
    return fits(blocks * ELEMENT_SIZES[spec.dtype] // ELEMENT_SIZES[F32], rows, target)


def attention_schedule(spec: AttentionSpec, target: Target) -> AttentionSchedule:
    """A schedule by rule: the tiles of products of matrices, as many as scratch memory allows."""
    blocks = 2 if target.registers * target.vector_bits >= 32 * 512 else 1
    rows = max((r for r in range(1, 13) if _fits(spec, blocks, r, target)), default=1)
    queries, row = static_size(spec.n), static_size(spec.row)
    rows = min(rows, queries)
    max_tiles = SCORES_BYTES // (rows * row * ELEMENT_SIZES[spec.dtype])
    return AttentionSchedule(rows, blocks, max(1, min(max_tiles, 4, queries // rows)))


def _admits(spec: AttentionSpec, target: Target, schedule: object) -> bool:
    """Whether the kernel may have a schedule: tiles in registers, scores in cache."""
    if not isinstance(schedule, AttentionSchedule):
        return False
    scores = schedule.rows * schedule.tiles * spec.row * ELEMENT_SIZES[spec.dtype]
    return (
        schedule.rows >= 1
        and 1 <= schedule.blocks <= 4
        and (schedule.rows == 1 or _fits(spec, schedule.blocks, schedule.rows, target))
        and 1 <= schedule.tiles <= max(1, spec.n // schedule.rows)
        and schedule.rows <= spec.n
        and (schedule.tiles == 1 or scores <= 16 * SCORES_BYTES)
    )


def _stages(spec: AttentionSpec, target: Target) -> tuple[Stage, ...]:
    """Tiles of scores, then how many share a panel."""

    def tiles(best: AttentionSchedule) -> Iterator[AttentionSchedule]:
        for blocks in (1, 2, 3, 4):
            row_counts = [r for r in range(1, 31) if _fits(spec, blocks, r, target)]
            for rows in row_counts[-3:]:
                together = max(1, min(best.tiles, static_size(spec.n) // rows))
                yield AttentionSchedule(rows, blocks, together)

    def together(best: AttentionSchedule) -> Iterator[AttentionSchedule]:
        for count in (1, 2, 3, 4, 6, 8, 12):
            yield dataclasses.replace(best, tiles=count)

    return tiles, together


def panels(schedule: AttentionSchedule) -> ConvSchedule:
    """How keys and values are packed for it."""
    return ConvSchedule(blocks=schedule.blocks)


def _with_known_features(spec: AttentionSpec) -> AttentionSpec:
    """Batches, queries and keys may be read at run time."""
    return dataclasses.replace(spec, d=numbers(spec.d), e=numbers(spec.e))


@emits(
    AttentionSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (attention_schedule(spec, target),),
    space=Space(AttentionSchedule, _stages, _admits),
    settle=_with_known_features,
)
def emit_attention(
    module: ModuleBuilder, spec: AttentionSpec, schedule: AttentionSchedule
) -> Kernel:
    """Items: some neighboring groups of queries."""
    f = module.kernel(("attention", spec, schedule), 5 + (spec.mask is not None))
    if f.kernel is not None:
        return f.kernel
    units, items = spec.outer * spec.inner * schedule.groups(spec), schedule.items(spec)
    # One call runs its items one after the other: they share the first one's memory.
    scratch = f.at(f.args[-2], (f.begin, schedule.scratch_elements(spec)), dtype=spec.dtype)
    first, last = (f.idiv(f.imul(at, units), items) for at in (f.begin, f.end))
    with f.loop(last, start=first) as unit:
        outer, head, group = f.split(unit.index, spec.inner, schedule.groups(spec))
        _Group(f, spec, schedule, scratch, outer, head, group).emit()
    heads = spec.outer * spec.inner
    flops = heads * spec.n * spec.m * (2 * spec.d + 2 * spec.e + 24)
    touched = heads * (spec.n * (spec.d + spec.e) + spec.m * (spec.d + spec.e))
    return f.finish(items, flops, touched * ELEMENT_SIZES[spec.dtype])


class _Group:
    """A group of queries of one head, being emitted."""

    def __init__(
        self,
        f: FunctionBuilder,
        spec: AttentionSpec,
        schedule: AttentionSchedule,
        scratch: ir.Value,
        outer: Index,
        head: Index,
        group: Index,
    ) -> None:
        self.f, self.spec, self.schedule, self.scratch = f, spec, schedule, scratch
        self.arith, self.dtype = LlvmArith(f), spec.dtype
        self.first = f.imul(group, schedule.rows * schedule.tiles)
        left = f.iadd(spec.n, f.imul(self.first, -1))
        self.count = f.clamp(left, 0, schedule.rows * schedule.tiles)
        self.tiles = f.idiv(self.count, schedule.rows)
        self.q, self.y = (
            self._at(pointer, (outer, at.outer), (head, at.inner), (self.first, at.row))
            for pointer, at in ((f.args[0], spec.q), (f.args[-1], spec.y))
        )
        self.k, self.v = (
            self._at(pointer, (matrix_index, ceil_div(columns, LANES) * LANES * depth))
            for pointer, matrix_index, columns, depth in (
                (f.args[1], self._head_offset(spec.keys, outer, head), spec.m, spec.d),
                (f.args[2], self._head_offset(spec.values, outer, head), spec.e, spec.m),
            )
        )
        if spec.mask:
            at = spec.mask.at
            terms = (outer, at.outer), (head, at.inner), (self.first, at.row)
            self.mask = f.at(f.args[3], *terms, dtype=spec.mask.dtype)

    def _at(self, pointer: ir.Value, *terms: Term) -> ir.Value:
        return self.f.at(pointer, *terms, dtype=self.dtype)

    def _load(self, pointer: ir.Value) -> ir.Value:
        return self.f.load(pointer, self.dtype)

    def _constant(self, value: float, lanes: int = LANES) -> ir.Value:
        return self.f.constant(value, self.dtype, lanes)

    def _head_offset(self, shared: Shared, outer: Index, head: Index) -> Index:
        return self.f.iadd(self.f.imul(outer, shared.outer), self.f.idiv(head, shared.repeats))

    def emit(self) -> None:
        spec = self.spec
        self._multiply(self.q, spec.q.row, self.k, spec.m, spec.d, self._store_scores)
        self._softmax()
        self._multiply(self.scratch, spec.row, self.v, spec.e, spec.m, self._store_result)

    # --- products

    def _multiply(
        self, a: ir.Value, row: Size, b: ir.Value, columns: Size, depth: Size, store: _Store
    ) -> None:
        """All tiles of rows of `a` [count, depth] by the packed `b` [depth, columns]."""
        f, blocks = self.f, self.schedule.blocks
        total = ceil_div(columns, LANES)
        left = total % blocks
        sections: list[tuple[Size, Size, int]] = [(0, total // blocks, blocks)]
        if isinstance(left, int):
            sections.append((total - left, 1, left))
        else:  # a panel as wide as what is left: one of these
            sections += [(total - left, equal(left, width), width) for width in range(1, blocks)]
        for start, panels, width in sections:
            if panels == 0 or width == 0:
                continue
            with f.loop(panels) as panel:
                column = f.iadd(f.imul(panel.index, width * LANES), start * LANES)
                source = self._at(b, (column, depth))
                self._tiles(a, row, source, depth, width, column, store)

    def _tiles(
        self,
        a: ir.Value,
        row: Size,
        b: ir.Value,
        depth: Size,
        width: int,
        column: Index,
        store: _Store,
    ) -> None:
        f, rows = self.f, self.schedule.rows
        remainder = self.spec.n % rows
        if not isinstance(self.spec.n, int) or self.spec.n >= rows:
            with f.loop(self.tiles) as tile:
                at = f.imul(tile.index, rows)
                store(self._tile(self._at(a, (at, row)), row, b, depth, rows, width), at, column)
        if remainder != 0:
            with f.when(f.b.icmp_signed("<", f.i64(self.tiles), f.i64(self.schedule.tiles))):
                for first, count in f.remainder(remainder, rows):
                    at = f.iadd(f.imul(self.tiles, rows), first)
                    source = self._at(a, (at, row))
                    store(self._tile(source, row, b, depth, count, width), at, column)

    def _tile(
        self, a: ir.Value, row: Size, b: ir.Value, depth: Size, rows: int, width: int
    ) -> list[list[ir.Value]]:
        """By row, the vectors of sums."""
        f, step = self.f, width * LANES
        state = [b, *[self._constant(0.0)] * (rows * width)]
        left = depth % UNROLL
        last = (1, left) if isinstance(left, int) else (left, 1)
        for first, trips, size in ((0, depth // UNROLL, UNROLL), (depth - left, *last)):
            if trips == 0 or size == 0:
                continue
            with f.loop(trips, carry=state) as trip:
                source = f.anchor(self._at(a, (trip.index, size), first))
                pointer, *sums = trip.values
                for k in range(size):
                    factors = [
                        self._load(self._at(pointer, k * step + j * LANES)) for j in range(width)
                    ]
                    for r in range(rows):
                        value = f.broadcast(self._at(source, (r, row), k), self.dtype)
                        for j, factor in enumerate(factors):
                            sum_index = r * width + j
                            sums[sum_index] = f.fma(value, factor, sums[sum_index])
                trip.next([self._at(pointer, size * step), *sums])
            state = trip.results
        return [state[1 + r * width : 1 + (r + 1) * width] for r in range(rows)]

    def _store_scores(self, sums: list[list[ir.Value]], first: Index, column: Index) -> None:
        """Scaled and masked, into scratch memory."""
        f = self.f
        for r, vectors in enumerate(sums):
            row = f.iadd(first, r)
            for j, value in enumerate(vectors):
                at = f.iadd(column, j * LANES)
                value = self._masked(value, row, at)
                f.store(value, self._at(self.scratch, (row, self.spec.row), at))

    def _masked(self, score: ir.Value, row: Index, column: Index) -> ir.Value:
        f, spec = self.f, self.spec
        if spec.scale != 1:
            score = f.b.fmul(score, self.arith.const(spec.scale, self.dtype).value)
        if spec.divisor != 1:
            score = f.b.fdiv(score, self.arith.const(spec.divisor, self.dtype).value)
        hidden = self.arith.const(spec.hidden, self.dtype).value
        if spec.mask:
            at, kind = spec.mask.at, spec.mask.dtype
            pointer = f.at(self.mask, (row, at.row), (column, at.col), dtype=kind)
            value = f.load(pointer, kind) if at.col else f.broadcast(pointer, kind)
            if kind == "bool":
                is_unmasked = f.b.icmp_unsigned("!=", value, ir.Constant(value.type, None))
                score = f.b.select(is_unmasked, score, hidden)
            else:
                score = f.b.fadd(score, value)
        if spec.causal:
            key = f.b.trunc(f.i64(f.iadd(column, f.imul(f.iadd(self.first, row), -1))), I32)
            lanes = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
            ahead = f.b.add(f.splat(key), lanes)
            seen = f.b.icmp_signed("<=", ahead, ir.Constant(ahead.type, None))
            score = f.b.select(seen, score, hidden)
        return score

    def _store_result(self, sums: list[list[ir.Value]], first: Index, column: Index) -> None:
        f, spec = self.f, self.spec
        for r, vectors in enumerate(sums):
            for j, value in enumerate(vectors):
                at = f.iadd(column, j * LANES)
                pointer = self._at(self.y, (f.iadd(first, r), spec.y.row), at)
                if spec.e % LANES == 0:
                    f.store(value, pointer)
                else:
                    left = f.clamp(f.iadd(spec.e, f.imul(at, -1)), 0, LANES)
                    f.store_first(value, pointer, left)

    # --- softmax

    def _softmax(self) -> None:
        """Of every row of scores, in place. While exponentials are taken of one row, the one before
        is divided by its sum, which units that are idle meanwhile do."""
        f = self.f
        spare = self._at(self.scratch, self.schedule.rows * self.schedule.tiles * self.spec.row)
        with f.loop(self.count, carry=[spare, self._constant(1.0)]) as loop:
            row = self._at(self.scratch, (loop.index, self.spec.row))
            before, sum_before = loop.values
            total = self._exponentials(row, self._shift(row), before, sum_before)
            loop.next([row, self._divisor(total)])
        last, total = loop.results
        with f.loop(ceil_div(self.spec.m, LANES)) as vector:
            self._divide(self._at(last, (vector.index, LANES)), total)

    def _shift(self, row: ir.Value) -> ir.Value:
        """What is subtracted from every score of a row (`Softmax.shift`)."""
        top = self._top(row)
        if not self.spec.masked_to_zero:
            return top
        masked = self.f.b.fcmp_ordered("==", top, self._constant(-math.inf))
        return self.f.b.select(masked, self._constant(0.0), top)

    def _divisor(self, total: ir.Value) -> ir.Value:
        """What the exponentials of a row are divided by (`Softmax.divisor`)."""
        if not self.spec.masked_to_zero:
            return total
        masked = self.f.b.fcmp_ordered("==", total, self._constant(0.0))
        return self.f.b.select(masked, self._constant(1.0), total)

    def _top(self, row: ir.Value) -> ir.Value:
        """The largest score, in every lane; perhaps no NaN where there is one, for whose sake all
        is NaN anyway."""
        f, (full, remainder) = self.f, divmod(self.spec.m, LANES)

        def larger(a: ir.Value, b: ir.Value) -> ir.Value:
            return f.b.select(f.b.fcmp_ordered(">", a, b), a, b)

        lowest = self._constant(-math.inf)
        if not isinstance(full, int):
            return self._top_of_open(row, full, remainder, larger)
        accumulators = min(4, full)
        tops, done = [lowest] * max(1, accumulators), 0
        if accumulators:
            done = full // accumulators * accumulators
            with f.loop(done, step=accumulators, carry=tops) as loop:
                at = f.imul(loop.index, LANES)
                values = [self._load(self._at(row, at, j * LANES)) for j in range(accumulators)]
                loop.next([larger(*pair) for pair in zip(values, loop.values, strict=True)])
            tops = list(loop.results)
        for k in range(done, full):
            tops[0] = larger(self._load(self._at(row, k * LANES)), tops[0])
        if remainder:
            last = self._load(self._at(row, full * LANES))
            tops[0] = larger(f.b.select(f.first(remainder), last, lowest), tops[0])
        while len(tops) > 1:
            tops = [larger(*tops[:2]), *tops[2:]]
        return joined_lanes(self.f, tops[0], larger)

    def _top_of_open(
        self,
        row: ir.Value,
        full: Size,
        remainder: Size,
        larger: Callable[[ir.Value, ir.Value], ir.Value],
    ) -> ir.Value:
        """The same for so many whole vectors, and what is left, as they are read at run time."""
        f, lowest = self.f, self._constant(-math.inf)
        unrolled = full // 4 * 4
        with f.loop(unrolled, step=4, carry=[lowest] * 4) as loop:
            at = f.imul(loop.index, LANES)
            values = [self._load(self._at(row, at, j * LANES)) for j in range(4)]
            loop.next([larger(*pair) for pair in zip(values, loop.values, strict=True)])
        a, b, c, d = loop.results
        with f.loop(full, start=unrolled, carry=[larger(larger(a, b), larger(c, d))]) as loop:
            value = self._load(self._at(row, f.imul(loop.index, LANES)))
            loop.next([larger(value, loop.values[0])])
        last = self._load(self._at(row, full * LANES))  # a row has a spare vector
        top = larger(f.b.select(f.first(remainder), last, lowest), loop.results[0])
        return joined_lanes(f, top, larger)

    def _exponentials(
        self, row: ir.Value, top: ir.Value, before: ir.Value, sum_before: ir.Value
    ) -> ir.Value:
        """exp(score - top) in place of the scores; their sum, in every lane."""
        f = self.f

        def step(at: Index) -> ir.Value:
            self._divide(self._at(before, at), sum_before)
            address = self._at(row, at)
            e = self._exp(f.b.fsub(self._load(address), top))
            f.store(e, address)
            return e

        return sum_of_floats(f, self.dtype, self.spec.m, step)

    def _exp(self, x: ir.Value) -> ir.Value:
        """exp of what is not positive, or NaN: the short way where no result can be subnormal."""
        f, m = self.f, self.arith
        if self.dtype == F64:
            return m.exp(m.bind(x, F64)).value
        half = LANES // 2
        halves_of_x = (f.shuffle(x, list(range(i, i + half))) for i in (0, half))
        limit = self._constant(-87.0, lanes=half)
        low = f.b.or_(*(f.b.fcmp_unordered("<", x_half, limit) for x_half in halves_of_x))
        any_of = f.module.intrinsic("llvm.vector.reduce.or.v8i1", I1, [low.type])
        short, long, after = (f.block(name) for name in ("normal", "subnormal", "exp"))
        f.b.cbranch(f.b.call(any_of, [low]), long, short)
        ends = []
        for block, exponential in ((short, functions.exp_normal), (long, functions.exp)):
            f.b.position_at_end(block)
            e = exponential(m, m.bind(x, F32)).value
            ends.append((e, f.b.block))
            f.b.branch(after)
        f.b.position_at_end(after)
        result = f.b.phi(x.type)
        for e, block in ends:
            result.add_incoming(e, block)
        return result

    def _divide(self, at: ir.Value, total: ir.Value) -> None:
        """Exponentials by their sum, in place."""
        f = self.f
        share = f.b.fdiv(self._load(at), total)
        if self.spec.nan_to_zero:
            unseen = f.b.fcmp_unordered("!=", total, total)
            share = f.b.select(unseen, self._constant(0.0), share)
        f.store(share, at)
