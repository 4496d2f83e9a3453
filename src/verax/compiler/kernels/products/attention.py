"""Attention without its scores in memory: a few queries at a time, against all keys.

A work unit is a group of neighboring queries of one head. Its scores, a row for each query, are
computed tile by tile into scratch memory that stays in cache, where the mask and Softmax are
applied; the rows are then multiplied with the values. Keys and values are packed in panels of
columns ahead (`gemm.PackSpec`, with `panels`), once for all groups of queries.

Bits: a score is one FMA per feature from +0, ascending, times the scale, by the divisor, plus the
mask; Softmax is the maximum, exp of the differences, their sum in the order of
`numerics.reductions`, a division; a result is one FMA per key from +0, ascending. Neither the tiles
nor the groups decide any of it.

Few queries (a decoder's next token) read keys and values where they lie (`AttentionSpec.rows_of`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    I32,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.products.attention_schedules import (
    admits,
    attention_schedule,
    stages,
)
from verax.compiler.kernels.products.attention_softmax import F32, F64, ScoreRows, masked_scores
from verax.compiler.kernels.products.attention_spec import AttentionSchedule, AttentionSpec, Shared
from verax.compiler.kernels.products.gemm import SQUARE, Matrix, transposed_rows
from verax.compiler.kernels.registry import Space, emits
from verax.compiler.kernels.sizes import Size, ceil_div, equal, numbers
from verax.compiler.kernels.target import LANES
from verax.ir.dim import Dim

_Store = Callable[[list[list[ir.Value]], Index, Index], None]
KNOWN = (F32, F64, "bool")
UNROLL = 4
"""Steps of a sum that are written out."""


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
    space=Space(AttentionSchedule, stages, admits),
    settle=_with_known_features,
)
def emit_attention(
    module: ModuleBuilder, spec: AttentionSpec, schedule: AttentionSchedule
) -> Kernel:
    """Items: some neighboring groups of queries."""
    n_args = 5 + (spec.mask is not None) + (spec.counts is not None or spec.skips_later)
    f = module.kernel(("attention", spec, schedule), n_args)
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


def _by_row(sums: list[ir.Value], rows: int) -> list[list[ir.Value]]:
    width = len(sums) // rows
    return [sums[r * width : (r + 1) * width] for r in range(rows)]


class _Group(ScoreRows):
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
        super().__init__(f, spec, schedule, scratch)
        self.first = f.imul(group, schedule.rows * schedule.tiles)
        left = f.iadd(spec.n, f.imul(self.first, -1))
        self.count = f.clamp(left, 0, schedule.rows * schedule.tiles)
        self.tiles = f.idiv(self.count, schedule.rows)
        self.q, self.y = (
            self._at(pointer, (outer, at.outer), (head, at.inner), (self.first, at.row))
            for pointer, at in ((f.args[0], spec.q), (f.args[-1], spec.y))
        )
        if spec.rows_of is None:
            self.k, self.v = (
                self._at(pointer, (matrix_index, ceil_div(columns, LANES) * LANES * depth))
                for pointer, matrix_index, columns, depth in (
                    (f.args[1], self._head_offset(spec.keys, outer, head), spec.m, spec.d),
                    (f.args[2], self._head_offset(spec.values, outer, head), spec.e, spec.m),
                )
            )
        else:
            self.k, self.v = (
                self._at(pointer, (outer, at.outer), (f.idiv(head, shared.repeats), at.inner))
                for pointer, at, shared in zip(
                    f.args[1:3], spec.rows_of, (spec.keys, spec.values), strict=True
                )
            )
        if spec.mask:
            at = spec.mask.at
            terms = (outer, at.outer), (head, at.inner), (self.first, at.row)
            self.mask = f.at(f.args[3], *terms, dtype=spec.mask.dtype)
        if spec.counts:
            at = spec.counts
            terms = (outer, at.outer), (head, at.inner), (self.first, at.row)
            self.counts = f.at(f.args[-3], *terms, dtype="int64")
        if spec.skips_later:
            flag = self._head_offset(spec.values, outer, head)
            self.is_unusual = f.load(f.at(f.args[-3], flag, dtype="int64"), "int64", lanes=0)
        self.keys = self._keys_of(0, self.count) if spec.is_bounded else spec.m

    def _head_offset(self, shared: Shared, outer: Index, head: Index) -> Index:
        return self.f.iadd(self.f.imul(outer, shared.outer), self.f.idiv(head, shared.repeats))

    # --- how many keys are read

    def _keys_of(self, first: Index, rows: Index) -> Index:
        """The largest number of keys that one of `rows` queries from `first` on reads."""
        f, spec = self.f, self.spec
        count: Index = spec.m
        if spec.counts is not None:
            counts = 1 if equal(spec.counts.row, 0) == 1 else rows
            with f.loop(counts, carry=[f.i64(0)]) as row:
                own = self._count_at(f.iadd(first, row.index))
                row.next([self._select(">", own, row.values[0])])
            (count,) = row.results
        if spec.causal:
            count = self._select("<", self._causal_end(f.iadd(first, rows)), count)
        return count

    def _keys_of_row(self, row: Index) -> ir.Value:
        """How many keys a query reads."""
        count: Index = self.spec.m if self.spec.counts is None else self._count_at(row)
        if self.spec.causal:
            count = self._select("<", self._causal_end(self.f.iadd(row, 1)), count)
        return self.f.i64(count)

    def _count_at(self, row: Index) -> ir.Value:
        assert self.spec.counts is not None
        pointer = self.f.at(self.counts, (row, self.spec.counts.row), dtype="int64")
        return self.f.load(pointer, "int64", lanes=0)

    def _causal_end(self, row: Index) -> Index:
        """What the queries of this group before `row` see of keys, in whole sixteens."""
        f = self.f
        end = f.idiv(f.iadd(f.iadd(self.first, row), LANES - 1), LANES)
        return f.clamp(f.imul(end, LANES), 0, self.spec.m)

    def _select(self, relation: str, a: Index, b: Index) -> ir.Value:
        """a if it stands so to b, else b."""
        f = self.f
        is_a = f.b.icmp_signed(relation, f.i64(a), f.i64(b))
        return f.b.select(is_a, f.i64(a), f.i64(b))

    def emit(self) -> None:
        spec = self.spec
        if spec.rows_of is None:
            keys = spec.m, self.keys
            self._panels(self.q, spec.q.row, self.k, keys, spec.d, self._store_scores)
        else:
            self._score_rows(spec.rows_of[0])
        self.emit_softmax()
        values = spec.e, spec.e
        self._panels(self.scratch, spec.row, self.v, values, None, self._store_result)

    # --- products

    def _panels(
        self,
        a: ir.Value,
        row: Size,
        b: ir.Value,
        columns: tuple[Size, Index],
        depth: Size | None,
        store: _Store,
    ) -> None:
        """All tiles of rows of `a` [count, depth] by `b` [depth, columns], packed unless it is
        values that are not. columns: how many there are, and the first of them that are made.
        depth: None where it is the keys that a tile of queries reads."""
        f, blocks = self.f, self.schedule.blocks
        total = ceil_div(columns[0], LANES)
        left = total % blocks
        sections: list[tuple[Size, Size, int]] = [(0, total // blocks, blocks)]
        if isinstance(left, int):
            sections.append((total - left, 1, left))
        else:  # a panel as wide as what is left: one of these
            sections += [(total - left, equal(left, width), width) for width in range(1, blocks)]
        is_packed = depth is not None or self.spec.rows_of is None
        for start, panels, width in sections:
            if panels == 0 or width == 0:
                continue
            with f.loop(self._panels_within(columns[1], start, panels, width)) as panel:
                column = f.iadd(f.imul(panel.index, width * LANES), start * LANES)
                height = self.spec.m if depth is None else depth
                source = self._at(b, (column, height) if is_packed else column)
                self._tiles(a, row, source, depth, width, column, store)

    def _panels_within(self, columns: Index, start: Size, panels: Size, width: int) -> Index:
        """How many of `panels` panels of `width` * 16 columns, from column `start` * 16 on, hold
        any of the first `columns`."""
        f, size = self.f, width * LANES
        if isinstance(columns, int | Dim):
            return panels
        within = f.clamp(f.iadd(columns, -start * LANES), 0, panels * size)
        return f.idiv(f.iadd(within, size - 1), size)

    def _tiles(
        self,
        a: ir.Value,
        row: Size,
        b: ir.Value,
        depth: Size | None,
        width: int,
        column: Index,
        store: _Store,
    ) -> None:
        for at, rows in self._tiles_of_queries():
            source = self._at(a, (at, row))
            if depth is None:
                store(self._values_tile(source, row, b, at, rows, width), at, column)
            else:
                start = [self._constant(0.0)] * (rows * width)
                sums = self._tile(source, row, b, 0, depth, rows, width * LANES, start)
                store(_by_row(sums, rows), at, column)

    def _tiles_of_queries(self) -> Iterator[tuple[Index, int]]:
        """(first query, number of queries) of every tile; what is emitted in between runs for all
        of that size."""
        f, rows = self.f, self.schedule.rows
        remainder = self.spec.n % rows
        if not isinstance(self.spec.n, int) or self.spec.n >= rows:
            with f.loop(self.tiles) as tile:
                yield f.imul(tile.index, rows), rows
        if remainder != 0:
            with f.when(f.b.icmp_signed("<", f.i64(self.tiles), f.i64(self.schedule.tiles))):
                for first, count in f.remainder(remainder, rows):
                    yield f.iadd(f.imul(self.tiles, rows), first), count

    def _values_tile(
        self, a: ir.Value, row: Size, b: ir.Value, at: Index, rows: int, width: int
    ) -> list[list[ir.Value]]:
        """Shares at `a` of the queries from `at` on by `width` vectors of the values' columns."""
        f, spec = self.f, self.spec
        step = width * LANES if spec.rows_of is None else spec.rows_of[1].row
        sums = [self._constant(0.0)] * (rows * width)
        if not spec.is_bounded:
            return _by_row(self._tile(a, row, b, 0, spec.m, rows, step, sums), rows)
        if spec.skips_later:
            end = self._causal_end(f.iadd(at, rows))
            sums = self._tile(a, row, b, 0, end, rows, step, sums)
            return _by_row(self._with_later(a, row, b, end, rows, step, sums), rows)
        ends = [self._keys_of_row(f.iadd(at, r)) for r in range(rows)]
        first = last = ends[0]
        for end in ends[1:]:
            first, last = self._select("<", end, first), self._select(">", end, last)
        sums = self._tile(a, row, b, 0, first, rows, step, sums)
        # Keys that some of the queries read and others do not:
        sums = self._tile(a, row, b, first, last, rows, step, sums, ends)
        return _by_row(sums, rows)

    def _with_later(
        self,
        a: ir.Value,
        row: Size,
        b: ir.Value,
        end: Index,
        rows: int,
        step: Size,
        sums: list[ir.Value],
    ) -> list[ir.Value]:
        """`sums` and zero times the values from key `end` on, which changes -0 and makes NaN of
        what is not finite."""
        f = self.f
        negative_zero = self._constant(-0.0)
        bits = ir.VectorType(ir.IntType(8 * ELEMENT_SIZES[self.dtype]), LANES)
        zero_bits = f.b.bitcast(negative_zero, bits)
        equal_bits = [
            f.b.icmp_unsigned("==", f.b.bitcast(total, bits), zero_bits) for total in sums
        ]
        any_lane = f.b.bitcast(functools.reduce(f.b.or_, equal_bits), ir.IntType(LANES))
        changes = f.b.icmp_unsigned("!=", any_lane, ir.Constant(any_lane.type, 0))
        unusual = f.b.icmp_signed("!=", self.is_unusual, f.i64(0))
        stop = f.b.select(f.b.or_(changes, unusual), f.i64(self.spec.m), f.i64(end))
        zero, width = self._constant(0.0), len(sums) // rows
        with f.loop(stop, start=end, carry=sums) as key:
            source = self._at(b, (key.index, step))
            factors = [self._load(self._at(source, j * LANES)) for j in range(width)]
            operands = zip(factors * rows, key.values, strict=True)
            key.next([f.fma(zero, factor, total) for factor, total in operands])
        return list(key.results)

    def _tile(
        self,
        a: ir.Value,
        row: Size,
        b: ir.Value,
        first: Index,
        last: Index,
        rows: int,
        step: Size,
        sums: list[ir.Value],
        ends: list[ir.Value] | None = None,
    ) -> list[ir.Value]:
        """`sums`, for every row its vectors, and the products of places `first` to `last` of `a`
        and `b`; of row r only those before `ends[r]`. step: from one place of b to the next."""
        f, width = self.f, len(sums) // rows
        count = f.iadd(last, f.imul(first, -1))
        unrolled = f.idiv(count, UNROLL)
        done = f.imul(unrolled, UNROLL)
        left = f.iadd(count, f.imul(done, -1))
        final: tuple[Index, int] = (1, left) if isinstance(left, int) else (left, 1)
        state = [self._at(b, (first, step)), *sums]
        for start, trips, size in ((0, unrolled, UNROLL), (done, *final)):
            if (isinstance(trips, int) and trips == 0) or size == 0:
                continue
            with f.loop(trips, carry=state) as trip:
                offset = f.iadd(f.iadd(first, start), f.imul(trip.index, size))
                source = f.anchor(self._at(a, offset))
                pointer, *sums = trip.values
                for k in range(size):
                    factors = [
                        self._load(self._at(pointer, k * step, j * LANES)) for j in range(width)
                    ]
                    for r in range(rows):
                        value = f.broadcast(self._at(source, (r, row), k), self.dtype)
                        read = None
                        if ends is not None:
                            key = f.i64(f.iadd(offset, k))
                            read = f.b.icmp_signed("<", key, ends[r])
                        for j, factor in enumerate(factors):
                            before = sums[r * width + j]
                            after = f.fma(value, factor, before)
                            after = after if read is None else f.b.select(read, after, before)
                            sums[r * width + j] = after
                trip.next([self._at(pointer, size * step), *sums])
            state = trip.results
        return list(state[1:])

    def _score_rows(self, at: Matrix) -> None:
        """Scores of keys whose features are neighbors: sixteen keys are transposed in registers."""
        f = self.f
        full = f.idiv(self.keys, LANES)
        left = f.iadd(self.keys, f.imul(full, -LANES))
        if not (isinstance(full, int) and full == 0):
            with f.loop(full) as sixteen:
                column = f.imul(sixteen.index, LANES)
                keys = f.anchor(self._at(self.k, (column, at.row)))
                self._score_sixteen([self._at(keys, i * at.row) for i in range(LANES)], column)
        if not (isinstance(left, int) and left == 0):
            with f.when(f.b.icmp_signed(">", f.i64(left), f.i64(0))):
                column = f.imul(full, LANES)
                inside = [f.clamp(f.iadd(column, i), 0, self.spec.m - 1) for i in range(LANES)]
                self._score_sixteen([self._at(self.k, (i, at.row)) for i in inside], column)

    def _score_sixteen(self, keys: list[ir.Value], column: Index) -> None:
        """Scores of the keys at these pointers, for every query."""
        f, spec = self.f, self.spec
        for at, rows in self._tiles_of_queries():
            queries = self._at(self.q, (at, spec.q.row))
            with f.loop(spec.d // SQUARE, carry=[self._constant(0.0)] * rows) as square:
                feature = f.imul(square.index, SQUARE)
                source = f.anchor(self._at(queries, feature))
                sums = list(square.values)
                vectors = transposed_rows(f, [self._at(key, feature) for key in keys])
                for i, vector in enumerate(vectors):
                    for r in range(rows):
                        value = f.broadcast(self._at(source, (r, spec.q.row), i), self.dtype)
                        sums[r] = f.fma(value, vector, sums[r])
                square.next(sums)
            self._store_scores([[total] for total in square.results], at, column)

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
        mask = ahead = None
        if spec.mask:
            at, kind = spec.mask.at, spec.mask.dtype
            pointer = f.at(self.mask, (row, at.row), (column, at.col), dtype=kind)
            mask = f.load(pointer, kind) if at.col else f.broadcast(pointer, kind)
        if spec.causal:
            ahead = f.b.trunc(f.i64(f.iadd(column, f.imul(f.iadd(self.first, row), -1))), I32)
        return masked_scores(f, spec, score, mask, ahead)

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
