"""Products of matrices by Strassen's algorithm, one level: seven products of halves, not eight.

The rows of the left factor, the columns of the right one, and what is summed over are halved (see
`numerics.strassen`); of a 1x1 convolution these are pixels, filters and channels. The right
factor's columns are scaled and its seven sums packed ahead; the left one's rows are scaled and
added up by a kernel before, which reads two rows twice while they are in the cache. Then, for some
columns of both halves and all rows, the seven products are taken one after the other by the direct
kernel's tiles, and each tile of sums is added to where it belongs in a room, which is at hand in
the cache: products are never in memory as a whole. What is complete is scaled back on its way to y.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from verax.compiler.kernels.convolution.direct import BlockPhase
from verax.compiler.kernels.convolution.pack import direct_elements, sections
from verax.compiler.kernels.convolution.schedule import (
    L2_BYTES,
    ConvSchedule,
    direct_schedule,
    filter_blocks,
)
from verax.compiler.kernels.convolution.space import CONVOLUTION
from verax.compiler.kernels.layout import (
    Epilogue,
    Sizes,
    finished,
)
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.products.gemm import KNOWN
from verax.compiler.kernels.products.strassen_spec import ImageRows, StrassenSpec
from verax.compiler.kernels.registry import Space, emits
from verax.compiler.kernels.sizes import (
    Size,
    all_open,
    ceil_div,
    minimum,
    static_size,
)
from verax.compiler.kernels.target import LANES, Target
from verax.numerics import strassen

F32 = "float32"
COLUMNS = 2 * LANES
"""The right factor has a multiple of so many columns."""


def pack_right(b: np.ndarray, spec: StrassenSpec, schedule: ConvSchedule, out: np.ndarray) -> None:
    """Write the seven sums of the quarters of b, whose columns are scaled, in the order that the
    kernel reads: for each panel of columns all seven, each as `pack_direct_weights` has it.

    out: float32 [right_elements]; each of its elements is written once.
    """
    by_row = bool(b.flags.c_contiguous)
    if by_row:
        quarters = strassen.quarters(strassen.scaled_right(b)[0])
    else:
        by_column, _ = strassen.scaled_left(np.ascontiguousarray(b.T))
        quarters = [quarter.T for quarter in strassen.quarters_by_column(by_column)]
    half, end = static_size(spec.k // 2), 0
    for first, count, blocks in sections(spec.half, schedule):
        panels, width = static_size(count), blocks * LANES
        start, end = end, end + panels * strassen.PRODUCTS * half * width
        room = out[start:end].reshape(panels, strassen.PRODUCTS, half, width)
        columns = slice(static_size(first) * LANES, (static_size(first) + panels * blocks) * LANES)
        arranged = [_in_panels(quarter[:, columns], panels, width) for quarter in quarters]
        step = 1 if by_row else max(panels, 1)  # those of one panel stay in the cache
        for panel in range(0, panels, step):
            of_panel = [quarter[panel : panel + step] for quarter in arranged]
            for product in range(strassen.PRODUCTS):
                strassen.write_right_factor(product, of_panel, room[panel : panel + step, product])
    assert end == len(out), "all columns have a panel"


def _in_panels(columns: np.ndarray, panels: int, width: int) -> np.ndarray:
    """Columns [half, panels * width] as [panels, half, width]."""
    if columns.flags.f_contiguous:
        return columns.T.reshape(panels, width, -1).transpose(0, 2, 1)
    return columns.reshape(-1, panels, width).transpose(1, 0, 2)


def right_elements(spec: StrassenSpec, schedule: ConvSchedule) -> int:
    """Length of what `pack_right` gives."""
    return strassen.PRODUCTS * direct_elements(spec.half, schedule)


def sums_of_item(spec: StrassenSpec, schedule: ConvSchedule) -> Size:
    """Elements that the sums of an item take."""
    rows = _tile_rows(spec, schedule)
    tiles = minimum(schedule.chunk, ceil_div(spec.upper, rows))
    if isinstance(spec.upper, int):
        full, remainder = divmod(spec.upper, rows)
        tiles = min(schedule.chunk, full) + bool(remainder)
    return tiles * _room_rows(spec, schedule) * len(strassen.OUTPUT) * schedule.blocks * LANES


def _tile_rows(spec: StrassenSpec, schedule: ConvSchedule) -> int:
    return min(schedule.rows, spec.upper) if isinstance(spec.upper, int) else schedule.rows


def _short_rows(spec: StrassenSpec, schedule: ConvSchedule) -> int:
    """Rows of the tiles that take what whole ones leave: all of it, or, of a number that is read at
    run time, some, the last of which begins where it does not go beyond the end."""
    rows = _tile_rows(spec, schedule)
    return spec.upper % rows if isinstance(spec.upper, int) else min(rows, SHORT_ROWS)


def _room_rows(spec: StrassenSpec, schedule: ConvSchedule) -> int:
    """Rows of the room of a tile, which short ones share."""
    rows = _tile_rows(spec, schedule)
    if isinstance(spec.upper, int):
        return rows
    short = _short_rows(spec, schedule)
    return max(rows, -(-(rows - 1) // short) * short)


def room_elements(spec: StrassenSpec, schedule: ConvSchedule) -> Size:
    """Elements of the room that the kernel needs: each of its calls takes the part of its first
    item, again for each item, so that it stays in the cache."""
    rows = _tile_rows(spec, schedule)
    tiles = spec.upper // rows if isinstance(spec.upper, int) else ceil_div(spec.upper, rows)
    panels = sum(static_size(count) for _, count, _ in sections(spec.half, schedule))
    return panels * ceil_div(tiles, schedule.chunk) * sums_of_item(spec, schedule)


ARGUMENTS = ("a", "sums", "row scales", "weights", "column scales", "signs", "room")
"""Of the kernel, before the epilogue's operands and y."""
NARROW, ROWS = 2, 12
"""Blocks of columns and rows of a tile, where wide panels cannot be shared."""
SHORT_ROWS = 4
"""Of short tiles: with two blocks of columns these hide the latency of a multiply-add. Shorter ones
are as slow, and each length would be more code than all else."""
FEW_PANELS, ITEMS = 4, 8
"""Fewer panels than these, or an odd number below twice as many, are shared by rows as well."""


