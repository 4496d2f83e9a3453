"""Direct convolution, ordinary and transposed, on blocked activations.

A tile of outputs (a few pixels by a few blocks of 16 filters) is accumulated in registers over the
whole reduction: per channel step one load of weights for each block, one broadcast of the input for
each pixel, and a multiply-add for each pair. Bias starts the sum and the epilogue ends it, so every
output is written once. See `conv_spec` for the order of summation and `conv_schedule` for tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from verax.compiler.kernels.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.conv_pack import sections
from verax.compiler.kernels.conv_schedule import (
    ConvSchedule,
    default_schedule,
    filter_blocks,
    flattened,
    grid,
)
from verax.compiler.kernels.conv_spec import ConvSpec, Region
from verax.compiler.kernels.layout import finish_value, load_operands
from verax.compiler.kernels.target import LANES


def emit_conv(
    module: ModuleBuilder, spec: ConvSpec, schedule: ConvSchedule | None = None
) -> Kernel:
    """The kernel for an aligned `spec`; arguments as `ConvSpec` lists them."""
    schedule = schedule or default_schedule(spec, module.target)
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("conv", spec, schedule), 3 + spec.bias + len(operands))
    if f.kernel is not None:
        return f.kernel
    items = weights = 0
    regions = [r for r in spec.regions() if math.prod(r.count)]
    parts: list[_Section] = []
    for region in regions:
        for first, count, blocks in sections(spec, schedule):
            part = _Section(f, spec, schedule, region, first, count, blocks, items, weights)
            parts.append(part)
            items += part.items
            weights += spec.groups * count * part.weights_per_item
    for part in parts:
        part.emit(alone=len(parts) == 1)
    outputs = spec.batch * math.prod(spec.output) * spec.filters
    inputs = spec.batch * spec.channels * math.prod(hi - lo for lo, hi in spec.input_extent())
    return f.finish(items, spec.flops, 4 * (outputs + inputs + weights))


class _Section:
    """One region, for output channel blocks that are taken `blocks` at a time."""

    def __init__(
        self,
        f: FunctionBuilder,
        spec: ConvSpec,
        schedule: ConvSchedule,
        region: Region,
        first_block: int,
        block_groups: int,
        blocks: int,
        first_item: int,
        weight_offset: int,
    ) -> None:
        self.f, self.spec, self.schedule, self.region = f, spec, schedule, region
        self.first_block, self.block_groups, self.blocks = first_block, block_groups, blocks
        self.first_item, self.weight_offset = first_item, weight_offset
        self.rows, self.cols = grid(spec, region)
        self.tile_rows = min(schedule.rows, self.rows)
        self.tile_cols = min(schedule.cols, self.cols)
        self.full_tiles, self.rest_rows = divmod(self.rows, self.tile_rows)
        self.chunks = -(-self.full_tiles // schedule.chunk)
        self.items = spec.batch * region.count[0] * self.chunks * spec.groups * block_groups
        self.width = blocks * LANES
        self.weights_per_item = spec.group_channels * math.prod(region.tap_counts) * self.width
        self.flat = flattened(spec, region)
        self.x_row = spec.x.pixel if self.flat else spec.x.row * region.step[1]
        self.x_col = spec.x.pixel * region.step[2]

    def emit(self, alone: bool) -> None:
        f, spec = self.f, self.spec
        start, stop = f.begin, f.end
        if not alone:
            start = f.clamp(f.iadd(f.begin, -self.first_item), 0, self.items)
            stop = f.clamp(f.iadd(f.end, -self.first_item), 0, self.items)
        image = (spec.batch, self.region.count[0], self.chunks)
        filters = (spec.groups, self.block_groups)
        with f.loop(stop, start=start) as item:
            if self.schedule.filters_outer:
                group, kgroup, n, d, chunk = f.split(item.index, *filters[1:], *image)
            else:
                n, d, chunk, group, kgroup = f.split(item.index, *image[1:], *filters)
            self._emit_item(group, kgroup, n, d, chunk)

    def _emit_item(self, group: Index, kgroup: Index, n: Index, d: Index, chunk: Index) -> None:
        f, spec, region = self.f, self.spec, self.region
        x, inputs = spec.x, f.args[0]
        per_group = spec.group_channels * x.lane
        if x.block != x.lane * LANES:
            per_group = spec.group_channels // LANES * x.block if spec.groups > 1 else 0
        first = sum(a * s for a, s in zip(region.first, x.space, strict=True))
        self.x = f.at(
            inputs, (n, x.batch), (d, region.step[0] * x.depth), (group, per_group), first
        )
        order = f.iadd(f.imul(group, self.block_groups), kgroup)
        self.w = f.at(f.args[1], (order, self.weights_per_item), self.weight_offset)
        blocks = f.iadd(f.imul(group, filter_blocks(spec)), f.imul(kgroup, self.blocks))
        self.block, self.n, self.d = f.iadd(blocks, self.first_block), n, d
        per_chunk = self.schedule.chunk
        trips: Index = min(per_chunk, self.full_tiles)
        if self.full_tiles % per_chunk and self.chunks > 1:
            left = f.iadd(self.full_tiles, f.imul(chunk, -per_chunk))
            trips = f.clamp(left, 0, per_chunk)
        with f.loop(trips) as t:
            tile = f.iadd(f.imul(chunk, per_chunk), t.index)
            self._emit_rows(f.imul(tile, self.tile_rows), self.tile_rows)
        if self.rest_rows:
            row = self.full_tiles * self.tile_rows
            if isinstance(chunk, int):
                self._emit_rows(row, self.rest_rows)
            else:
                with f.when(f.b.icmp_signed("==", chunk, f.i64(self.chunks - 1))):
                    self._emit_rows(row, self.rest_rows)

    def _emit_rows(self, row: Index, rows: int) -> None:
        full, rest = divmod(self.cols, self.tile_cols)
        for first, count, cols in ((0, full, self.tile_cols), (full * self.tile_cols, 1, rest)):
            if count and cols:
                with self.f.loop(count) as c:
                    col = self.f.iadd(self.f.imul(c.index, cols), first)
                    self._emit_tile(row, col, rows, cols)

    def _emit_tile(self, row: Index, col: Index, rows: int, cols: int) -> None:
        f, spec = self.f, self.spec
        x = f.at(self.x, (row, self.x_row), (col, self.x_col))
        if spec.bias:
            bias = f.at(f.args[2], (self.block, LANES))
            initial = [f.load(f.at(bias, j * LANES)) for j in range(self.blocks)]
        else:
            initial = [f.constant(0.0)] * self.blocks
        pixels = [(r, c) for r in range(rows) for c in range(cols)]
        state = [self.w, *(v for _ in pixels for v in initial)]
        full, rest = divmod(spec.group_channels, LANES)
        if full:
            with f.loop(full, carry=state) as block:
                source = f.at(x, (block.index, spec.x.block))
                block.next(self._emit_taps(source, LANES, pixels, block.values))
            state = block.results
        if rest:
            state = self._emit_taps(f.at(x, full * spec.x.block), rest, pixels, state)
        self._emit_store(row, col, pixels, state[1:])

    def _emit_taps(
        self, x: ir.Value, channels: int, pixels: list[tuple[int, int]], state: list[ir.Value]
    ) -> list[ir.Value]:
        """All kernel positions of one block of `channels` input channels."""
        f, region = self.f, self.region
        if not math.prod(region.tap_counts):
            return state
        steps = [a * s for a, s in zip(region.tap_step, self.spec.x.space, strict=True)]
        with f.loop(region.tap_counts[0], carry=state) as kd:
            with f.loop(region.tap_counts[1], carry=kd.values) as kh:
                with f.loop(region.tap_counts[2], carry=kh.values) as kw:
                    terms = zip((kd.index, kh.index, kw.index), steps, strict=True)
                    kw.next(self._emit_channels(f.at(x, *terms), channels, pixels, kw.values))
                kh.next(kw.results)
            kd.next(kh.results)
        return kd.results

    def _emit_channels(
        self, x: ir.Value, channels: int, pixels: list[tuple[int, int]], state: list[ir.Value]
    ) -> list[ir.Value]:
        """One kernel position: `channels` steps of the reduction."""
        f, lane = self.f, self.spec.x.lane
        unroll = min(self.schedule.unroll, channels)
        full, rest = divmod(channels, unroll)
        for first, count, size in ((0, full, unroll), (full * unroll, 1, rest)):
            if not size:
                continue
            with f.loop(count, carry=state) as trip:
                source = f.at(x, (trip.index, size * lane), first * lane)
                w, acc = trip.values[0], list(trip.values[1:])
                for step in range(size):
                    self._emit_step(
                        f.at(source, step * lane), f.at(w, step * self.width), pixels, acc
                    )
                trip.next([f.at(w, size * self.width), *acc])
            state = trip.results
        return state

    def _emit_step(
        self, x: ir.Value, w: ir.Value, pixels: list[tuple[int, int]], acc: list[ir.Value]
    ) -> None:
        """One channel: acc += x * w for every pixel and block."""
        f = self.f
        weights = [f.load(f.at(w, j * LANES)) for j in range(self.blocks)]
        if self.schedule.near:
            for j in range(self.blocks):
                f.prefetch(f.at(w, self.schedule.near * self.width + j * LANES))
        for i, (r, c) in enumerate(pixels):
            value = f.broadcast(f.at(x, r * self.x_row + c * self.x_col))
            for j, weight in enumerate(weights):
                k = i * self.blocks + j
                acc[k] = f.fma(value, weight, acc[k])

    def _emit_store(
        self, row: Index, col: Index, pixels: list[tuple[int, int]], acc: Sequence[ir.Value]
    ) -> None:
        f, spec, region = self.f, self.spec, self.region
        if self.flat:
            row, col = 0, row
        place = [
            f.iadd(f.imul(i, step), first)
            for i, step, first in zip(
                (self.d, row, col), region.out_step, region.out_first, strict=True
            )
        ]
        operands = f.args[2 + spec.bias : -1]
        for i, (r, c) in enumerate(pixels):
            dr, dc = (0, r) if self.flat else (r, c)
            offset = (0, dr * region.out_step[1], dc * region.out_step[2])
            for j in range(self.blocks):
                where = (self.n, f.iadd(self.block, j), place, offset)
                loaded = load_operands(f, spec.epilogue, operands, *where)
                value = finish_value(f, spec.epilogue, acc[i * self.blocks + j], loaded)
                f.store(value, spec.y.at(f, f.args[-1], *where))
