"""Boxes taken by falling score unless they overlap one taken before: NonMaxSuppression, BoxNMS.

Candidates lie in a heap, so that no more of them are sorted than are looked at. What was taken is
kept beside it, 16 boxes at a time are compared with the next candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.search.top import falling_rank, make_heap, sift
from verax.compiler.kernels.sizes import Size, all_open, ceil_div, minimum
from verax.compiler.kernels.target import LANES

MOST_ITEMS = 32
"""Each has scratch memory of its own."""
F32 = "float32"
_NUMBERS = 5  # of a box that was taken: low and high of both axes, area


@dataclasses.dataclass(frozen=True)
class SuppressSpec:
    """Per problem: select at most `max_boxes` of `boxes`, by falling score.

    Of problem p (float32, distances in elements): coordinates lie from p // shared * box_step on,
    `box_stride` apart; scores from p * score_step on, `score_stride` apart. A candidate's score is
    above `lowest` (None: it may be anything, NaN comes last), and only the first `max_candidates`
    are tried. `centered`: boxes are middle and size, not two corners; `ordered`: corners come in
    order. Two overlap when their intersection over union is above `overlap`: `strict` says of an
    empty box that it overlaps nothing, otherwise an empty union does. `classes`: distance of a
    box's class from its score, None if all are of one; those of `background` are no candidates; if
    `apart`, boxes of different classes do not overlap. `row`: elements of a row that is copied, 0
    if the numbers of boxes are written.

    Arguments: boxes, scores, scratch (`scratch_bytes`), then found (int64 [problems, max_boxes])
    and counts (int64 [problems]); or rows to read and rows to write, [problems, boxes, row], those
    beyond the taken ones filled with -1."""

    problems: Size
    boxes: Size
    max_boxes: Size
    max_candidates: Size
    shared: Size
    box_step: Size
    box_stride: Size
    score_step: Size
    score_stride: Size
    overlap: float
    lowest: float | None
    centered: bool
    ordered: bool
    strict: bool
    classes: int | None = None
    background: float | None = None
    apart: bool = False
    row: int = 0

    def __str__(self) -> str:
        return f"{F32} at most {self.max_boxes} of {self.boxes} boxes, {self.problems} times"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of coordinates and scores."""
        return (F32,)

    @property
    def items(self) -> Size:
        return minimum(self.problems, MOST_ITEMS)

    @property
    def room(self) -> Size:
        """Boxes that have room among the taken ones: whole vectors."""
        return ceil_div(self.max_boxes, LANES) * LANES

    @property
    def item_bytes(self) -> Size:
        """A heap of candidates; numbers and classes of those taken."""
        needed = 8 * self.boxes + (4 * _NUMBERS + 8) * self.room
        return ceil_div(needed, 64) * 64

    @property
    def scratch_bytes(self) -> Size:
        return self.items * self.item_bytes


@emits(SuppressSpec, dtypes=(F32,), settle=all_open)
def emit_suppress(module: ModuleBuilder, spec: SuppressSpec) -> Kernel:
    """Items: some neighboring problems."""
    f = module.kernel(spec, 5, hint="suppress")
    if f.kernel is not None:
        return f.kernel
    problems_per_item = ceil_div(spec.problems, spec.items)
    with f.items() as item:
        scratch = f.at(f.args[2], (item.index, spec.item_bytes), dtype="int8")
        start = f.imul(item.index, problems_per_item)
        end = f.clamp(f.iadd(start, problems_per_item), 0, spec.problems)
        with f.loop(end, start=start) as problem:
            _Problem(f, spec, problem.index, scratch).emit()
    count = spec.problems * spec.boxes
    return f.finish(spec.items, count * 16, count * 5 * ELEMENT_SIZES[F32])


