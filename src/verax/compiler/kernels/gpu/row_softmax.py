"""Softmax of rows of scores by the threads of a block: sixteen threads for each row.

A thread has those elements that a lane of a vector has on the CPU, and the sixteen are joined in
the order of `numerics.reductions`. Threads beyond those of the rows do nothing but wait.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import F32, I8, I32
from verax.compiler.kernels.llvm.gpu import BlockBuilder
from verax.compiler.kernels.products.attention_spec import AttentionSpec
from verax.compiler.kernels.target import LANES
from verax.numerics.reductions import BLOCK, SUMS, add_block, sum_of_blocks

CHUNK = 4
VECTOR = ir.VectorType(F32, CHUNK)


class ScoreSoftmax:
    """Rows of scores. Whoever makes them sets `keys`, how many count in each: a number, or an i32
    that is the same for all threads of the block.

    threads: of the block. exchange_at: bytes from the begin of shared memory to what the threads
    exchange, 4 bytes for each of them.
    """

    keys: Int

    def __init__(
        self, f: BlockBuilder, spec: AttentionSpec, rows: int, threads: int, exchange_at: int
    ) -> None:
        self.f, self.n, self.spec, self.rows, self.threads = f, Index32(f), spec, rows, threads
        self.exchange_at = exchange_at
        self.arith, self.has_exchanged = LlvmArith(f, 0), False

    @abstractmethod
    def score_at(self, row: Int, key: Int) -> ir.Value:
        """Where a score is. A row has room for whole sixteens."""

    def shared(self, byte: Int, *more: Int) -> ir.Value:
        """A pointer into the block's shared memory."""
        for offset in more:
            byte = self.n.add(byte, offset)
        return self.f.b.gep(self.f.shared, [self.n.value(byte)], I8)

    def chunk(self, pointer: ir.Value) -> ir.Value:
        """Four numbers, which lie at a multiple of 16 bytes."""
        return self.f.b.load(pointer, align=16, typ=VECTOR)

    def sixteens(self, count: Int) -> Int:
        """Groups of 16 that hold `count` numbers."""
        return self.n.divmod(self.n.add(count, LANES - 1), LANES)[0]

    def emit_softmax(self) -> None:
        """Of every row, in place."""
        f, n = self.f, self.n
        row, lane = n.divmod(f.thread, LANES)
        own = self.keys
        if self.threads > self.rows * LANES:
            own = n.select(n.less(row, self.rows), self.keys, 0)
        self.own_keys, self.row, self.lane = own, row, lane
        top = self._shift(self._across_lanes(self._top(), self._larger))
        total = self._sum(top)
        if self.spec.masked_to_zero:
            nothing = f.b.fcmp_ordered("==", total, self._constant(0.0))
            total = f.b.select(nothing, self._constant(1.0), total)
        self._divide(total)

    def _constant(self, value: float) -> ir.Value:
        return self.f.constant(value, lanes=0)

    def _larger(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.f.b.select(self.f.b.fcmp_ordered(">", a, b), a, b)

    def _top(self) -> ir.Value:
        """The largest of a lane's scores; perhaps no NaN where there is one."""
        f, n, lane = self.f, self.n, self.lane
        top = self._constant(-math.inf)
        full, remainder = n.divmod(self.own_keys, LANES)
        if not (isinstance(full, int) and full == 0):
            with f.loop(n.wide(full), carry=[top]) as trip:
                key = n.add(n.mul(n.truncated(trip.index), LANES), lane)
                score = f.load(self.score_at(self.row, key), lanes=0)
                trip.next([self._larger(score, trip.values[0])])
            (top,) = trip.results
        if isinstance(remainder, int) and remainder == 0:
            return top
        last = n.add(n.mul(full, LANES), lane)

        def larger() -> ir.Value:
            score = f.load(self.score_at(self.row, last), lanes=0)
            return self._larger(score, top)

        return self.f.value_if(n.less(lane, remainder), larger, top)

    def _shift(self, top: ir.Value) -> ir.Value:
        if not self.spec.masked_to_zero:
            return top
        masked = self.f.b.fcmp_ordered("==", top, self._constant(-math.inf))
        return self.f.b.select(masked, self._constant(0.0), top)

    def _across_lanes(
        self, value: ir.Value, join: Callable[[ir.Value, ir.Value], ir.Value]
    ) -> ir.Value:
        """The sixteen lanes of a row joined in the order of `numerics.reductions`, in each."""
        f, n = self.f, self.n
        begin = n.add(n.mul(self.row, 4 * LANES), self.exchange_at)
        if self.has_exchanged:
            f.barrier()  # what was exchanged before has been read
        self.has_exchanged = True
        f.store(value, self.shared(begin, n.mul(self.lane, 4)))
        f.barrier()
        chunks = [self.chunk(self.shared(begin, 16 * c)) for c in range(LANES // CHUNK)]
        numbers = [ir.Constant(I32, e) for e in range(CHUNK)]
        lanes = [f.b.extract_element(chunk, e) for chunk in chunks for e in numbers]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [join(*pair) for pair in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0]

    def _sum(self, top: ir.Value) -> ir.Value:
        """exp(score - top) in place of the scores; their sum."""
        f, m, zero = self.f, self.arith, self._constant(0.0)
        if not isinstance(self.keys, int):
            return self._sum_of_open(top)
        sums = []
        for first in range(0, self.keys, BLOCK):
            accumulators = self._block(top, first, min(BLOCK, self.keys - first))
            sums.append(self._across_lanes(f.b.fadd(*accumulators), f.b.fadd))
        if len(sums) == 1:
            return sums[0]
        total = lost = m.bind(zero, "float32")
        for value in sums:
            total, lost = add_block(m, total, lost, m.bind(value, "float32"))
        return m.unbind(sum_of_blocks(m, total, lost))

    def _sum_of_open(self, top: ir.Value) -> ir.Value:
        """The same for a number of keys that is read at run time. A block alone is added to zero,
        which changes none of its bits."""
        f, n, m, zero = self.f, self.n, self.arith, self._constant(0.0)
        blocks, _ = n.divmod(n.add(self.keys, BLOCK - 1), BLOCK)
        with f.loop(n.wide(blocks), carry=[zero, zero]) as block:
            first = n.mul(n.truncated(block.index), BLOCK)
            size = n.clamp(n.sub(self.own_keys, first), 0, BLOCK)
            value = self._across_lanes(f.b.fadd(*self._open_block(top, first, size)), f.b.fadd)
            bound = [m.bind(v, "float32") for v in (*block.values, value)]
            block.next([m.unbind(v) for v in add_block(m, *bound)])
        total, lost = (m.bind(v, "float32") for v in block.results)
        return m.unbind(sum_of_blocks(m, total, lost))

    def _open_block(self, top: ir.Value, first: Int, size: Int) -> list[ir.Value]:
        """What a lane comes to in both vectors of sums of a block."""
        f, n, zero = self.f, self.n, self._constant(0.0)
        steps, _ = n.divmod(n.add(size, SUMS - 1), SUMS)
        with f.loop(n.wide(steps), carry=[zero] * 2) as trip:
            begin = n.mul(n.truncated(trip.index), SUMS)
            new = []
            for vector, value in enumerate(trip.values):
                at = n.add(n.add(begin, vector * LANES), self.lane)
                exponential = lambda at=at: self._exponential(n.add(first, at), top)  # noqa: E731
                e = self.f.value_if(n.less(at, size), exponential, zero)
                new.append(f.b.fadd(value, e))
            trip.next(new)
        return list(trip.results)

    def _block(self, top: ir.Value, first: int, size: int) -> list[ir.Value]:
        """The same for a number that is known."""
        if self.own_keys is not self.keys:
            return self._open_block(top, first, self._own_of(first, size))
        f, n, lane = self.f, self.n, self.lane
        accumulators = [self._constant(0.0)] * 2
        full, remainder = divmod(size, SUMS)
        if full:
            with f.loop(full, carry=accumulators) as trip:
                begin = n.add(n.mul(n.truncated(trip.index), SUMS), first)
                new = []
                for vector, value in enumerate(trip.values):
                    key = n.add(n.add(begin, vector * LANES), lane)
                    new.append(f.b.fadd(value, self._exponential(key, top)))
                trip.next(new)
            accumulators = list(trip.results)
        for vector in range(-(-remainder // LANES)):
            start = full * SUMS + vector * LANES
            count = min(LANES, size - start)
            e = self._exponential(n.add(first + start, lane), top)
            if count < LANES:
                e = f.b.select(n.less(lane, count), e, self._constant(0.0))
            accumulators[vector] = f.b.fadd(accumulators[vector], e)
        return accumulators

    def _own_of(self, first: int, size: int) -> Int:
        return self.n.clamp(self.n.sub(self.own_keys, first), 0, size)

    def _exponential(self, key: Int, top: ir.Value) -> ir.Value:
        """exp(score - top), in place of the score."""
        f, m = self.f, self.arith
        address = self.score_at(self.row, key)
        shifted = m.bind(f.b.fsub(f.load(address, lanes=0), top), "float32")
        value = m.unbind(m.exp(shifted))
        f.store(value, address)
        return value

    def _divide(self, total: ir.Value) -> None:
        """A lane's exponentials by the sum, in place."""
        f, n = self.f, self.n
        with f.loop(n.wide(self.sixteens(self.own_keys))) as trip:
            key = n.add(n.mul(n.truncated(trip.index), LANES), self.lane)
            address = self.score_at(self.row, key)
            share = f.b.fdiv(f.load(address, lanes=0), total)
            if self.spec.nan_to_zero:
                unseen = f.b.fcmp_unordered("!=", total, total)
                share = f.b.select(unseen, self._constant(0.0), share)
            f.store(share, address)
