"""Queries of a block of threads against keys and values that are packed in panels."""

from __future__ import annotations

import functools
from collections.abc import Callable

from verax.compiler.kernels.gpu.index32 import Int
from verax.compiler.kernels.gpu.row_softmax import CHUNK, ScoreSoftmax
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I1, I8, I32, Index
from verax.compiler.kernels.llvm.gpu import BlockBuilder
from verax.compiler.kernels.products.attention_softmax import masked_scores
from verax.compiler.kernels.products.attention_spec import AttentionSpec, Shared
from verax.compiler.kernels.sizes import ceil_div, equal
from verax.compiler.kernels.target import LANES

SCORE_ROWS, VALUE_ROWS = 4, 2
"""Queries of a thread's tile, at most, by a chunk of keys or of the values' columns."""
STAGES, STAGE_BYTES = 3, 1 << 13
"""Buffers of rows of values that are not packed (`attention_of_rows`)."""


def pitch(keys: int) -> int:
    """Elements from a row of scores to the next in shared memory: an odd multiple of 16, so that
    two rows of a warp do not meet in a bank."""
    return (-(-keys // LANES) | 1) * LANES


def features_in_chunks(spec: AttentionSpec) -> int:
    """Elements of a query in shared memory."""
    return -(-spec.d // CHUNK) * CHUNK


def shared_bytes(spec: AttentionSpec, rows: int, threads: int, stored: bool) -> int:
    """Of the queries, what lanes exchange, the scores unless they are `stored` elsewhere, and
    stages of values that are not packed."""
    scores = 0 if stored or not isinstance(spec.m, int) else rows * pitch(spec.m)
    stages = 0 if spec.rows_of is None else STAGES * STAGE_BYTES
    return 4 * (rows * features_in_chunks(spec) + threads + scores) + stages


class BlockOfQueries(ScoreSoftmax):
    """The queries of a block. stored: the scores are in memory of the block's own."""

    def __init__(self, f: BlockBuilder, spec: AttentionSpec, rows: int, stored: bool) -> None:
        self.features = features_in_chunks(spec)
        super().__init__(f, spec, rows, f.threads, 4 * rows * self.features)
        n, self.stored = self.n, stored
        self.m, self.total = n.of(spec.m), n.of(spec.n)
        self.behind_exchange = self.exchange_at + 4 * f.threads
        stages = 0 if spec.rows_of is None else STAGES * STAGE_BYTES
        self.scores_at = self.behind_exchange + stages
        self.pitch: Int
        if stored:
            self.pitch = n.of(spec.row)
            self.scratch = f.at(f.args[-2], (f.begin, rows * spec.row))
        else:
            assert isinstance(spec.m, int)
            self.pitch = pitch(spec.m)

    def emit(self, unit: Index) -> None:
        """All of a group of queries. unit: its number among those of all heads."""
        f, spec = self.f, self.spec
        self.outer, self.head, group = f.split(unit, spec.inner, ceil_div(spec.n, self.rows))
        self.first = self.n.truncated(f.imul(group, self.rows))
        self.find_factors()
        self.keys = self._keys_of_block()
        self._fetch_queries()
        f.barrier()
        self.emit_scores()
        f.barrier()
        self.emit_softmax()
        self.emit_results()

    def find_factors(self) -> None:
        """Where this head's keys and values are."""

    def emit_scores(self) -> None:
        """Scores of `keys` keys for all rows."""

    def emit_results(self) -> None:
        """Shares times values. Begins with a barrier, behind which shares are there. What it reads
        is overwritten behind the first barrier of the next queries."""

    # --- how many keys are read

    def _keys_of_block(self) -> Int:
        """The largest number of keys that a query of the block reads."""
        n, spec = self.n, self.spec
        if not spec.is_bounded:
            return self.m
        keys = self.m
        if spec.counts is not None:
            same = equal(spec.counts.row, 0) == 1
            ends = [self._count(row) for row in range(1 if same else self.rows)]
            keys = functools.reduce(lambda a, b: n.select(n.less(a, b), b, a), ends)
        if spec.causal:
            keys = n.minimum(keys, self._causal_end(n.add(self.first, self.rows)))
        return keys

    def end_of_row(self, row: Int) -> Int:
        """How many keys a query reads the values of."""
        keys = self.m if self.spec.counts is None else self._count(row)
        if self.spec.causal:
            keys = self.n.minimum(
                keys, self._causal_end(self.n.add(self.n.add(self.first, row), 1))
            )
        return keys

    def _count(self, row: Int) -> Int:
        at = self.spec.counts
        assert at is not None
        terms = (self.outer, at.outer), (self.head, at.inner), (self.query(row), at.row)
        pointer = self.f.at(self.f.args[-3], *terms, dtype="int64")
        return self.n.truncated(self.f.load(pointer, "int64", lanes=0))

    def _causal_end(self, queries: Int) -> Int:
        """What so many queries see of keys, in whole sixteens."""
        return self.n.minimum(self.n.mul(self.sixteens(queries), LANES), self.m)

    # --- memory

    def score_at(self, row: Int, key: Int) -> ir.Value:
        n = self.n
        index = n.add(n.mul(row, self.pitch), key)
        if self.stored:
            return self.f.at(self.scratch, n.wide(index))
        return self.shared(n.mul(index, 4), self.scores_at)

    def query(self, row: Int) -> Index:
        """The number of a query in its head; the last one for those behind."""
        n = self.n
        return n.wide(n.minimum(n.add(self.first, row), n.sub(self.total, 1)))

    def _fetch_queries(self) -> None:
        """Queries to shared memory, the last one for those that there are not."""
        f, n, spec = self.f, self.n, self.spec
        count, at = self.rows * spec.d, spec.q
        for start in range(0, count, self.threads):
            index = n.add(f.thread, start)
            with f.when(n.less(index, count)):
                row, feature = n.divmod(index, spec.d)
                terms = (self.outer, at.outer), (self.head, at.inner), (self.query(row), at.row)
                value = f.load(f.at(f.args[0], *terms, n.wide(feature)), lanes=0)
                offset = n.add(n.mul(row, self.features), feature)
                f.store(value, self.shared(n.mul(offset, 4)))

    def _matrix(self, shared: Shared) -> Index:
        f = self.f
        return f.iadd(f.imul(self.outer, shared.outer), f.idiv(self.head, shared.repeats))

    # --- products

    def each_tile(
        self, columns: Int, max_rows: int, emit: Callable[[Int, Int, Int, int], None]
    ) -> None:
        """emit(row, panel, chunk of the panel, rows) for tiles of up to `max_rows` rows by a chunk
        of columns, which are dealt out among the threads."""
        f, n = self.f, self.n
        rows = max(r for r in range(1, max_rows + 1) if self.rows % r == 0)
        chunks = n.mul(self.sixteens(columns), LANES // CHUNK)
        tiles = n.mul(chunks, self.rows // rows)
        turns, _ = n.divmod(n.add(tiles, self.threads - 1), self.threads)
        with f.loop(n.wide(turns)) as turn:
            tile = n.add(n.mul(n.truncated(turn.index), self.threads), f.thread)
            with f.when(n.less(tile, tiles)):
                group, column = n.divmod(tile, chunks)
                panel, chunk = n.divmod(column, LANES // CHUNK)
                emit(n.mul(group, rows), panel, chunk, rows)

    def store_scores(self, sums: list[ir.Value], row: Int, key: Int) -> None:
        """Of four keys for a query each, scaled and masked."""
        for r, total in enumerate(sums):
            score = self._masked(total, self.n.add(row, r), key)
            self.f.b.store(score, self.score_at(self.n.add(row, r), key), align=16)

    def _masked(self, score: ir.Value, row: Int, key: Int) -> ir.Value:
        f, n, spec = self.f, self.n, self.spec
        mask = ahead = None
        if spec.mask:
            at, kind = spec.mask.at, spec.mask.dtype
            terms = (self.outer, at.outer), (self.head, at.inner), (self.query(row), at.row)
            pointer = f.at(f.args[3], *terms, (n.wide(key), at.col), dtype=kind)
            is_row = at.col != 0
            mask = f.load(pointer, kind, CHUNK) if is_row else f.broadcast(pointer, kind, CHUNK)
        if spec.causal:
            ahead = n.value(n.sub(key, n.truncated(self.query(row))))
        return masked_scores(f, spec, score, mask, ahead)

    def result_at(self, row: Int, column: Index) -> ir.Value:
        """Where a result of a query is."""
        query = self.n.wide(self.n.add(self.first, row))
        at = self.spec.y
        terms = (self.outer, at.outer), (self.head, at.inner), (query, at.row)
        return self.f.at(self.f.args[-1], *terms, column)

    def is_query(self, row: Int) -> ir.Value:
        """i1: whether there is such a query in the head."""
        return self.n.less(self.n.add(self.first, row), self.total)


class PackedKeys(BlockOfQueries):
    """Keys and values in panels of 16 columns."""

    def find_factors(self) -> None:
        f, spec = self.f, self.spec
        depths = (spec.keys, spec.m, spec.d), (spec.values, spec.e, spec.m)
        self.factors = [
            f.at(
                f.args[1 + i],
                (self._matrix(shared), ceil_div(columns, LANES) * LANES * depth),
            )
            for i, (shared, columns, depth) in enumerate(depths)
        ]
        if spec.skips_later:
            flag = f.at(f.args[-3], self._matrix(spec.values), dtype="int64")
            self.is_unusual = f.load(flag, "int64", lanes=0)

    def emit_scores(self) -> None:
        self.each_tile(self.keys, SCORE_ROWS, self._scores)

    def emit_results(self) -> None:
        self.f.barrier()
        self.each_tile(self.spec.e, VALUE_ROWS, self._results)

    def _product(
        self,
        left: ir.Value,
        step: Int,
        panel: ir.Value,
        depth: Int,
        rows: int,
        ends: list[Int] | None = None,
    ) -> list[ir.Value]:
        """`rows` sums over `depth` terms: rows `step` bytes apart, by a chunk of a panel; of row r
        those before `ends[r]`, which is a multiple of a chunk or no less than `depth`."""
        f, n = self.f, self.n
        sums = [f.constant(0.0, lanes=CHUNK)] * rows
        full, left_over = n.divmod(depth, CHUNK)
        final: tuple[Int, int] = (1, left_over) if isinstance(left_over, int) else (left_over, 1)
        for start, trips, terms in ((0, full, CHUNK), (n.mul(full, CHUNK), *final)):
            if (isinstance(trips, int) and trips == 0) or not terms:
                continue
            with f.loop(n.wide(trips), carry=sums) as trip:
                at = f.iadd(f.imul(trip.index, terms), n.wide(start))
                here = f.b.gep(left, [n.value(n.truncated(f.imul(at, 4)))], I8)
                sums = list(trip.values)
                factors = [self.chunk(f.at(panel, (at, LANES), k * LANES)) for k in range(terms)]
                pointers = [f.b.gep(here, [n.value(n.mul(step, r))], I8) for r in range(rows)]
                single = terms == 1 and not isinstance(left_over, int)
                values = [f.load(p, lanes=0) if single else self.chunk(p) for p in pointers]
                before = list(sums)
                for k, factor in enumerate(factors):
                    for r, value in enumerate(values):
                        by = f.splat(value, CHUNK) if single else f.shuffle(value, [k] * CHUNK)
                        sums[r] = f.fma(by, factor, sums[r])
                if ends is not None:
                    for r, end in enumerate(ends):
                        read = n.less(n.truncated(at), end)
                        sums[r] = f.b.select(read, sums[r], before[r])
                trip.next(sums)
            sums = trip.results
        return list(sums)

    def _scores(self, row: Int, panel: Int, chunk: Int, rows: int) -> None:
        f, n, spec = self.f, self.n, self.spec
        queries = self.shared(n.mul(row, 4 * self.features))
        keys = f.at(self.factors[0], (n.wide(panel), LANES * spec.d), (n.wide(chunk), CHUNK))
        sums = self._product(queries, 4 * self.features, keys, spec.d, rows)
        self.store_scores(sums, row, n.add(n.mul(panel, LANES), n.mul(chunk, CHUNK)))

    def _results(self, row: Int, panel: Int, chunk: Int, rows: int) -> None:
        f, n, spec = self.f, self.n, self.spec
        shares = self.score_at(row, 0)
        values = f.at(
            self.factors[1],
            (f.imul(n.wide(panel), LANES), n.wide(self.m)),
            (n.wide(chunk), CHUNK),
        )
        ends = None
        if spec.is_bounded and not spec.skips_later:
            ends = [self.end_of_row(n.add(row, r)) for r in range(rows)]
        step = n.mul(self.pitch, 4)
        sums = self._product(shares, step, values, self.keys, rows, ends)
        if spec.skips_later:
            sums = self._with_later(values, sums)
        column = n.wide(n.add(n.mul(panel, LANES), n.mul(chunk, CHUNK)))
        for r, total in enumerate(sums):
            with f.when(self.is_query(n.add(row, r))):
                pointer = self.result_at(n.add(row, r), column)
                if spec.e % LANES == 0:
                    f.store(total, pointer)
                else:
                    left = f.clamp(f.iadd(spec.e, f.imul(column, -1)), 0, CHUNK)
                    f.store_first(total, pointer, left)

    def _with_later(self, values: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        """`sums` and zero times the values from key `keys` on, which changes -0 and makes NaN of
        what is not finite."""
        f, n = self.f, self.n
        bits = ir.VectorType(I32, CHUNK)
        minus_zero = f.b.bitcast(f.constant(-0.0, lanes=CHUNK), bits)
        equal_bits = [f.b.icmp_unsigned("==", f.b.bitcast(t, bits), minus_zero) for t in sums]
        lanes = functools.reduce(f.b.or_, equal_bits)
        changes = [f.b.extract_element(lanes, ir.Constant(I32, i)) for i in range(CHUNK)]
        unusual = f.b.icmp_signed("!=", self.is_unusual, f.i64(0))
        goes_on = functools.reduce(f.b.or_, changes, unusual)
        assert goes_on.type == I1
        stop = n.select(goes_on, self.m, self.keys)
        zero = f.constant(0.0, lanes=CHUNK)
        with f.loop(n.wide(stop), start=n.wide(self.keys), carry=sums) as key:
            factor = self.chunk(f.at(values, (key.index, LANES)))
            key.next([f.fma(zero, factor, total) for total in key.values])
        return list(key.results)
