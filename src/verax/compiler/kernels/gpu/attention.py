"""Attention by blocks of threads: some queries of a head against all its keys.

The scores of a block's queries stay in shared memory. They are computed in small tiles, a chain of
multiply-adds over the features each; sixteen threads take the Softmax of a row, each those elements
that a lane of a vector has on the CPU (`numerics.reductions`); the shares are multiplied with the
values in small tiles again. So the bits are those of `products.attention`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.gpu.tiles import MULTIPROCESSORS, shared_limit
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import F32, I8, I32, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import BlockBuilder, block_kernel
from verax.compiler.kernels.products import attention as elsewhere
from verax.compiler.kernels.products.attention_softmax import masked_scores
from verax.compiler.kernels.products.attention_spec import (
    AttentionSchedule,
    AttentionSpec,
    Shared,
)
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS, Space, Stage, emits
from verax.compiler.kernels.sizes import Size, ceil_div, minimum
from verax.compiler.kernels.target import LANES, Target
from verax.numerics.reductions import BLOCK, SUMS, add_block, sum_of_blocks

CHUNK = 4
VECTOR = ir.VectorType(F32, CHUNK)
SCORE_ROWS, VALUE_ROWS = 4, 2
"""Queries of a thread's tile, at most, by a chunk of keys or of the values' columns."""


@dataclasses.dataclass(frozen=True)
class HeadSchedule(AttentionSchedule):
    """`rows` queries of a head are a block's. Keys and values are packed in panels of 16.

    A spec of open sizes has the schedule of the sizes there are now. Where the number of keys is
    open, which decides what is shared, it has `BY_ITEM` all the same.
    """

    rows: int = 8
    blocks: int = 1
    tiles: int = 1

    def __str__(self) -> str:
        return f"{self.rows} queries by {self.threads} threads"

    @property
    def threads(self) -> int:
        """Sixteen for each query."""
        return self.rows * LANES

    def scratch_elements(self, spec: AttentionSpec) -> Size:
        """None where scores are in shared memory."""
        return 0 if isinstance(spec.m, int) else BY_ITEM.scratch_elements(spec)

    def scratch_bytes(self, spec: AttentionSpec) -> Size:
        return LANES if isinstance(spec.m, int) else BY_ITEM.scratch_bytes(spec)


MOST_ITEMS = 1024
"""Of the CPU's kernel here: each has scratch memory of its own."""


@dataclasses.dataclass(frozen=True)
class ItemSchedule(AttentionSchedule):
    """The CPU's kernel, a thread for each item, of which there are more than a processor has
    threads."""

    def items(self, spec: AttentionSpec) -> Size:
        return minimum(MOST_ITEMS, spec.outer * spec.inner * self.groups(spec))


ROWS = (16, 8, 4)
BY_ITEM = ItemSchedule(rows=4, blocks=1, tiles=1)


