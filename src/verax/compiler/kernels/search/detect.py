"""MultiBoxDetection: the best class of every anchor, by falling score, and who suppresses whom.

Boxes are float64 numbers that a loop has decoded; scores are read as they are. Candidates lie in a
heap; those that nothing suppressed are kept beside it, 16 at a time are compared with the next.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import (
    I32,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.search.top import falling_rank, make_heap, sift
from verax.compiler.kernels.target import LANES

MOST_ITEMS = 32
"""Each has scratch memory of its own."""
F32, F64 = "float32", "float64"
ROW = 6
"""Class, score, x1, y1, x2, y2."""
_NUMBERS = 5  # of a box that stays: its coordinates and its area


@dataclasses.dataclass(frozen=True)
class DetectSpec:
    """Rows (class, score, box) of the anchors found in each of `images`, -1 elsewhere.

    classes: with the background, number 0. An anchor is found whose best other class scores above
    -1 and at least `threshold`. overlap: rows come by falling score, and of two of one class (of
    any two unless `apart`) the later one becomes class -1 from this intersection over union on;
    None: rows in the order of anchors, all of which stay. topk: as many are sorted and compared, 0
    for all; the others keep their place and become class -1.

    Arguments: scores (float32 [images, classes, anchors]), boxes (float64 [images, 4, anchors]),
    scratch (`scratch_bytes`), rows (float32 [images, anchors, 6]).
    """

    images: int
    classes: int
    anchors: int
    threshold: float
    overlap: float | None
    topk: int
    apart: bool

    def __str__(self) -> str:
        return (
            f"{F32} boxes of {self.anchors} anchors in {self.classes} classes, {self.images} times"
        )

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of scores and rows, and of boxes."""
        return (F32, F64)

    @property
    def items(self) -> int:
        return min(self.images, MOST_ITEMS)

    @property
    def room(self) -> int:
        """Anchors in whole vectors."""
        return -(-self.anchors // LANES) * LANES

    @property
    def item_bytes(self) -> int:
        """Best scores and classes; found anchors; a heap; boxes that stay and their classes."""
        return (4 + 4 + 8 + 8 + 8 * _NUMBERS + 4) * self.room

    @property
    def scratch_bytes(self) -> int:
        return self.items * self.item_bytes


@emits(DetectSpec, dtypes=(F32, F64))
def emit_detect(module: ModuleBuilder, spec: DetectSpec) -> Kernel:
    """Items: some neighboring images."""
    f = module.kernel(spec, 4, hint="detect")
    if f.kernel is not None:
        return f.kernel
    images_per_item = -(-spec.images // spec.items)
    with f.items() as item:
        scratch = f.at(f.args[2], (item.index, spec.item_bytes), dtype="int8")
        start = f.clamp(f.imul(item.index, images_per_item), 0, spec.images)
        end = f.clamp(f.iadd(start, images_per_item), 0, spec.images)
        with f.loop(end, start=start) as image:
            _Image(f, spec, image.index, scratch).emit()
    count = spec.images * spec.anchors
    return f.finish(spec.items, count * spec.classes, count * 4 * (spec.classes + 8 + ROW))


class _Image:
    """One image being written."""

    def __init__(
        self, f: FunctionBuilder, spec: DetectSpec, image: Index, scratch: ir.Value
    ) -> None:
        self.f, self.b, self.spec = f, f.b, spec
        self.one, self.many = LlvmArith(f, lanes=0), LlvmArith(f)
        self.scores = f.at(f.args[0], (image, spec.classes * spec.anchors))
        self.boxes = f.at(f.args[1], (image, 4 * spec.anchors), dtype=F64)
        self.rows = f.at(f.args[3], (image, spec.anchors * ROW))
        room = spec.room
        self.best = scratch
        self.kinds = f.at(self.best, room)
        self.candidates = f.at(self.kinds, room)
        self.heap = f.at(self.candidates, room, dtype="int64")
        self.staying = f.at(self.heap, room, dtype="int64")
        self.staying_kinds = f.at(self.staying, _NUMBERS * room, dtype=F64)

    def emit(self) -> None:
        f, b, spec = self.f, self.b, self.spec
        self._fill()
        if spec.classes < 2:
            return
        self._best_classes()
        count = self._collect()
        if spec.overlap is None:
            with f.loop(count) as i:
                anchor = f.load(self._cell(self.candidates, i.index), "int64", lanes=0)
                self._write(f.i64(i.index), anchor, self._kind(anchor))
            return
        make_heap(f, self.heap, count)
        limit = count
        if spec.topk:
            fewer = b.icmp_signed("<", count, f.i64(spec.topk))
            limit = b.select(fewer, count, f.i64(spec.topk))
        with f.loop(limit, carry=[count, f.i64(0)]) as row:
            left, staying_count = row.values
            packed_rank = b.not_(f.load(self.heap, "int64", lanes=0))
            left = b.sub(left, f.i64(1))
            sift(f, self.heap, left, f.load(self._cell(self.heap, left), "int64", lanes=0))
            anchor = b.and_(packed_rank, f.i64((1 << 32) - 1))
            row.next([left, self._try_candidate(f.i64(row.index), anchor, staying_count)])
        with f.loop(count, start=limit) as i:
            anchor = f.load(self._cell(self.candidates, i.index), "int64", lanes=0)
            self._write(f.i64(i.index), anchor, I32(-1))

    def _cell(self, base: ir.Value, i: Index) -> ir.Value:
        return self.f.at(base, (i, 1), dtype="int64")

    def _kind(self, anchor: ir.Value) -> ir.Value:
        return self.f.load(self.f.at(self.kinds, (anchor, 1), dtype="int32"), "int32", lanes=0)

    def _fill(self) -> None:
        """-1 everywhere."""
        f = self.f
        size = self.spec.anchors * ROW
        minus = f.constant(-1.0)
        if size // LANES:
            with f.loop(size // LANES * LANES, step=LANES) as i:
                f.store(minus, f.at(self.rows, (i.index, 1)))
        if size % LANES:
            f.store_first(minus, f.at(self.rows, size // LANES * LANES), size % LANES)

    # --- candidates

    def _best_classes(self) -> None:
        """The best score of each anchor and the first class that has it."""
        full = self.spec.anchors // LANES * LANES
        if full:
            with self.f.loop(full, step=LANES) as at:
                self._best_of(at.index, LANES)
        if self.spec.anchors > full:
            self._best_of(full, self.spec.anchors - full)

    def _best_of(self, at: Index, count: int) -> None:
        f, m, spec = self.f, self.many, self.spec
        lowest = m.const(float("-inf"), F32)
        start = [m.unbind(lowest), m.unbind(m.const(0, "int32"))]
        with f.loop(spec.classes, start=1, carry=start) as c:
            best, kind = m.bind(c.values[0], F32), m.bind(c.values[1], "int32")
            pointer = f.at(self.scores, (c.index, spec.anchors), (at, 1))
            loaded = f.load(pointer) if count == LANES else f.load_first(pointer, count)
            better = m.gt(m.bind(loaded, F32), best)  # false of NaN
            class_index = f.b.trunc(f.i64(f.iadd(c.index, -1)), I32)
            kind = m.select(better, m.bind(f.splat(class_index), "int32"), kind)
            best = m.select(better, m.bind(loaded, F32), best)
            c.next([m.unbind(best), m.unbind(kind)])
        f.store(c.results[0], f.at(self.best, (at, 1)))
        f.store(c.results[1], f.at(self.kinds, (at, 1), dtype="int32"))

    def _score(self, anchor: Index) -> Typed:
        return self.one.bind(self.f.load(self.f.at(self.best, (anchor, 1)), lanes=0), F32)

    def _collect(self) -> ir.Value:
        """The anchors that are found, in their order, and unsorted in the heap; how many.

        In the heap is a score's rank (32 bits) and its anchor, complemented: the largest is the one
        that comes first.
        """
        f, b, m, spec = self.f, self.b, self.one, self.spec
        with f.loop(spec.anchors, carry=[f.i64(0)]) as i:
            (count,) = i.values
            score = self._score(i.index)
            is_found = m.and_(
                m.gt(score, m.const(-1.0, F32)), m.ge(score, m.const(spec.threshold, F32))
            )
            rank = b.zext(m.unbind(falling_rank(m, score)), I64)
            key = b.or_(b.shl(rank, f.i64(32)), f.i64(i.index))
            f.store(b.not_(key), self._cell(self.heap, count))  # the next one overwrites a bad one
            f.store(f.i64(i.index), self._cell(self.candidates, count))
            i.next([b.add(count, b.zext(m.unbind(is_found), I64))])
        return i.results[0]

    # --- those that stay

    def _coordinates(self, anchor: ir.Value) -> list[Typed]:
        f, spec = self.f, self.spec
        pointers = (f.at(self.boxes, k * spec.anchors, (anchor, 1), dtype=F64) for k in range(4))
        return [self.one.bind(f.load(p, F64, lanes=0), F64) for p in pointers]

    def _write(self, row: ir.Value, anchor: ir.Value, kind: ir.Value) -> None:
        f, m = self.f, self.one
        numbers = [m.convert(m.bind(kind, "int32"), F32), self._score(anchor)]
        numbers += [m.convert(v, F32) for v in self._coordinates(anchor)]
        for j, value in enumerate(numbers):
            f.store(m.unbind(value), f.at(self.rows, (row, ROW), j))

    def _try_candidate(self, row: ir.Value, anchor: ir.Value, staying_count: ir.Value) -> ir.Value:
        """Write the row of a candidate if it stays; the count of boxes that stay then."""
        f, b, m = self.f, self.b, self.one
        x1, y1, x2, y2 = self._coordinates(anchor)
        area = m.mul(m.sub(x2, x1), m.sub(y2, y1))
        numbers = [m.unbind(v) for v in (x1, y1, x2, y2, area)]
        kind = self._kind(anchor)
        before, scan, following, stay, gone, done = (
            b.block, *(f.block(n) for n in ("compare", "following", "stay", "gone", "tried"))
        )  # fmt: skip
        b.cbranch(b.icmp_signed(">", staying_count, f.i64(0)), scan, stay)
        b.position_at_end(scan)
        at = b.phi(I64)
        at.add_incoming(f.i64(0), before)
        lanes = b.bitcast(self._overlapping(numbers, kind, at), ir.IntType(LANES))
        b.cbranch(b.icmp_unsigned("!=", lanes, lanes.type(0)), gone, following)
        b.position_at_end(following)
        then = b.add(at, f.i64(LANES))
        at.add_incoming(then, following)
        b.cbranch(b.icmp_signed("<", then, staying_count), scan, stay)
        b.position_at_end(stay)
        self._stay(numbers, kind, staying_count)
        more, staying = b.add(staying_count, f.i64(1)), b.block
        b.branch(done)
        b.position_at_end(gone)
        b.branch(done)
        b.position_at_end(done)
        written_kind, now = b.phi(I32), b.phi(I64)
        for value, count, block in ((kind, more, staying), (I32(-1), staying_count, gone)):
            written_kind.add_incoming(value, block)
            now.add_incoming(count, block)
        self._write(row, anchor, written_kind)
        return now

    def _staying_pointer(self, k: int, at: Index) -> ir.Value:
        return self.f.at(self.staying, k * self.spec.room, (at, 1), dtype=F64)

    def _stay(self, numbers: list[ir.Value], kind: ir.Value, count: ir.Value) -> None:
        f, b = self.f, self.b
        within = b.and_(count, f.i64(LANES - 1))
        with f.when(b.icmp_signed("==", within, f.i64(0))):  # NaN overlaps nothing
            for k in range(_NUMBERS):
                f.store(
                    self.many.unbind(self.many.const(float("nan"), F64)),
                    self._staying_pointer(k, count),
                )
        for k, value in enumerate(numbers):
            f.store(value, self._staying_pointer(k, count))
        f.store(kind, f.at(self.staying_kinds, (count, 1), dtype="int32"))

    def _overlapping(self, numbers: list[ir.Value], kind: ir.Value, at: ir.Value) -> ir.Value:
        """Which of 16 boxes that stay the candidate overlaps."""
        f, m, spec = self.f, self.many, self.spec
        x1, y1, x2, y2, area = (m.bind(f.splat(v), F64) for v in numbers)
        staying_boxes = [
            m.bind(f.load(self._staying_pointer(k, at), F64), F64) for k in range(_NUMBERS)
        ]
        assert spec.overlap is not None
        zero, one, overlap = (m.const(v, F64) for v in (0.0, 1.0, spec.overlap))
        width = m.max(m.sub(m.min(x2, staying_boxes[2]), m.max(x1, staying_boxes[0])), zero)
        height = m.max(m.sub(m.min(y2, staying_boxes[3]), m.max(y1, staying_boxes[1])), zero)
        common = m.mul(width, height)
        union = m.sub(m.add(staying_boxes[4], area), common)
        empty = m.le(union, zero)
        ratio = m.select(empty, zero, m.div(common, m.select(empty, one, union)))
        overlaps = m.ge(ratio, overlap)
        if spec.apart:
            kinds = f.load(f.at(self.staying_kinds, (at, 1), dtype="int32"), "int32")
            same = m.eq(m.bind(kinds, "int32"), m.bind(f.splat(kind), "int32"))
            overlaps = m.and_(overlaps, same)
        return m.unbind(overlaps)