@dataclasses.dataclass(frozen=True)
class TakenSpec:
    """Rows (problem // shared, problem % shared, box) of what a `SuppressSpec` found, without gaps.

    Arguments: found (int64 [problems, max_boxes]), counts (int64 [problems]), rows (int64 [problems
    * max_boxes, 3]), and how many there are (int64 [1])."""

    problems: Size
    max_boxes: Size
    shared: Size

    def __str__(self) -> str:
        return f"int64 {self.problems} lists of at most {self.max_boxes} boxes"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return ("int64",)


@emits(TakenSpec, dtypes=("int64",), settle=all_open)
def emit_taken(module: ModuleBuilder, spec: TakenSpec) -> Kernel:
    """One item: where a list goes depends on those before it."""
    f = module.kernel(spec, 4, hint="taken")
    if f.kernel is not None:
        return f.kernel
    with f.items():
        with f.loop(spec.problems, carry=[f.i64(0)]) as p:
            count = f.load(f.at(f.args[1], (p.index, 1), dtype="int64"), "int64", lanes=0)
            first, second = f.split(p.index, spec.shared)
            (done,) = p.values
            with f.loop(count) as k:
                source = f.at(f.args[0], (p.index, spec.max_boxes), (k.index, 1), dtype="int64")
                row = f.at(f.args[2], (f.b.add(done, f.i64(k.index)), 3), dtype="int64")
                numbers = (first, second, f.load(source, "int64", lanes=0))
                for j, value in enumerate(numbers):
                    f.store(f.i64(value), f.at(row, j, dtype="int64"))
            p.next([f.b.add(done, count)])
        f.store(p.results[0], f.args[3])
    return f.finish(1, 0, 40 * spec.problems * spec.max_boxes)