def pitch(keys: int) -> int:
    """Elements from a row of scores to the next: an odd multiple of 16, so that two rows of a warp
    do not meet in a bank."""
    return (-(-keys // LANES) | 1) * LANES


def shared_bytes(spec: AttentionSpec, rows: int) -> int:
    """Of the queries, the scores, and what lanes exchange."""
    assert isinstance(spec.m, int)
    return 4 * rows * (_features(spec) + pitch(spec.m) + LANES)


def _features(spec: AttentionSpec) -> int:
    return -(-spec.d // CHUNK) * CHUNK


def takes(spec: AttentionSpec, target: Target) -> bool:
    """Whether `emit_heads` makes the kernel: float32, packed keys of known number, all of which
    each query reads."""
    return (
        spec.dtype == "float32"
        and spec.rows_of is None
        and isinstance(spec.m, int)
        and not (spec.is_bounded and not spec.skips_later)
        and shared_bytes(spec, ROWS[-1]) <= shared_limit(target)
    )


def head_schedule(spec: AttentionSpec, target: Target) -> HeadSchedule:
    """By rule: as many queries as leave a block for each multiprocessor, and fit."""
    heads, queries = spec.outer * spec.inner, spec.n
    for rows in ROWS[:-1]:
        blocks = heads * ceil_div(queries, rows)
        enough = not isinstance(blocks, int) or blocks >= MULTIPROCESSORS
        if enough and shared_bytes(spec, rows) <= shared_limit(target) // 2:
            return HeadSchedule(rows)
    return HeadSchedule(ROWS[-1])


_CPU = EMITTERS[AttentionSpec, ANY_TARGET]
KNOWN = elsewhere.KNOWN


def _schedules(spec: AttentionSpec, target: Target) -> Sequence[AttentionSchedule]:
    return (head_schedule(spec, target),) if takes(spec, target) else (BY_ITEM,)


def _stages(spec: AttentionSpec, target: Target) -> tuple[Stage, ...]:
    return (lambda best: map(HeadSchedule, ROWS),) if takes(spec, target) else ()


def _admits(spec: AttentionSpec, target: Target, schedule: object) -> bool:
    return (
        takes(spec, target)
        and isinstance(schedule, HeadSchedule)
        and schedule.rows in ROWS
        and schedule == HeadSchedule(schedule.rows)
        and shared_bytes(spec, schedule.rows) <= shared_limit(target)
    )


@emits(
    AttentionSpec,
    dtypes=KNOWN,
    schedules=_schedules,
    target="gpu",
    space=Space(HeadSchedule, _stages, _admits),
    settle=_CPU.settle,
)
def emit_attention(
    module: ModuleBuilder, spec: AttentionSpec, schedule: AttentionSchedule
) -> Kernel:
    """By heads where that can be, else as on the CPU."""
    if not isinstance(schedule, HeadSchedule):
        return _CPU.emit(module, spec, schedule)
    if not isinstance(spec.m, int):
        return _CPU.emit(module, spec, BY_ITEM)
    return emit_heads(module, spec, schedule)


def emit_heads(module: ModuleBuilder, spec: AttentionSpec, schedule: HeadSchedule) -> Kernel:
    """Items: `schedule.rows` queries of a head."""
    n_args = 5 + (spec.mask is not None) + (spec.counts is not None or spec.skips_later)
    memory = shared_bytes(spec, schedule.rows)
    key = ("attention", spec, schedule)
    f = block_kernel(module, key, n_args, schedule.threads, memory, hint="attention")
    if f.kernel is not None:
        return f.kernel
    _Queries(f, spec, schedule).emit()
    heads = spec.outer * spec.inner
    flops = heads * spec.n * spec.m * (2 * spec.d + 2 * spec.e + 24)
    touched = heads * (spec.n * (spec.d + spec.e) + spec.m * (spec.d + spec.e))
    return f.finish(heads * ceil_div(spec.n, schedule.rows), flops, 4 * touched)


class _Queries:
    """The queries of a block."""

    def __init__(self, f: BlockBuilder, spec: AttentionSpec, schedule: HeadSchedule) -> None:
        assert isinstance(spec.m, int)
        self.f, self.n, self.spec, self.rows = f, Index32(f), spec, schedule.rows
        self.threads, self.m = schedule.threads, spec.m
        self.features, self.pitch = _features(spec), pitch(spec.m)
        self.scores_at = 4 * self.rows * self.features
        self.exchange_at = self.scores_at + 4 * self.rows * self.pitch
        self.arith, self.has_exchanged = LlvmArith(f, 0), False
        outer, head, group = f.split(f.begin, spec.inner, ceil_div(spec.n, schedule.rows))
        self.first = f.imul(group, schedule.rows)
        self.outer, self.head = outer, head
        self.total = self.n.of(spec.n)
        depths = (spec.keys, spec.m, spec.d), (spec.values, spec.e, spec.m)
        self.keys, self.values = (
            f.at(
                f.args[1 + i],
                (self._matrix(shared), ceil_div(columns, LANES) * LANES * depth),
            )
            for i, (shared, columns, depth) in enumerate(depths)
        )

    def _matrix(self, shared: Shared) -> Index:
        f = self.f
        return f.iadd(f.imul(self.outer, shared.outer), f.idiv(self.head, shared.repeats))

    def emit(self) -> None:
        f = self.f
        self._fetch_queries()
        f.barrier()
        self._each_tile(self.m, SCORE_ROWS, self._scores)
        f.barrier()
        self._softmax()
        f.barrier()
        self._each_tile(self.spec.e, VALUE_ROWS, self._results)

    # --- memory

    def _shared(self, byte: Int, *more: Int) -> ir.Value:
        for offset in more:
            byte = self.n.add(byte, offset)
        return self.f.b.gep(self.f.shared, [self.n.value(byte)], I8)

    def _score_at(self, row: Int, key: Int) -> ir.Value:
        n = self.n
        return self._shared(n.mul(n.add(n.mul(row, self.pitch), key), 4), self.scores_at)

    def _query(self, row: Int) -> Index:
        """The number of a query in its head; the last one for those behind."""
        n = self.n
        return n.wide(n.minimum(n.add(n.truncated(self.first), row), n.sub(self.total, 1)))

    def _fetch_queries(self) -> None:
        """Queries to shared memory, the last one for those that there are not."""
        f, n, spec = self.f, self.n, self.spec
        count, at = self.rows * spec.d, spec.q
        for start in range(0, count, self.threads):
            index = n.add(f.thread, start)
            with f.when(n.less(index, count)):
                row, feature = n.divmod(index, spec.d)
                terms = (self.outer, at.outer), (self.head, at.inner), (self._query(row), at.row)
                value = f.load(f.at(f.args[0], *terms, n.wide(feature)), lanes=0)
                offset = n.add(n.mul(row, self.features), feature)
                f.store(value, self._shared(n.mul(offset, 4)))

    # --- products

    def _each_tile(
        self, columns: int, max_rows: int, emit: Callable[[Int, Int, Int, int], None]
    ) -> None:
        """emit(row, panel, chunk of the panel, rows) for tiles of up to `most` rows by a chunk of
        columns, which are dealt out among the threads."""
        f, n = self.f, self.n
        rows = min(max_rows, self.rows)
        chunks = -(-columns // LANES) * (LANES // CHUNK)
        tiles = chunks * (self.rows // rows)
        with f.loop(-(-tiles // self.threads)) as turn:
            tile = n.add(n.mul(n.truncated(turn.index), self.threads), f.thread)
            with f.when(n.less(tile, tiles)):
                group, column = n.divmod(tile, chunks)
                panel, chunk = n.divmod(column, LANES // CHUNK)
                emit(n.mul(group, rows), panel, chunk, rows)

    def _product(
        self, left: ir.Value, step: int, panel: ir.Value, depth: int, rows: int
    ) -> list[ir.Value]:
        """`rows` sums over `depth` terms: rows `step` bytes apart in shared memory, by a chunk of a
        panel."""
        f = self.f
        sums = [f.constant(0.0, lanes=CHUNK)] * rows
        full, left_over = divmod(depth, CHUNK)
        for start, trips, terms in ((0, full, CHUNK), (full * CHUNK, 1, left_over)):
            if not trips or not terms:
                continue
            with f.loop(trips, carry=sums) as trip:
                at = f.iadd(f.imul(trip.index, CHUNK), start)
                byte = self.n.value(self.n.truncated(f.imul(at, 4)))
                here, sums = f.b.gep(left, [byte], I8), list(trip.values)
                factors = [self._load(f.at(panel, (at, LANES), k * LANES)) for k in range(terms)]
                row_pointers = [
                    f.b.gep(here, [ir.Constant(I32, r * step)], I8) for r in range(rows)
                ]
                values = [self._load(index) for index in row_pointers]
                for k, factor in enumerate(factors):
                    for r, value in enumerate(values):
                        sums[r] = f.fma(f.shuffle(value, [k] * CHUNK), factor, sums[r])
                trip.next(sums)
            sums = trip.results
        return list(sums)

    def _load(self, pointer: ir.Value) -> ir.Value:
        """A chunk: packed factors and rows in shared memory lie at multiples of 16 bytes."""
        return self.f.b.load(pointer, align=16, typ=VECTOR)

    def _scores(self, row: Int, panel: Int, chunk: Int, rows: int) -> None:
        f, n, spec = self.f, self.n, self.spec
        queries = self._shared(n.mul(row, 4 * self.features))
        keys = f.at(self.keys, (n.wide(panel), LANES * spec.d), (n.wide(chunk), CHUNK))
        sums = self._product(queries, 4 * self.features, keys, spec.d, rows)
        key = n.add(n.mul(panel, LANES), n.mul(chunk, CHUNK))
        for r, total in enumerate(sums):
            score = self._masked(total, n.add(row, r), key)
            f.b.store(score, self._score_at(n.add(row, r), key), align=16)

    def _masked(self, score: ir.Value, row: Int, key: Int) -> ir.Value:
        f, n, spec = self.f, self.n, self.spec
        mask = ahead = None
        if spec.mask:
            at, kind = spec.mask.at, spec.mask.dtype
            terms = (self.outer, at.outer), (self.head, at.inner), (self._query(row), at.row)
            pointer = f.at(f.args[3], *terms, (n.wide(key), at.col), dtype=kind)
            is_row = at.col != 0
            mask = f.load(pointer, kind, CHUNK) if is_row else f.broadcast(pointer, kind, CHUNK)
        if spec.causal:
            ahead = n.value(n.sub(key, n.truncated(self._query(row))))
        return masked_scores(f, spec, score, mask, ahead)

    def _results(self, row: Int, panel: Int, chunk: Int, rows: int) -> None:
        f, n, spec, at = self.f, self.n, self.spec, self.spec.y
        shares = self._score_at(row, 0)
        values = f.at(self.values, (n.wide(panel), LANES * self.m), (n.wide(chunk), CHUNK))
        sums = self._product(shares, 4 * self.pitch, values, self.m, rows)
        column = n.wide(n.add(n.mul(panel, LANES), n.mul(chunk, CHUNK)))
        for r, total in enumerate(sums):
            query = n.add(n.truncated(self.first), n.add(row, r))
            with f.when(n.less(query, self.total)):
                terms = (self.outer, at.outer), (self.head, at.inner), (n.wide(query), at.row)
                pointer = f.at(f.args[-1], *terms, column)
                if spec.e % CHUNK == 0 and spec.e % LANES == 0:
                    f.store(total, pointer)
                else:
                    left = f.clamp(f.iadd(spec.e, f.imul(column, -1)), 0, CHUNK)
                    f.store_first(total, pointer, left)

    # --- Softmax

    def _softmax(self) -> None:
        """Of every row, in place: a thread has every sixteenth score."""
        f, n = self.f, self.n
        row, lane = n.divmod(f.thread, LANES)
        top = self._shift(self._across_lanes(row, lane, self._top(row, lane), self._larger))
        total = self._sum(row, lane, top)
        if self.spec.masked_to_zero:
            nothing = f.b.fcmp_ordered("==", total, self._constant(0.0))
            total = f.b.select(nothing, self._constant(1.0), total)
        self._divide(row, lane, total)

    def _constant(self, value: float) -> ir.Value:
        return self.f.constant(value, lanes=0)

    def _larger(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.f.b.select(self.f.b.fcmp_ordered(">", a, b), a, b)

    def _top(self, row: Int, lane: Int) -> ir.Value:
        """The largest of a lane's scores; perhaps no NaN where there is one."""
        f, n, lowest = self.f, self.n, self._constant(-math.inf)
        full, remainder = divmod(self.m, LANES)
        top = lowest
        if full:
            with f.loop(full, carry=[top]) as trip:
                key = n.add(n.mul(n.truncated(trip.index), LANES), lane)
                score = f.load(self._score_at(row, key), lanes=0)
                trip.next([self._larger(score, trip.values[0])])
            (top,) = trip.results
        if remainder:
            score = f.load(self._score_at(row, n.add(full * LANES, lane)), lanes=0)
            score = f.b.select(n.less(lane, remainder), score, lowest)
            top = self._larger(score, top)
        return top

    def _shift(self, top: ir.Value) -> ir.Value:
        if not self.spec.masked_to_zero:
            return top
        masked = self.f.b.fcmp_ordered("==", top, self._constant(-math.inf))
        return self.f.b.select(masked, self._constant(0.0), top)

    def _across_lanes(
        self,
        row: Int,
        lane: Int,
        value: ir.Value,
        join: Callable[[ir.Value, ir.Value], ir.Value],
    ) -> ir.Value:
        """The sixteen lanes of a row joined in the order of `numerics.reductions`, in each."""
        f, n = self.f, self.n
        begin = n.add(n.mul(row, 4 * LANES), self.exchange_at)
        if self.has_exchanged:
            f.barrier()  # what was exchanged before has been read
        self.has_exchanged = True
        f.store(value, self._shared(begin, n.mul(lane, 4)))
        f.barrier()
        chunks = [self._load(self._shared(begin, 16 * c)) for c in range(LANES // CHUNK)]
        numbers = [ir.Constant(I32, e) for e in range(CHUNK)]
        lanes = [f.b.extract_element(chunk, e) for chunk in chunks for e in numbers]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [join(*pair) for pair in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0]

    def _sum(self, row: Int, lane: Int, top: ir.Value) -> ir.Value:
        """exp(score - top) in place of the scores; their sum."""
        f, m, zero = self.f, self.arith, self._constant(0.0)
        sums = []
        for first in range(0, self.m, BLOCK):
            size = min(BLOCK, self.m - first)
            accumulators = self._block(row, lane, top, first, size)
            sums.append(self._across_lanes(row, lane, f.b.fadd(*accumulators), f.b.fadd))
        if len(sums) == 1:
            return sums[0]
        total = lost = m.bind(zero, "float32")
        for value in sums:
            total, lost = add_block(m, total, lost, m.bind(value, "float32"))
        return m.unbind(sum_of_blocks(m, total, lost))

    def _block(self, row: Int, lane: Int, top: ir.Value, first: int, size: int) -> list[ir.Value]:
        """What a lane comes to in both vectors of sums of a block."""
        f, n = self.f, self.n
        accumulators = [self._constant(0.0)] * 2
        full, remainder = divmod(size, SUMS)
        if full:
            with f.loop(full, carry=accumulators) as trip:
                begin = n.add(n.mul(n.truncated(trip.index), SUMS), first)
                new = []
                for vector, value in enumerate(trip.values):
                    key = n.add(n.add(begin, vector * LANES), lane)
                    new.append(f.b.fadd(value, self._exponential(row, key, top)))
                trip.next(new)
            accumulators = list(trip.results)
        for vector in range(-(-remainder // LANES)):
            start = full * SUMS + vector * LANES
            count = min(LANES, size - start)
            e = self._exponential(row, n.add(first + start, lane), top)
            if count < LANES:
                e = f.b.select(n.less(lane, count), e, self._constant(0.0))
            accumulators[vector] = f.b.fadd(accumulators[vector], e)
        return accumulators

    def _exponential(self, row: Int, key: Int, top: ir.Value) -> ir.Value:
        """exp(score - top), in place of the score."""
        f, m = self.f, self.arith
        address = self._score_at(row, key)
        shifted = m.bind(f.b.fsub(f.load(address, lanes=0), top), "float32")
        value = m.unbind(m.exp(shifted))
        f.store(value, address)
        return value

    def _divide(self, row: Int, lane: Int, total: ir.Value) -> None:
        """A lane's exponentials by the sum, in place."""
        f, n = self.f, self.n
        with f.loop(-(-self.m // LANES)) as trip:
            key = n.add(n.mul(n.truncated(trip.index), LANES), lane)
            address = self._score_at(row, key)
            share = f.b.fdiv(f.load(address, lanes=0), total)
            if self.spec.nan_to_zero:
                unseen = f.b.fcmp_unordered("!=", total, total)
                share = f.b.select(unseen, self._constant(0.0), share)
            f.store(share, address)
