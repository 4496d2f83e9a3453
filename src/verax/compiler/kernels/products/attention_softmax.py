"""Softmax of the rows of scores that an attention kernel has in scratch memory."""

from __future__ import annotations

import math
from collections.abc import Callable

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import I1, I32, FunctionBuilder, Index, Term
from verax.compiler.kernels.llvm.lanes import joined_lanes, sum_of_floats
from verax.compiler.kernels.products.attention_spec import AttentionSchedule, AttentionSpec
from verax.compiler.kernels.target import LANES
from verax.ir.dim import Dim
from verax.numerics import functions

F32, F64 = "float32", "float64"


def masked_scores(
    f: FunctionBuilder,
    spec: AttentionSpec,
    scores: ir.Value,
    mask: ir.Value | None,
    ahead: ir.Value | None,
) -> ir.Value:
    """Scores of neighboring keys, scaled and masked. mask: of them, in memory's type. ahead: where
    attention is causal, how far the first key is behind the query's own (i32)."""
    lanes = scores.type.count
    m = LlvmArith(f, lanes)
    if spec.scale != 1:
        scores = f.b.fmul(scores, m.const(spec.scale, spec.dtype).value)
    if spec.divisor != 1:
        scores = f.b.fdiv(scores, m.const(spec.divisor, spec.dtype).value)
    hidden = m.const(spec.hidden, spec.dtype).value
    if spec.mask and mask is not None:
        if spec.mask.dtype == "bool":
            is_unmasked = f.b.icmp_unsigned("!=", mask, ir.Constant(mask.type, None))
            scores = f.b.select(is_unmasked, scores, hidden)
        else:
            scores = f.b.fadd(scores, mask)
    if ahead is not None:
        steps = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes)))
        distances = f.b.add(f.splat(ahead, lanes), steps)
        seen = f.b.icmp_signed("<=", distances, ir.Constant(distances.type, None))
        scores = f.b.select(seen, scores, hidden)
    return scores


class ScoreRows:
    """Rows of scores, a row for each query, of which Softmax is being emitted. Whoever makes the
    scores sets `count`, of rows, and `keys`, of scores in each that count."""

    count: Index
    keys: Index

    def __init__(
        self,
        f: FunctionBuilder,
        spec: AttentionSpec,
        schedule: AttentionSchedule,
        scratch: ir.Value,
    ) -> None:
        self.f, self.spec, self.schedule, self.scratch = f, spec, schedule, scratch
        self.arith, self.dtype = LlvmArith(f), spec.dtype

    def _at(self, pointer: ir.Value, *terms: Term) -> ir.Value:
        return self.f.at(pointer, *terms, dtype=self.dtype)

    def _load(self, pointer: ir.Value) -> ir.Value:
        return self.f.load(pointer, self.dtype)

    def _constant(self, value: float, lanes: int = LANES) -> ir.Value:
        return self.f.constant(value, self.dtype, lanes)

    def emit_softmax(self) -> None:
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
        with f.loop(f.idiv(f.iadd(self.keys, LANES - 1), LANES)) as vector:
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
        f = self.f

        def larger(a: ir.Value, b: ir.Value) -> ir.Value:
            return f.b.select(f.b.fcmp_ordered(">", a, b), a, b)

        lowest = self._constant(-math.inf)
        if not isinstance(self.keys, int):
            return self._top_of_open(row, larger)
        full, remainder = divmod(self.keys, LANES)
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
        larger: Callable[[ir.Value, ir.Value], ir.Value],
    ) -> ir.Value:
        """The same for a number of keys that is read at run time."""
        f, lowest = self.f, self._constant(-math.inf)
        full = f.idiv(self.keys, LANES)
        remainder = f.iadd(self.keys, f.imul(full, -LANES))
        unrolled = f.imul(f.idiv(full, 4), 4)
        with f.loop(unrolled, step=4, carry=[lowest] * 4) as loop:
            at = f.imul(loop.index, LANES)
            values = [self._load(self._at(row, at, j * LANES)) for j in range(4)]
            loop.next([larger(*pair) for pair in zip(values, loop.values, strict=True)])
        a, b, c, d = loop.results
        with f.loop(full, start=unrolled, carry=[larger(larger(a, b), larger(c, d))]) as loop:
            value = self._load(self._at(row, f.imul(loop.index, LANES)))
            loop.next([larger(value, loop.values[0])])
        last = self._load(self._at(row, f.imul(full, LANES)))  # a row has a spare vector
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

        return sum_of_floats(f, self.dtype, self.spec.m, lambda at: self._unless_behind(at, step))

    def _unless_behind(self, at: Index, element: Callable[[Index], ir.Value]) -> ir.Value:
        """Elements from `at` on; behind the keys that are read zeros, and nothing is done."""
        if isinstance(self.keys, int | Dim):
            return element(at)
        is_inside = self.f.b.icmp_signed("<", self.f.i64(at), self.keys)
        return self.f.value_if(is_inside, lambda: element(at), self._constant(0.0))

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
