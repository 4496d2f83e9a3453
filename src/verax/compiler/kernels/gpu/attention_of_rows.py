"""Few queries of a block of threads against keys and values that lie as rows, as caches have them.

A thread takes four keys at a time for its scores. Values come to shared memory in stages, each
copied while earlier ones are multiplied, for a column has a chain of as many multiply-adds as there
are keys, and waits for nothing else.
"""

from __future__ import annotations

from verax.compiler.kernels.gpu.attention_block import (
    SCORE_ROWS,
    STAGE_BYTES,
    STAGES,
    BlockOfQueries,
)
from verax.compiler.kernels.gpu.index32 import Int
from verax.compiler.kernels.gpu.row_softmax import CHUNK
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import F32, I8, I32
from verax.compiler.kernels.target import LANES

MOST_COLUMNS = STAGE_BYTES // 4
"""Of a row of values, of which a stage holds one at least."""
UNROLL = 4
"""Keys of a step."""


class KeysAsRows(BlockOfQueries):
    """Keys and values as `AttentionSpec.rows_of` says that they lie."""

    def find_factors(self) -> None:
        f, spec = self.f, self.spec
        assert spec.rows_of is not None
        self.factors = [
            f.at(pointer, (self.outer, at.outer), (f.idiv(self.head, shared.repeats), at.inner))
            for pointer, at, shared in zip(
                f.args[1:3], spec.rows_of, (spec.keys, spec.values), strict=True
            )
        ]

    # --- scores

    def emit_scores(self) -> None:
        self.each_tile(self.keys, SCORE_ROWS, self._scores)

    def _scores(self, row: Int, panel: Int, chunk: Int, rows: int) -> None:
        f, n, spec = self.f, self.n, self.spec
        assert spec.rows_of is not None
        at, key = spec.rows_of[0], n.add(n.mul(panel, LANES), n.mul(chunk, CHUNK))
        keys = [
            f.at(self.factors[0], (n.wide(n.minimum(n.add(key, i), n.sub(self.m, 1))), at.row))
            for i in range(CHUNK)
        ]
        queries = self.shared(n.mul(row, 4 * self.features))
        sums = [f.constant(0.0, lanes=CHUNK)] * rows
        with f.loop(spec.d // CHUNK, carry=sums) as trip:
            feature = f.imul(trip.index, CHUNK)
            sums = list(trip.values)
            loaded = [f.load(f.at(k, feature), lanes=CHUNK) for k in keys]
            here = f.b.gep(queries, [n.value(n.truncated(f.imul(feature, 4)))], I8)
            values = [
                self.chunk(f.b.gep(here, [ir.Constant(I32, 4 * self.features * r)], I8))
                for r in range(rows)
            ]
            for i in range(CHUNK):
                factor = self._gathered(loaded, i)
                for r, value in enumerate(values):
                    sums[r] = f.fma(f.shuffle(value, [i] * CHUNK), factor, sums[r])
            trip.next(sums)
        self.store_scores(list(trip.results), row, key)

    def _gathered(self, vectors: list[ir.Value], lane: int) -> ir.Value:
        """One lane of each."""
        b = self.f.b
        result: ir.Value = ir.Constant(ir.VectorType(F32, len(vectors)), ir.Undefined)
        for i, vector in enumerate(vectors):
            element = b.extract_element(vector, ir.Constant(I32, lane))
            result = b.insert_element(result, element, ir.Constant(I32, i))
        return result

    # --- results

    def emit_results(self) -> None:
        """A thread has `width` neighboring columns of some queries, for all keys."""
        f, n, e = self.f, self.n, self.spec.e
        self.stage_keys = STAGE_BYTES // (4 * e)
        self.width = CHUNK if self.rows * e >= CHUNK * self.threads else 1
        across = e // self.width
        count = self.rows * across
        outputs = []
        for start in range(0, count, self.threads):
            index = n.add(f.thread, start)
            inside = n.less(index, count)
            row, column = n.divmod(n.select(inside, index, 0), across)
            outputs.append((inside, row, n.mul(column, self.width)))
        ends = [self.end_of_row(row) for _, row, _ in outputs] if self.spec.is_bounded else None
        zero = f.constant(0.0, lanes=0 if self.width == 1 else self.width)
        stages, _ = n.divmod(n.add(self.keys, self.stage_keys - 1), self.stage_keys)
        for early in range(STAGES - 1):
            self._copy_stage(early)
        with f.loop(n.wide(stages), carry=[zero] * len(outputs)) as trip:
            stage = n.truncated(trip.index)
            f.await_copies(STAGES - 2)
            f.barrier()  # this stage is there for all; the buffer that is filled next was read
            self._copy_stage(n.add(stage, STAGES - 1))
            trip.next(self._multiplied(stage, list(trip.values), outputs, ends))
        f.await_copies(0)
        for (inside, row, column), total in zip(outputs, trip.results, strict=True):
            with f.when(f.b.and_(inside, self.is_query(row))):
                f.store(total, self.result_at(row, n.wide(column)))

    def _buffer(self, stage: Int) -> Int:
        """Where the values of a stage are, in bytes."""
        _, buffer = self.n.divmod(stage, STAGES)
        return self.n.add(self.n.mul(buffer, STAGE_BYTES), self.behind_exchange)

    def _copy_stage(self, stage: Int) -> None:
        """Begin to copy the values of so many keys; zeros behind the last one."""
        f, n, spec = self.f, self.n, self.spec
        assert spec.rows_of is not None
        count, at = self.stage_keys * spec.e, spec.rows_of[1]
        buffer, first = self._buffer(stage), n.mul(stage, self.stage_keys)
        for start in range(0, count, self.threads):
            index = n.add(f.thread, start)
            with f.when(n.less(index, count)):
                row, column = n.divmod(index, spec.e)
                key = n.add(first, row)
                there = n.less(key, self.keys)
                source = f.at(
                    self.factors[1], (n.wide(n.select(there, key, 0)), at.row), n.wide(column)
                )
                f.copy_4(
                    self.shared(buffer, n.mul(index, 4)), source, n.value(n.select(there, 4, 0))
                )
        f.commit_copies()

    def _multiplied(
        self,
        stage: Int,
        sums: list[ir.Value],
        outputs: list[tuple[ir.Value, Int, Int]],
        ends: list[Int] | None,
    ) -> list[ir.Value]:
        """`sums` with the keys of a stage."""
        f, n = self.f, self.n
        first, buffer = n.mul(stage, self.stage_keys), self._buffer(stage)
        count = n.minimum(n.sub(self.keys, first), self.stage_keys)
        full, remainder = n.divmod(count, UNROLL)
        for start, trips, unroll in ((0, full, UNROLL), (n.mul(full, UNROLL), remainder, 1)):
            if isinstance(trips, int) and trips == 0:
                continue
            with f.loop(n.wide(trips), carry=sums) as trip:
                begin = n.add(n.mul(n.truncated(trip.index), unroll), start)
                sums = list(trip.values)
                for k in range(unroll):
                    key = n.add(begin, k)
                    for i, (_, row, column) in enumerate(outputs):
                        sums[i] = self._added(sums[i], first, key, buffer, row, column,
                                              None if ends is None else ends[i])  # fmt: skip
                trip.next(sums)
            sums = list(trip.results)
        return sums

    def _added(
        self, total: ir.Value, first: Int, key: Int, buffer: Int, row: Int, column: Int,
        end: Int | None,
    ) -> ir.Value:  # fmt: skip
        """`total` and a share times values. key: in the stage, which begins with `first`."""
        f, n, e = self.f, self.n, self.spec.e
        share = f.load(self.score_at(row, n.add(first, key)), lanes=0)
        at = self.shared(buffer, n.mul(n.add(n.mul(key, e), column), 4))
        if self.width == 1:
            after = f.fma(share, f.load(at, lanes=0), total)
        else:
            after = f.fma(f.splat(share, self.width), self.chunk(at), total)
        if end is None:
            return after
        return f.b.select(n.less(n.add(first, key), end), after, total)