def strassen_schedule(spec: StrassenSpec, target: Target) -> ConvSchedule:
    """As of one of the seven products, but an item takes all rows: whenever some rows are taken by
    themselves all seven panels of weights are read again, which no cache holds (ViT-small takes
    4 % longer, BERT 6 %). The next panel is fetched meanwhile. Panels are narrow where two wide
    ones are more than the cache holds (BERT 1 %), or where these are an odd number, which two
    threads cannot share."""
    assert isinstance(spec.upper, int)
    schedule, blocks = direct_schedule(spec.half, target), static_size(filter_blocks(spec.half))
    large = spec.k // 2 * schedule.blocks * LANES * 4 > 5 * L2_BYTES // 8
    if schedule.blocks > NARROW and (large or blocks % (2 * schedule.blocks)):
        rows = _evenly(spec.upper, ROWS)
        schedule = dataclasses.replace(schedule, blocks=NARROW, rows=rows, cols=1)
    panels, tiles = -(-blocks // schedule.blocks), max(1, spec.upper // schedule.rows)
    shared = panels >= ITEMS or (panels >= FEW_PANELS and panels % 2 == 0)
    row_chunks = 1 if shared else -(-ITEMS // panels)
    return dataclasses.replace(schedule, chunk=-(-tiles // row_chunks), pass_blocks=0, ahead=True)


def _evenly(count: int, max_size: int) -> int:
    """The largest size when `count` is cut into about equal groups of at most `max_size`."""
    return -(-count // -(-count // max_size))


@emits(
    StrassenSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (strassen_schedule(spec, target),),
    space=Space(
        ConvSchedule,
        lambda spec, target: CONVOLUTION.stages(spec.half, target),
        lambda spec, target, schedule: (
            CONVOLUTION.admits(spec.half, target, schedule) and schedule.pass_blocks == 0
        ),  # sums of one product of seven are nowhere by themselves
    ),
    settle=all_open,
)
def emit_strassen(module: ModuleBuilder, spec: StrassenSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel that multiplies and adds. Items: columns of both halves, for a chunk of rows."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("strassen", spec, schedule), len(ARGUMENTS) + len(operands) + 1)
    if f.kernel is not None:
        return f.kernel
    items: Size = 0
    weights: Size = 0
    column_sections: list[_Columns] = []
    for first, count, blocks in sections(spec.half, schedule):
        section = _Columns(f, spec, schedule, first, count, blocks, items, weights)
        column_sections.append(section)
        items += section.items
        weights += strassen.PRODUCTS * count * section.weights_per_item
    for section in column_sections:
        section.emit(alone=len(column_sections) == 1)
    elements = spec.m * spec.k + spec.sum_elements + weights + spec.m * spec.n
    return f.finish(items, strassen.PRODUCTS * spec.half.flops, 4 * elements)


def written_in_line(image: ImageRows, epilogue: Epilogue | None) -> bool:
    """Whether rows of an image follow one another in the result, and in what is added to it."""
    operands = epilogue.operands if epilogue else ()
    tensors = [image.y, *(o.strides for o in operands if o.strides)]
    depth, rows, columns = image.size
    dense = all(t.row == columns * t.pixel for t in tensors)
    return dense and (depth == 1 or all(t.depth == rows * t.row for t in tensors))


class _Columns(BlockPhase):
    """Panels of `blocks` blocks of columns of the left half, and of the right half, of y."""

    def __init__(
        self,
        f: FunctionBuilder,
        spec: StrassenSpec,
        schedule: ConvSchedule,
        first_block: Size,
        panels: Size,
        blocks: int,
        first_item: Size,
        weights: Size,
    ) -> None:
        conv = spec.half
        (phase,) = conv.phases()
        super().__init__(f, conv, schedule, phase, first_block, panels, blocks, first_item, weights)
        self.full_spec = spec
        named = dict(zip(ARGUMENTS, f.args, strict=False))
        self.a, self.sums, self.row_scales = (named[n] for n in ARGUMENTS[:3])
        self.weights, self.column_scales, self.signs = (named[n] for n in ARGUMENTS[3:6])
        self.product: Index = 0
        self.short_rows = _short_rows(spec, schedule)
        self.room_rows = _room_rows(spec, schedule)
        self.tile_elements = len(strassen.OUTPUT) * self.room_rows * self.width
        self.across = spec.n // 2 // LANES  # blocks of columns of a half
        self.in_line = spec.image is None or written_in_line(spec.image, spec.epilogue)

    def _emit_item(self, group: Index, kgroup: Index, n: Index, d: Index, chunk: Index) -> None:
        f, spec = self.f, self.full_spec
        self.order, self.turn, self.n, self.d = kgroup, 0, 0, 0
        room = f.args[ARGUMENTS.index("room")]
        self.room = f.at(room, (f.begin, sums_of_item(spec, self.schedule)))
        self.block = f.iadd(f.imul(kgroup, self.blocks), self.first_block)
        self.x_row, self.x_block = spec.sum_steps
        panel = self.weights_per_item
        with f.loop(strassen.PRODUCTS) as p:
            self.product = p.index
            self.pass_x = f.at(self.sums, (p.index, spec.upper * (spec.k // 2)))
            panel_offset = (self.order, strassen.PRODUCTS * panel)
            self.pass_w = f.at(self.weights, panel_offset, (p.index, panel), self.weight_offset)
            self._emit_pass(chunk)

    def _is_product(self, product: int) -> ir.Value:
        return self.f.b.icmp_signed("==", self.f.i64(self.product), self.f.i64(product))

    def _emit_pass(self, chunk: Index) -> None:
        """One of the products, tile by tile: whole ones, then short ones."""
        f = self.f
        trips, short_tiles = self._whole_tiles(chunk), self._short_tiles(chunk)
        with f.loop(f.iadd(trips, short_tiles)) as t:
            row, rows, room_row, room_tile = self._tile_at(chunk, trips, t.index)
            offset = f.iadd(f.imul(room_tile, self.tile_elements), f.imul(room_row, self.width))
            self.tile_sums = f.at(self.room, offset)
            with f.when(self._is_product(strassen.ALL_BEGUN)):
                self._emit_not_finite(row, rows, self.tile_sums)
            lengths = [rows] if isinstance(rows, int) else self._tile_lengths()
            for length in lengths:
                is_length = f.b.icmp_signed("==", f.i64(rows), f.i64(length))
                with nullcontext() if len(lengths) == 1 else f.when(is_length):
                    self._emit_tile(row, 0, length, 1, t.index)
            self._emit_finish(row, rows)

    def _tile_lengths(self) -> list[int]:
        """All numbers of rows that a tile may have."""
        is_known = isinstance(self.rest_rows, int)
        return list(dict.fromkeys([self.tile_rows, self.short_rows, *(() if is_known else (1,))]))

    def _short_tiles(self, chunk: Index) -> Index:
        """How many tiles of fewer rows an item has: the last chunk has those."""
        f, remainder, short = self.f, self.rest_rows, self.short_rows
        count: Index = int(remainder != 0)
        if not isinstance(remainder, int):
            pieces = f.i64(ceil_div(remainder, short))
            count = f.b.select(self._has_short_rows(), pieces, f.i64(remainder))
        if isinstance(chunk, int) or (isinstance(count, int) and not count):
            return count
        is_last = f.b.icmp_signed("==", f.i64(chunk), f.i64(self.chunks - 1))
        return f.b.select(is_last, f.i64(count), f.i64(0))

    def _has_short_rows(self) -> ir.Value:
        """Whether there are rows enough for a short tile; else each row is one."""
        f = self.f
        return f.b.icmp_signed(">=", f.i64(self.full_spec.upper), f.i64(self.short_rows))

    def _tile_at(
        self, chunk: Index, trips: Index, tile: Index
    ) -> tuple[Index, Index, Index, Index]:
        """(first row, rows, first row in the room of a tile, number of that room) of a tile."""
        f, short, per_chunk = self.f, self.short_rows, self.schedule.chunk
        whole_row = f.imul(f.iadd(f.imul(chunk, per_chunk), tile), self.tile_rows)
        full: tuple[Index, Index, Index, Index] = whole_row, self.tile_rows, 0, tile
        begin = self.full_tiles * self.tile_rows
        if isinstance(self.rest_rows, int):
            remainder: tuple[Index, Index, Index, Index] = begin, short, 0, trips
            if isinstance(tile, int) and isinstance(trips, int):
                return full if tile < trips else remainder
            if not short:
                return full
        else:
            has_short_rows = self._has_short_rows()
            piece = f.iadd(tile, f.imul(trips, -1))
            length = f.b.select(has_short_rows, f.i64(short), f.i64(1))
            room_row = f.b.mul(f.i64(piece), length)
            last = f.b.sub(f.i64(self.full_spec.upper), length)
            at = f.iadd(begin, room_row)
            at = f.b.select(f.b.icmp_signed("<", f.i64(at), last), f.i64(at), last)
            remainder = at, length, room_row, trips
        is_whole = f.b.icmp_signed("<", f.i64(tile), f.i64(trips))
        selected = [
            f.b.select(is_whole, f.i64(a), f.i64(b)) for a, b in zip(full, remainder, strict=True)
        ]
        return selected[0], selected[1], selected[2], selected[3]

    def _emit_finish(self, row: Index, rows: Index) -> None:
        """The epilogue of the quarters of a tile that this product completes."""
        f = self.f
        for quarter, terms in enumerate(strassen.OUTPUT):
            count = self._rows_of(quarter // 2, row, rows)
            if isinstance(count, int) and count == 0:
                continue
            with f.when(self._is_product(terms[-1][0])), f.loop(count) as r:
                tile_offsets = [self._in_tile(quarter, r.index, j) for j in range(self.blocks)]
                values = [f.load(f.at(self.tile_sums, offset)) for offset in tile_offsets]
                self._finish(values, quarter, f.iadd(row, r.index))

    def _rows_of(self, down: int, row: Index, rows: Index) -> Index:
        """How many rows of a tile the upper half, or the lower one, has."""
        return (
            self.f.clamp(self.f.iadd(self.full_spec.lower, self.f.imul(row, -1)), 0, rows)
            if down
            else rows
        )

    def _emit_not_finite(self, row: Index, rows: Index, sums: ir.Value) -> None:
        """The sums of rows that are not finite become what direct summation gives; what is added
        afterwards is finite and changes nothing."""
        f, spec = self.f, self.full_spec
        for down in range(2):
            count = self._rows_of(down, row, rows)
            if isinstance(count, int) and count == 0:
                continue
            with f.loop(count) as r:
                at = f.iadd(f.iadd(row, r.index), down * spec.upper)
                back = f.load(f.at(self.row_scales, at), lanes=0)
                with f.when(f.b.fcmp_ordered("==", back, f.constant(np.inf, lanes=0))):
                    for right in range(2):
                        values = self._not_finite(at, right)
                        for j, value in enumerate(values):
                            tile_offset = self._in_tile(2 * down + right, r.index, j)
                            f.store(value, f.at(sums, tile_offset))

    def _not_finite(self, row: Index, right: int) -> list[ir.Value]:
        """The blocks of a row of `_emit_not_finite` in the left or the right half."""
        f, spec = self.f, self.full_spec
        step, block, _ = spec.steps
        zero, above, below = (f.constant(v, lanes=0) for v in (0.0, -np.inf, np.inf))
        columns = f.iadd(self.block, right * self.across)
        channel_blocks, length = (spec.k // LANES, LANES) if spec.image else (1, spec.k)
        with f.loop(channel_blocks, carry=[f.constant(0.0)] * self.blocks) as terms:
            with f.loop(length, carry=terms.values) as lane:
                at = f.at(self.a, (row, step), (terms.index, block), lane.index)
                x = f.load(at, lanes=0)
                finite = f.b.and_(f.b.fcmp_ordered(">", x, above), f.b.fcmp_ordered("<", x, below))
                x = f.splat(f.b.select(finite, zero, x))
                term = f.iadd(f.imul(terms.index, length), lane.index)
                values = []
                for j, total in enumerate(lane.values):
                    column_terms = (f.iadd(columns, j), LANES)
                    sign = f.load(
                        f.at(self.signs, (term, spec.n), column_terms, dtype="int8"), "int8"
                    )
                    values.append(f.fma(x, f.b.sitofp(sign, f.vector_type()), total))
                lane.next(values)
            terms.next(lane.results)
        return terms.results

    def _emit_final(
        self,
        row: Index,
        col: Index,
        pixels: list[tuple[int, int]],
        outputs: object,
        acc: Sequence[ir.Value],
    ) -> None:
        """Add a tile of the product to the quarters that it belongs to."""
        for product in range(strassen.PRODUCTS):
            with self.f.when(self._is_product(product)):
                self._add_to_quarters(product, pixels, acc)

    def _add_to_quarters(
        self, product: int, pixels: list[tuple[int, int]], acc: Sequence[ir.Value]
    ) -> None:
        f = self.f
        for quarter, sign in strassen.OUTPUT_OF[product]:
            is_first = product == strassen.OUTPUT[quarter][0][0]
            for i, (r, _) in enumerate(pixels):
                for j in range(self.blocks):
                    value = acc[i * self.blocks + j]
                    pointer = f.at(self.tile_sums, self._in_tile(quarter, r, j))
                    if not is_first:
                        add = f.b.fadd if sign > 0 else f.b.fsub
                        value = add(f.load(pointer), value)
                    f.store(value, pointer)

    def _in_tile(self, quarter: int, row: Index, block: int) -> Index:
        """Where 16 sums lie among those of a tile."""
        rows = self.f.iadd(row, quarter * self.room_rows)
        return self.f.iadd(self.f.imul(rows, self.width), block * LANES)

    def _finish(self, values: Sequence[ir.Value], quarter: int, row: Index) -> None:
        """A row's blocks scaled back, their epilogue, and the results to y."""
        f, spec, (down, right) = self.f, self.full_spec, divmod(quarter, 2)
        back = f.broadcast(f.at(self.row_scales, row, down * spec.upper))
        y = spec.image.y if spec.image else self.spec.y
        row_position: tuple[list[Index], Sizes] = [0, 0, row], (0, 0, down * spec.upper)
        if spec.image and not self.in_line:
            at = f.iadd(row, down * spec.upper)
            row_position = f.split(at, *spec.image.size[1:]), (0, 0, 0)
        blocks = [f.iadd(self.block, j + right * self.across) for j in range(self.blocks)]
        columns = [f.load(f.at(self.column_scales, (block, LANES))) for block in blocks]
        values = [
            f.fma(f.b.fmul(value, column), back, f.constant(0.0))
            for value, column in zip(values, columns, strict=True)
        ]
        locations = [(0, block, *row_position) for block in blocks]
        results = finished(f, spec.epilogue, f.args[len(ARGUMENTS) : -1], values, locations)
        for location, value in zip(locations, results, strict=True):
            f.store(value, y.at(f, f.args[-1], *location, spec.stored))