class _Problem:
    """One problem being written."""

    def __init__(
        self, f: FunctionBuilder, spec: SuppressSpec, problem: Index, scratch: ir.Value
    ) -> None:
        self.f, self.b, self.spec, self.problem = f, f.b, spec, problem
        self.one, self.many = LlvmArith(f, lanes=0), LlvmArith(f)
        first = f.idiv(problem, spec.shared)
        self.boxes = f.at(f.args[0], (first, spec.box_step))
        self.scores = f.at(f.args[1], (problem, spec.score_step))
        self.heap = scratch
        self.selected = f.at(scratch, spec.boxes, dtype="int64")
        self.kinds = f.at(self.selected, _NUMBERS * spec.room)

    def emit(self) -> None:
        f, b, spec = self.f, self.b, self.spec
        count = self._collect()
        make_heap(f, self.heap, count)
        before, head, body, end = b.block, *(f.block(n) for n in ("candidates", "next", "all"))
        b.branch(head)
        b.position_at_end(head)
        left, kept_count, attempts = (b.phi(I64) for _ in range(3))
        for phi, value in ((left, count), (kept_count, f.i64(0)), (attempts, f.i64(0))):
            phi.add_incoming(value, before)
        more = b.and_(
            b.icmp_signed(">", left, f.i64(0)),
            b.and_(
                b.icmp_signed("<", kept_count, f.i64(spec.max_boxes)),
                b.icmp_signed("<", attempts, f.i64(spec.max_candidates)),
            ),
        )
        b.cbranch(more, body, end)
        b.position_at_end(body)
        packed_rank = b.not_(f.load(self.heap, "int64", lanes=0))
        fewer = b.sub(left, f.i64(1))
        sift(f, self.heap, fewer, f.load(self._cell(fewer), "int64", lanes=0))
        index = b.and_(packed_rank, f.i64((1 << 32) - 1))
        now = self._try_candidate(index, kept_count)
        last = b.block
        for phi, value in ((left, fewer), (kept_count, now), (attempts, b.add(attempts, f.i64(1)))):
            phi.add_incoming(value, last)
        b.branch(head)
        b.position_at_end(end)
        self._finish(kept_count)

    def _cell(self, i: Index) -> ir.Value:
        return self.f.at(self.heap, (i, 1), dtype="int64")

    def _load(self, pointer: ir.Value, *terms: Index | tuple[Index, Index]) -> Typed:
        at = self.f.at(pointer, *terms)
        return self.one.bind(self.f.load(at, F32, lanes=0), F32)

    # --- candidates

    def _collect(self) -> ir.Value:
        """All candidates at the front of the heap, unsorted; how many there are.

        A candidate is its score's rank (32 bits) and its number, complemented: the largest is the
        one that is looked at first.
        """
        f, b, m, spec = self.f, self.b, self.one, self.spec
        with f.loop(spec.boxes, carry=[f.i64(0)]) as i:
            score = self._load(self.scores, (i.index, spec.score_stride))
            good: Typed = m.const(True, "bool")
            if spec.lowest is not None:
                good = m.gt(score, m.const(spec.lowest, F32))
            if spec.background is not None:
                kind = self._load(self.scores, (i.index, spec.score_stride), spec.classes or 0)
                good = m.and_(good, m.ne(kind, m.const(spec.background, F32)))
            rank = m.select(m.is_nan(score), m.const(-1, "int32"), falling_rank(m, score))
            key = b.or_(b.shl(b.zext(m.unbind(rank), I64), f.i64(32)), f.i64(i.index))
            f.store(b.not_(key), self._cell(i.values[0]))  # the next one overwrites a bad one
            i.next([b.add(i.values[0], b.zext(m.unbind(good), I64))])
        return i.results[0]

    def _corners(self, index: ir.Value) -> list[Typed]:
        """Low and high of the first axis, then of the second, and the area."""
        m, spec = self.one, self.spec
        a, b, c, d = (self._load(self.boxes, (index, spec.box_stride), k) for k in range(4))
        if spec.centered:
            half = m.const(0.5, F32)
            c, d = m.mul(c, half), m.mul(d, half)
            bounds = [m.sub(a, c), m.add(a, c), m.sub(b, d), m.add(b, d)]
        elif spec.ordered:
            bounds = [a, c, b, d]
        else:
            bounds = [m.min(a, c), m.max(a, c), m.min(b, d), m.max(b, d)]
        return [*bounds, m.mul(m.sub(bounds[1], bounds[0]), m.sub(bounds[3], bounds[2]))]

    def _kind(self, index: ir.Value) -> ir.Value:
        """The class as a whole number, as NumPy converts it."""
        m, spec = self.one, self.spec
        value = self._load(self.scores, (index, spec.score_stride), spec.classes or 0)
        fits = m.lt(m.abs(value), m.const(2.0**63, F32))
        return m.unbind(m.select(fits, m.convert(value, "int64"), m.const(-(1 << 63), "int64")))

    # --- the taken ones

    def _try_candidate(self, index: ir.Value, count: ir.Value) -> ir.Value:
        """Select a candidate unless it overlaps; the count of selected boxes then."""
        f, b, spec = self.f, self.b, self.spec
        numbers = [self.one.unbind(v) for v in self._corners(index)]
        kind = self._kind(index) if spec.apart else None
        before, scan, following, take, done = (
            b.block, *(f.block(n) for n in ("compare", "following", "take", "tried"))
        )  # fmt: skip
        b.cbranch(b.icmp_signed(">", count, f.i64(0)), scan, take)
        b.position_at_end(scan)
        at = b.phi(I64)
        at.add_incoming(f.i64(0), before)
        overlapping = self._overlapping(numbers, kind, at)
        lanes = b.bitcast(overlapping, ir.IntType(LANES))
        b.cbranch(b.icmp_unsigned("!=", lanes, lanes.type(0)), done, following)
        rejected = b.block
        b.position_at_end(following)
        then = b.add(at, f.i64(LANES))
        at.add_incoming(then, following)
        b.cbranch(b.icmp_signed("<", then, count), scan, take)
        b.position_at_end(take)
        self._take(index, count, numbers, kind)
        more, taken_block = b.add(count, f.i64(1)), b.block
        b.branch(done)
        b.position_at_end(done)
        now = b.phi(I64)
        now.add_incoming(count, rejected)
        now.add_incoming(more, taken_block)
        return now

    def _selected_pointer(self, k: int, at: Index) -> ir.Value:
        return self.f.at(self.selected, k * self.spec.room, (at, 1))

    def _take(
        self, index: ir.Value, count: ir.Value, numbers: Sequence[ir.Value], kind: ir.Value | None
    ) -> None:
        f, b, spec = self.f, self.b, self.spec
        within = b.and_(count, f.i64(LANES - 1))
        with f.when(b.icmp_signed("==", within, f.i64(0))):  # NaN overlaps nothing
            for k in range(_NUMBERS):
                f.store(
                    self.many.unbind(self.many.const(float("nan"), F32)),
                    self._selected_pointer(k, count),
                )
        for k, value in enumerate(numbers):
            f.store(value, self._selected_pointer(k, count))
        if kind is not None:
            f.store(kind, f.at(self.kinds, (count, 1), dtype="int64"))
        if not spec.row:
            output = f.at(f.args[3], (self.problem, spec.max_boxes), (count, 1), dtype="int64")
            f.store(index, output)
            return
        source, target = self._row(3, index), self._row(4, count)
        with f.loop(spec.row) as j:
            value = f.load(f.at(source, (j.index, 1)), F32, lanes=0)
            f.store(value, f.at(target, (j.index, 1)))

    def _row(self, argument: int, index: Index) -> ir.Value:
        spec = self.spec
        return self.f.at(
            self.f.args[argument], (self.problem, spec.boxes * spec.row), (index, spec.row)
        )

    def _overlapping(
        self, numbers: Sequence[ir.Value], kind: ir.Value | None, at: ir.Value
    ) -> ir.Value:
        """Mask of which of 16 selected boxes the candidate overlaps."""
        f, m, spec = self.f, self.many, self.spec
        low0, high0, low1, high1, area = (m.bind(f.splat(v), F32) for v in numbers)
        taken_boxes = [m.bind(f.load(self._selected_pointer(k, at)), F32) for k in range(_NUMBERS)]
        zero, one, overlap = (m.const(v, F32) for v in (0.0, 1.0, spec.overlap))
        side0 = m.sub(m.min(high0, taken_boxes[1]), m.max(low0, taken_boxes[0]))
        side1 = m.sub(m.min(high1, taken_boxes[3]), m.max(low1, taken_boxes[2]))
        common = m.mul(m.max(side0, zero), m.max(side1, zero))
        union = m.sub(m.add(area, taken_boxes[4]), common)
        if spec.strict:
            solid = m.and_(m.and_(m.gt(area, zero), m.gt(taken_boxes[4], zero)), m.gt(union, zero))
            solid = m.and_(solid, m.and_(m.gt(side0, zero), m.gt(side1, zero)))
            ratio = m.div(common, m.select(solid, union, one))
            overlaps = m.and_(solid, m.gt(ratio, overlap))
        else:
            empty = m.le(union, zero)
            ratio = m.select(empty, zero, m.div(common, m.select(empty, one, union)))
            overlaps = m.gt(ratio, overlap)
        if kind is not None:
            kinds = f.load(f.at(self.kinds, (at, 1), dtype="int64"), "int64")
            same = m.eq(m.bind(kinds, "int64"), m.bind(f.splat(kind), "int64"))
            overlaps = m.and_(overlaps, same)
        return m.unbind(overlaps)

    def _finish(self, count: ir.Value) -> None:
        """How many were taken, or -1 in the rows that are left."""
        f, b, spec = self.f, self.b, self.spec
        if not spec.row:
            f.store(count, f.at(f.args[4], (self.problem, 1), dtype="int64"))
            return
        unused = b.mul(b.sub(f.i64(spec.boxes), count), f.i64(spec.row))
        target = self._row(4, count)
        minus = self.one.unbind(self.one.const(-1.0, F32))
        with f.loop(unused) as j:
            f.store(minus, f.at(target, (j.index, 1)))
