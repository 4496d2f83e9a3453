"""Factors on their way to shared memory, a stage at a time.

A stage holds steps of 16 terms: of every pixel 64 bytes, of every term the weights of the tile's
filters. Sixteen bytes are a chunk. Chunks of pixels change places with the row, those of weights
with the term, so that neither copies nor loads of a warp meet in one bank.

A sum has its terms in the order of the packed weights: blocks of 16 channels, kernel positions,
channels. Where the last stage has no term, x is +0 and the weight is -0: fma(+0, -0, s) is s,
whatever s is. A term of integers is as many neighboring channels as fill 32 bits (`words`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.gpu.tiles import TERMS, TileSchedule
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import F32, I8, I32, I64, FunctionBuilder, Index
from verax.compiler.kernels.llvm.gpu import BlockBuilder
from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import LANES
from verax.ir.dim import Dim

Offset: TypeAlias = Int
"""Elements from where a tensor begins: in 32 bits where that is known to suffice, else in 64."""
CHUNK = 4
"""Elements of a chunk."""
CHUNK_BYTES = 16
ROW_BYTES = 4 * TERMS
"""Of a pixel in a step."""


def is_multiple(size: Size, factor: int) -> bool:
    """Whether a size is known to be a multiple, whatever it is read as."""
    if isinstance(size, Dim):
        return all(coefficient % factor == 0 for _, coefficient in size.terms)
    return size % factor == 0


def swizzled_weight(chunk: Int, term: Int, filters: int, n: Index32) -> Int:
    """Where a chunk of a term's weights lies: in every second row the halves of 128 bytes are
    exchanged, if there are two."""
    return n.xor(chunk, n.mul(n.and_(term, 1), CHUNK)) if filters >= 2 * LANES else chunk


class Terms:
    """The terms of the sums of a phase, and where their x lies."""

    def __init__(self, spec: ConvSpec, phase: Phase, n: Index32) -> None:
        self.spec, self.phase, self.n = spec, phase, n
        self.taps = math.prod(phase.tap_counts)
        self.channels = spec.group_channels
        self.count: Size = self.channels * self.taps
        self.steps: Size = ceil_div(self.count, TERMS)
        self.lanes = LANES // spec.step  # terms of a block of channels
        self.full, self.remainder = divmod(self.channels, self.lanes)
        self.group: Size = self.channels * spec.x.lane
        if spec.x.block != spec.x.lane * self.lanes:
            self.group = self.channels // self.lanes * spec.x.block if spec.groups > 1 else 0
        x = spec.x
        steps = [a * s for a, s in zip(phase.tap_step, x.space, strict=True)]
        self._strides: list[Size] = [x.block, x.lane, *steps]
        pixels = zip(phase.count, (a * s for a, s in zip(phase.step, x.space, strict=True)))
        counts = (ceil_div(self.channels, self.lanes), self.lanes, *phase.tap_counts)
        groups = (spec.groups, self.group)
        self.is_short = is_short(
            [(spec.batch, x.batch), groups, *pixels, *zip(counts, self._strides, strict=True)]
        )

    @property
    def nothing(self) -> ir.Constant:
        """Weights that change no sum where x is zero: -0 of floats."""
        if self.spec.step > 1:
            return ir.Constant(ir.VectorType(I32, CHUNK), None)
        return ir.Constant(ir.VectorType(F32, CHUNK), [-0.0] * CHUNK)

    @property
    def in_sequence(self) -> bool:
        """Whether a chunk of terms is a chunk of channels, even where the last are few."""
        return self.taps == 1 or self.remainder == 0

    def of_step(self, step: Int, chunk: Int) -> Offset:
        """Offset of the x of a chunk in a step of whole blocks of channels."""
        n = self.n
        if self.lanes < TERMS:  # a step has several blocks or kernel positions
            step, chunk = n.divmod(n.add(n.mul(step, TERMS // CHUNK), chunk), self.lanes // CHUNK)
            block, tap = n.divmod(step, self.taps)
        else:
            block, tap = n.divmod(step, self.taps)
        return self._offset(block, n.mul(chunk, CHUNK), tap)

    def of_term(self, term: Int) -> Offset:
        """Offset of the x of a term."""
        n = self.n
        if self.taps == 1:
            block, channel = n.divmod(term, self.lanes)
            return self._offset(block, channel, 0)
        full_block = self._in_full(term)
        if self.remainder == 0:
            return self._offset(*full_block)
        assert isinstance(self.full, int) and isinstance(self.remainder, int)
        before = self.full * self.lanes * self.taps
        tap, channel = n.divmod(n.sub(term, before), self.remainder)
        partial = self.full, channel, tap
        if not self.full:
            return self._offset(*partial)
        first = n.less(term, before)
        candidates = zip(full_block, partial, strict=True)
        return self._offset(*(n.select(first, a, b) for a, b in candidates))

    def _in_full(self, term: Int) -> tuple[Int, Int, Int]:
        step, channel = self.n.divmod(term, self.lanes)
        block, tap = self.n.divmod(step, self.taps)
        return block, channel, tap

    def _offset(self, block: Int, channel: Int, tap: Int) -> Offset:
        n = self.n
        _, rows, cols = self.phase.tap_counts
        terms = zip((block, channel, *n.split(tap, rows, cols)), self._strides, strict=True)
        return offset_of(n, terms, self.is_short)


def offset_of(n: Index32, terms: Iterable[tuple[Int, Size]], is_short: bool) -> Offset:
    """The sum of indices by strides, in 32 bits if `is_short`."""
    if is_short:
        total: Int = 0
        for index, stride in terms:
            assert isinstance(stride, int)
            total = n.add(total, n.mul(index, stride))
        return total
    offset: Index = 0
    for index, size in terms:
        offset = n.f.iadd(offset, n.f.imul(n.wide(index), size))
    return n.f.i64(offset)


def is_short(sizes: Iterable[tuple[Size, Size]]) -> bool:
    """Whether elements (count, stride) apart are known to be less than 2^31 from the first."""
    reach = 0
    for count, stride in sizes:
        if not isinstance(count, int) or not isinstance(stride, int):
            return False
        reach += count * abs(stride)
    return reach < 1 << 31


class Staging:
    """Copies of one block of threads."""

    def __init__(
        self, f: BlockBuilder, schedule: TileSchedule, terms: Terms, x_aligned: bool
    ) -> None:
        self.f, self.n, self.schedule, self.terms = f, terms.n, schedule, terms
        self.x = terms.spec.x
        self.by_chunk = x_aligned
        self.is_ragged = not isinstance(terms.count, int) or bool(
            terms.count % (TERMS * schedule.steps)
        )

    def read_from(
        self, rows: list[Offset], panels: list[Offset], of_x: ir.Value, of_weights: ir.Value
    ) -> None:
        """Where this thread reads: offsets of the pixels of `row_indices`, at the first channel and
        kernel position, from `of_x`, and of the panels of `panel_indices` from `of_weights`."""
        self.rows, self.panels, self._pointers = rows, panels, (of_x, of_weights)

    def _source(self, of_weights: bool, start: Offset, more: Offset) -> ir.Value:
        """An element of x, or of the weights."""
        n, pointer = self.n, self._pointers[of_weights]
        if _is_wide(start) or _is_wide(more):
            return self.f.at(pointer, self._widened(start), self._widened(more))
        return self.f.at(pointer, n.wide(n.add(start, more)))

    def _widened(self, offset: Offset) -> Index:
        return offset if _is_wide(offset) else self.n.wide(offset)

    # --- what this thread copies

    @property
    def _pixels_are_neighbors(self) -> bool:
        """Whether neighboring threads copy neighboring pixels, not channels."""
        return not self.by_chunk and self.x.lane != 1

    def row_indices(self) -> list[Int]:
        """The pixels of the tile of which this thread copies something."""
        n, s, tid = self.n, self.schedule, self.f.thread
        if self.by_chunk:
            return [n.divmod(n.add(tid, i * s.threads), CHUNK)[0] for i in self._turns(CHUNK)]
        if not self._pixels_are_neighbors:
            return [n.divmod(n.add(tid, i * s.threads), TERMS)[0] for i in self._turns(TERMS)]
        if s.threads % s.pixels == 0:
            return [n.divmod(tid, s.pixels)[1]]
        return [n.add(tid, i * s.threads) for i in range(s.pixels // s.threads)]

    def _turns(self, per_pixel: int) -> range:
        return range(-(-self.schedule.pixels * per_pixel // self.schedule.threads))

    def panel_indices(self) -> list[Int]:
        """The panels of the tile of which this thread copies something."""
        return [self.n.divmod(index, TERMS * CHUNK)[0] for index in self._weight_chunks()]

    def _weight_chunks(self) -> list[Int]:
        s = self.schedule
        count = -(-s.filters * CHUNK // s.threads)
        return [self.n.add(self.f.thread, i * s.threads) for i in range(count)]

    def _here(self, index: Int, limit: int, turn: int) -> AbstractContextManager[None]:
        """Code for those threads whose index is below a limit."""
        if (turn + 1) * self.schedule.threads <= limit:
            return nullcontext()
        return self.f.when(self.n.less(index, limit))

    # --- copies

    def copy(self, first: Int, stage: Int, aligned: ir.Value) -> None:
        """Begin to copy the steps from `first` on to the stage at byte `stage`. aligned: i1,
        whether both factors are, to 16 bytes."""
        with self.f.b.if_else(aligned) as (yes, no):
            for side, by_16 in ((yes, True), (no, False)):
                with side:
                    for u in range(self.schedule.steps):
                        step = self.n.add(first, u)
                        self._copy_x(step, self._at(stage, u * self.schedule.x_bytes), by_16)
                        weights = self.schedule.steps * self.schedule.x_bytes
                        weights += u * self.schedule.weight_bytes
                        self._copy_weights(step, self._at(stage, weights), by_16)

    def _at(self, *offsets: Int) -> ir.Value:
        """A byte of shared memory."""
        total: Int = 0
        for offset in offsets:
            total = self.n.add(total, offset)
        return self.f.b.gep(self.f.shared, [self.n.value(total)], I8)

    def _to(self, pointer: ir.Value, offset: Int) -> ir.Value:
        return self.f.b.gep(pointer, [self.n.value(offset)], I8)

    def _copy_x(self, step: Int, to: ir.Value, by_16: bool) -> None:
        if not self.by_chunk:
            self._copy_elements(step, to)
            return
        terms, n = self.terms, self.n
        if terms.in_sequence:
            self._copy_chunks(step, to, by_16)
            return
        assert isinstance(terms.full, int)
        before = terms.full * terms.taps
        if not before or terms.lanes < TERMS:
            self._copy_chunks_of_few(step, to)
            return
        with self.f.b.if_else(n.less(step, before)) as (full_block, last_block):
            with full_block:
                self._copy_chunks(step, to, by_16, is_whole=True)
            with last_block:
                self._copy_chunks_of_few(step, to)

    def _row_chunks(self) -> Iterator[tuple[int, Int, Int, Offset]]:
        """(turn, index, byte in the step, x) of the chunks of pixels that this thread copies."""
        n, s = self.n, self.schedule
        for turn, row in enumerate(self.rows):
            index = n.add(self.f.thread, turn * s.threads)
            pixel, chunk = n.divmod(index, CHUNK)
            yield turn, index, self._x_byte(pixel, chunk), row

    def _x_byte(self, pixel: Int, chunk: Int) -> Int:
        n = self.n
        position = n.xor(chunk, n.and_(n.divmod(pixel, 2)[0], CHUNK - 1))
        return n.add(n.mul(pixel, ROW_BYTES), n.mul(position, CHUNK_BYTES))

    def _copy_chunks(self, step: Int, to: ir.Value, by_16: bool, is_whole: bool = False) -> None:
        """Chunks of neighboring channels."""
        n, f = self.n, self.f
        chunk = n.and_(f.thread, CHUNK - 1)
        offset = self.terms.of_step(step, chunk)
        nbytes: Int = CHUNK_BYTES
        if self.is_ragged and not is_whole:
            done = n.add(n.mul(step, TERMS), n.mul(chunk, CHUNK))
            left = n.sub(n.of(self.terms.count), done)
            nbytes = n.clamp(n.mul(left, 4), 0, CHUNK_BYTES)
        for turn, index, byte, row in self._row_chunks():
            with self._here(index, self.schedule.pixels * CHUNK, turn):
                self._copy_chunk(
                    self._to(to, byte), self._source(False, row, offset), nbytes, by_16
                )

    def _copy_chunk(self, to: ir.Value, source: ir.Value, nbytes: Int, by_16: bool) -> None:
        n = self.n
        if by_16:
            self.f.copy_16(to, source, n.value(nbytes))
            return
        for e in range(CHUNK):
            size = n.clamp(n.sub(nbytes, 4 * e), 0, 4)
            self.f.copy_4(self._to(to, 4 * e), self.f.at(source, e), n.value(size))

    def _copy_chunks_of_few(self, step: Int, to: ir.Value) -> None:
        """Chunks of terms, which may be of several kernel positions."""
        n, f = self.n, self.f
        chunk = n.and_(f.thread, CHUNK - 1)
        for e in range(CHUNK):
            term = n.add(n.add(n.mul(step, TERMS), n.mul(chunk, CHUNK)), e)
            offset, nbytes = self.terms.of_term(term), self._element_bytes(term)
            for turn, index, byte, row in self._row_chunks():
                with self._here(index, self.schedule.pixels * CHUNK, turn):
                    source = self._source(False, row, offset)
                    f.copy_4(self._to(to, n.add(byte, 4 * e)), source, nbytes)

    def _element_bytes(self, term: Int) -> ir.Value:
        """4 where there is such a term, else 0."""
        n = self.n
        if not self.is_ragged:
            return n.value(4)
        return n.value(n.select(n.less(term, n.of(self.terms.count)), 4, 0))

    def _copy_elements(self, step: Int, to: ir.Value) -> None:
        """Elements one by one."""
        n, s, f = self.n, self.schedule, self.f
        per_thread = s.pixels * TERMS // s.threads
        by_term: dict[int, tuple[Offset, ir.Value]] = {}
        for turn in range(per_thread):
            index = n.add(f.thread, turn * s.threads)
            if self._pixels_are_neighbors:
                term, pixel = n.divmod(index, s.pixels)
                row = self.rows[turn % len(self.rows)]
                key = turn // len(self.rows)
            else:
                pixel, term = n.divmod(index, TERMS)
                row, key = self.rows[turn], 0
            if key not in by_term:
                term_index = n.add(n.mul(step, TERMS), term)
                by_term[key] = self.terms.of_term(term_index), self._element_bytes(term_index)
            offset, nbytes = by_term[key]
            chunk, within = n.divmod(term, CHUNK)
            byte = n.add(self._x_byte(pixel, chunk), n.mul(within, 4))
            f.copy_4(self._to(to, byte), self._source(False, row, offset), nbytes)

    def _copy_weights(self, step: Int, to: ir.Value, by_16: bool) -> None:
        n, s = self.n, self.schedule
        begin = n.mul(step, TERMS * LANES)
        for turn, (index, panel) in enumerate(zip(self._weight_chunks(), self.panels, strict=True)):
            of_panel, within = n.divmod(index, TERMS * CHUNK)
            term, chunk = n.divmod(within, CHUNK)
            position = swizzled_weight(n.add(n.mul(of_panel, CHUNK), chunk), term, s.filters, n)
            byte = n.add(n.mul(term, 4 * s.filters), n.mul(position, CHUNK_BYTES))
            source = self._source(True, panel, n.add(begin, n.mul(within, CHUNK)))
            with self._here(index, s.filters * CHUNK, turn):
                self._copy_weight(
                    n.add(n.mul(step, TERMS), term), self._to(to, byte), source, by_16
                )

    def _copy_weight(self, term: Int, to: ir.Value, source: ir.Value, by_16: bool) -> None:
        """A chunk of a term's weights; `Terms.nothing` where there is no such term."""
        n, f = self.n, self.f
        if not self.is_ragged:
            self._copy_chunk(to, source, CHUNK_BYTES, by_16)
            return
        with f.b.if_else(n.less(term, n.of(self.terms.count))) as (yes, no):
            with yes:
                self._copy_chunk(to, source, CHUNK_BYTES, by_16)
            with no:
                f.b.store(self.terms.nothing, to, align=CHUNK_BYTES)


def _is_wide(offset: Offset) -> bool:
    return isinstance(offset, ir.Value) and offset.type == I64


def chunks_are_aligned(x: Strides, phase: Phase, group: Size) -> bool:
    """Whether chunks of channels lie at multiples of 16 bytes, if the first element does. group:
    elements from a group's data to the next one's."""
    first = sum(a * s for a, s in zip(phase.first, x.space, strict=True))
    steps = (a * s for a, s in zip(phase.step, x.space, strict=True))
    taps = (a * s for a, s in zip(phase.tap_step, x.space, strict=True))
    distances = (x.batch, x.block, first, group, *steps, *taps)
    return x.lane == 1 and all(is_multiple(d, CHUNK) for d in distances)


def is_aligned(f: FunctionBuilder, pointers: list[ir.Value], nbytes: int = CHUNK_BYTES) -> ir.Value:
    """i1: whether all pointers are multiples of `nbytes`."""
    b = f.b
    union = b.ptrtoint(pointers[0], I64)
    for pointer in pointers[1:]:
        union = b.or_(union, b.ptrtoint(pointer, I64))
    low = b.and_(union, ir.Constant(I64, nbytes - 1))
    return b.icmp_signed("==", low, ir.Constant(I64, 0))
