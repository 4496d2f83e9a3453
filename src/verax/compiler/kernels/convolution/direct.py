"""Direct convolution, ordinary and transposed, on blocked activations.

A tile of outputs (a few pixels by a few blocks of 16 filters) is accumulated in registers over the
whole reduction: per step, of one channel or a pair of integers, one load of weights for each block,
one broadcast of the input for each pixel, and a multiply-add for each of both. Bias starts the sum
and the epilogue ends it, so every output is written once. See `spec` for the order of summation
and `schedule` for tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from verax.compiler.kernels.convolution.finish import Where, finish_stored
from verax.compiler.kernels.convolution.pack import sections
from verax.compiler.kernels.convolution.schedule import (
    ConvSchedule,
    filter_blocks,
    flattened,
    grid,
    passes,
    written_densely,
)
from verax.compiler.kernels.convolution.short_tiles import emit_short_tiles, short_rows
from verax.compiler.kernels.convolution.spare import computed, widened_blocks
from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.convolution.tiles import tile_extent
from verax.compiler.kernels.layout import Sizes, finished, is_long, load_lanes
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
    Term,
)
from verax.compiler.kernels.products.paired_bytes import BLOCK, ENTRY, QUADS, SHUFFLES, entries_at
from verax.compiler.kernels.products.steps import Paired, products
from verax.compiler.kernels.sizes import Size, ceil_div, minimum, static_size
from verax.compiler.kernels.target import LANES


def emit_direct(module: ModuleBuilder, spec: ConvSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel for an aligned `spec`; arguments as `ConvSpec` lists them."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("conv", spec, schedule), 3 + spec.extra_arguments + len(operands))
    if f.kernel is not None:
        return f.kernel
    items: Size = 0
    weights: Size = 0
    phases = [r for r in spec.phases() if math.prod(r.count) != 0]
    sections_emitted: list[BlockPhase] = []
    for phase in phases:
        for first, count, blocks in sections(spec, schedule):
            section = BlockPhase(f, spec, schedule, phase, first, count, blocks, items, weights)
            sections_emitted.append(section)
            items += section.items
            weights += spec.groups * count * section.weights_per_item
    for section in sections_emitted:
        section.emit(alone=len(sections_emitted) == 1)
    outputs = spec.batch * math.prod(spec.output) * spec.filters
    inputs = spec.batch * spec.channels * math.prod(hi - lo for lo, hi in spec.input_extent())
    return f.finish(items, spec.flops, 4 * (outputs + inputs + weights))


class BlockPhase:
    """One phase, for output channel blocks that are taken `blocks` at a time."""

    def __init__(
        self,
        f: FunctionBuilder,
        spec: ConvSpec,
        schedule: ConvSchedule,
        phase: Phase,
        first_block: Size,
        block_groups: Size,
        blocks: int,
        first_item: Size,
        weight_offset: Size,
    ) -> None:
        self.f, self.spec, self.schedule, self.phase = f, spec, schedule, phase
        self.first_block, self.block_groups, self.blocks = first_block, block_groups, blocks
        self.first_item, self.weight_offset = first_item, weight_offset
        self.rows, self.cols = grid(spec, phase)
        self.tile_rows = tile_extent(schedule.rows, self.rows)
        self.tile_cols = tile_extent(schedule.cols, self.cols)
        self.full_tiles, self.rest_rows = divmod(self.rows, self.tile_rows)
        if isinstance(self.full_tiles, int):
            self.chunks: Size = ceil_div(self.full_tiles, schedule.chunk)
        else:  # there may be no full tile at all
            self.chunks = ceil_div(ceil_div(self.rows, self.tile_rows), schedule.chunk)
        self.items = spec.batch * phase.count[0] * self.chunks * spec.groups * block_groups
        self.types, self.products = spec.types, products(f, spec.types, spec.paired)
        self.width = blocks * LANES
        last = first_block + block_groups * blocks == filter_blocks(spec)
        self.spare = schedule.spare if last else 0
        self.step_width = self.width * spec.step
        steps = spec.steps(spec.group_channels) * math.prod(phase.tap_counts)
        self.weights_per_item = steps * self.step_width
        if spec.paired:
            self.weights_per_item = self.weights_per_item // (BLOCK - SHUFFLES) * BLOCK
        self.passes = passes(spec, schedule)
        self.weights_per_pass = self.weights_per_item // self.passes
        self.flat, self.dense = flattened(spec, phase), written_densely(spec, phase)
        self.x_block = spec.x.block
        self.x_row = spec.x.pixel if self.flat else spec.x.row * phase.step[1]
        self.x_col = spec.x.pixel * phase.step[2]
        self.tiles_across = ceil_div(self.cols, self.tile_cols)
        self.ahead = self._ahead() if schedule.ahead else 0
        same = self.types.sum == self.types.y and spec.y.lane == 1
        self.finishes_later = same and is_long(spec.epilogue)
        is_final = self.passes == 1 and not (spec.initial or self.finishes_later or spec.paired)
        overlaps = is_final and isinstance(self.cols, int) and self.cols == 1
        self.short_rows = short_rows(self.tile_rows, blocks, f.module.target) if overlaps else 0

    def _computed(self, vectors: list[Any]) -> list[Any]:
        return computed(self.f, vectors, self.blocks, self.spare)

    def _ahead(self) -> int:
        """Elements of the next item's weights to be prefetched per step."""
        tiles = minimum(self.schedule.chunk, self.full_tiles) + minimum(1, self.rest_rows)
        share = ceil_div(self.step_width, self.tiles_across * tiles)
        return share if isinstance(share, int) else 0

    def emit(self, alone: bool) -> None:
        f, spec = self.f, self.spec
        start: Index = f.begin
        stop: Index = f.end
        if not alone:
            start = f.clamp(f.iadd(f.begin, -self.first_item), 0, self.items)
            stop = f.clamp(f.iadd(f.end, -self.first_item), 0, self.items)
        image = (spec.batch, self.phase.count[0], self.chunks)
        filters = (spec.groups, self.block_groups)
        with f.loop(stop, start=start) as item:
            if self.schedule.filters_outer:
                group, kgroup, n, d, chunk = f.split(item.index, *filters[1:], *image)
            else:
                n, d, chunk, group, kgroup = f.split(item.index, *image[1:], *filters)
            self._emit_item(group, kgroup, n, d, chunk)

    def _emit_item(self, group: Index, kgroup: Index, n: Index, d: Index, chunk: Index) -> None:
        f, spec, phase = self.f, self.spec, self.phase
        x, inputs = spec.x, f.args[0]
        per_group = spec.group_channels * x.lane
        if x.block != x.lane * LANES:
            per_group = spec.group_channels // LANES * x.block if spec.groups > 1 else 0
        first = sum(a * s for a, s in zip(phase.first, x.space, strict=True))
        depth = (d, phase.step[0] * x.depth)
        self.x = f.at(inputs, (n, x.batch), depth, (group, per_group), first, dtype=self.types.x)
        self.order = order = f.iadd(f.imul(group, self.block_groups), kgroup)
        shared = zip((n, d), spec.weight_strides, strict=True)
        self.w = self._weight(
            f.args[1], (order, self.weights_per_item), *shared, self.weight_offset
        )
        blocks = f.iadd(f.imul(group, filter_blocks(spec)), f.imul(kgroup, self.blocks))
        self.block, self.n, self.d = f.iadd(blocks, self.first_block), n, d
        with f.loop(self.passes) as p:
            self.turn, self.pass_w = p.index, self._weight(self.w, (p.index, self.weights_per_pass))
            self.pass_x = self._input(self.x, (p.index, self.schedule.pass_blocks * self.x_block))
            self._emit_pass(chunk)

    def _input(self, pointer: ir.Value, *terms: Term) -> ir.Value:
        return self.f.at(pointer, *terms, dtype=self.types.x)

    def _weight(self, pointer: ir.Value, *terms: Term) -> ir.Value:
        return self.f.at(pointer, *terms, dtype=self.types.weights)

    def _emit_pass(self, chunk: Index) -> None:
        """All tiles of an item, over the input blocks of one pass."""
        f, trips = self.f, self._whole_tiles(chunk)
        with f.loop(trips) as t:
            tile = f.iadd(f.imul(chunk, self.schedule.chunk), t.index)
            self._emit_rows(f.imul(tile, self.tile_rows), self.tile_rows, t.index)
        if self.rest_rows != 0:
            row = self.full_tiles * self.tile_rows
            with self._when_last(chunk):
                if self.short_rows and not isinstance(self.rest_rows, int):
                    count = self.rows, self.rest_rows
                    emit_short_tiles(f, count, row, self.short_rows, self._emit_rows, trips)
                    return
                for first, rows in f.remainder(self.rest_rows, self.tile_rows):
                    self._emit_rows(f.iadd(row, first), rows, trips)

    def _whole_tiles(self, chunk: Index) -> Index:
        """How many tiles of all rows an item has."""
        full, per_chunk = self.full_tiles, self.schedule.chunk
        if isinstance(full, int) and (full % per_chunk == 0 or self.chunks == 1):
            return min(per_chunk, full)
        left = self.f.iadd(full, self.f.imul(chunk, -per_chunk))
        return self.f.clamp(left, 0, per_chunk)

    def _when_last(self, chunk: Index) -> AbstractContextManager[None]:
        if isinstance(chunk, int):
            return nullcontext()
        f, last = self.f, self.f.i64(self.chunks - 1)
        return f.when(f.b.icmp_signed("==", f.i64(chunk), last))

    def _emit_rows(self, row: Index, rows: int, tile: Index) -> None:
        """A row of tiles, the `tile`-th of this item."""
        f, (full, remainder) = self.f, divmod(self.cols, self.tile_cols)
        self.tiles_before = f.imul(tile, self.tiles_across)
        if full != 0:
            with f.loop(full) as c:
                tile = f.iadd(self.tiles_before, c.index)
                self._emit_tile(row, f.imul(c.index, self.tile_cols), rows, self.tile_cols, tile)
        for first, cols in f.remainder(remainder, self.tile_cols):
            col = full * self.tile_cols + first
            self._emit_tile(row, col, rows, cols, f.iadd(self.tiles_before, full))

    def _emit_tile(self, row: Index, col: Index, rows: int, cols: int, tile: Index) -> None:
        """The `tile`-th tile of this item. State of the loops: weights, prefetch, accumulators."""
        f, spec = self.f, self.spec
        x = self._input(self.pass_x, (row, self.x_row), (col, self.x_col))
        pixels = [(r, c) for r in range(rows) for c in range(cols)]
        state = [self.pass_w, *self._computed(self._initial(row, col, pixels))]
        if self.ahead:
            state.insert(1, self._soon(tile))
        full, remainder = divmod(spec.group_channels, LANES)
        full = self.schedule.pass_blocks if self.passes > 1 else full
        if full != 0:
            with f.loop(full, carry=state) as block:
                source = self._input(x, (block.index, self.x_block))
                block.next(self._emit_taps(source, LANES, pixels, block.values))
            state = block.results
        if remainder != 0:
            state = self._emit_taps(self._input(x, full * self.x_block), remainder, pixels, state)
        if spec.paired:
            state = self._emit_further(x, pixels, state)
        acc = widened_blocks(f, state[1 + bool(self.ahead) :], self.blocks, self.spare)
        outputs = list(self._outputs(row, col, pixels))
        if self.passes == 1:
            self._emit_final(row, col, pixels, outputs, acc)
            return
        last = f.b.icmp_signed("==", f.i64(self.turn), f.i64(self.passes - 1))
        with f.b.if_else(last) as (final, partial):
            with final:
                self._emit_final(row, col, pixels, outputs, acc)
            with partial:
                for location, value in zip(outputs, acc, strict=True):
                    self._store(value, *location)

    def _soon(self, tile: Index) -> ir.Value:
        """The weights of the next pass, or item, that the `tile`-th tile fetches."""
        per_tile = self.weights_per_pass // self.step_width * self.ahead
        return self._weight(self.pass_w, self.weights_per_pass, (tile, per_tile))

    def _initial(self, row: Index, col: Index, pixels: list[tuple[int, int]]) -> list[ir.Value]:
        """Accumulators to start from: the bias, or what the pass before has left in y."""
        f, tensor, kind = self.f, self.spec.initial, self.types.sum
        if tensor:
            locations = list(self._outputs(row, col, pixels))
            start = [
                load_lanes(
                    f,
                    tensor,
                    tensor.at(f, f.args[2], *location, dtype=kind),
                    self._lanes(location[1]),
                    kind,
                )
                for location in locations
            ]
        elif self.spec.bias:
            bias = f.at(f.args[2], (self.block, LANES), dtype=kind)
            values = [f.load(f.at(bias, j * LANES, dtype=kind), kind) for j in range(self.blocks)]
            start = values * len(pixels)
        else:
            start = [self.products.zero()] * (self.blocks * len(pixels))
        if self.passes == 1:
            return start
        first = f.b.icmp_signed("==", f.i64(self.turn), f.i64(0))
        left = [
            load_lanes(
                f,
                self.spec.y,
                self.spec.y.at(f, f.args[-1], *location, dtype=kind),
                self._lanes(location[1]),
                kind,
            )
            for location in self._outputs(row, col, pixels)
        ]
        return [f.b.select(first, a, b) for a, b in zip(start, left, strict=True)]

    def _emit_taps(
        self, x: ir.Value, channels: Size, pixels: list[tuple[int, int]], state: list[ir.Value]
    ) -> list[ir.Value]:
        """All kernel positions of one block of `channels` input channels."""
        f, phase = self.f, self.phase
        if not math.prod(phase.tap_counts):
            return state
        steps = [a * s for a, s in zip(phase.tap_step, self.spec.x.space, strict=True)]
        with f.loop(phase.tap_counts[0], carry=state) as kd:
            with f.loop(phase.tap_counts[1], carry=kd.values) as kh:
                with f.loop(phase.tap_counts[2], carry=kh.values) as kw:
                    terms = zip((kd.index, kh.index, kw.index), steps, strict=True)
                    source = self._input(x, *terms)
                    kw.next(self._emit_channels(source, channels, pixels, kw.values))
                kh.next(kw.results)
            kd.next(kh.results)
        return kd.results

    def _emit_channels(
        self, x: ir.Value, channels: Size, pixels: list[tuple[int, int]], state: list[ir.Value]
    ) -> list[ir.Value]:
        """One kernel position: `channels` channels of the reduction."""
        if self.spec.paired:
            return self._emit_block(x, pixels, state)
        f, lane = self.f, self.spec.x.lane * self.spec.step
        fetch = self.schedule.fetch_block and channels == LANES
        steps = self.spec.steps(channels)
        linear = len({r for r, _ in pixels}) == 1 or len({c for _, c in pixels}) == 1
        unroll = min(self.schedule.unroll, steps) if isinstance(steps, int) else 1
        if fetch and (not linear or LANES % unroll):
            unroll = LANES
        full, remainder = steps // unroll, static_size(steps % unroll)
        trips: list[tuple[Size, Size, int]] = [(0, full, unroll), (full * unroll, 1, remainder)]
        for first, count, size in trips:
            if not size:
                continue
            with f.loop(count, carry=state) as trip:
                source = f.anchor(self._input(x, (trip.index, size * lane), first * lane))
                pointers = trip.values[: 1 + bool(self.ahead)]
                w, acc = pointers[0], list(trip.values[len(pointers) :])
                strides = [size * self.step_width, size * self.ahead]
                if self.ahead:
                    for line in range(0, size * self.ahead, LANES * self.spec.step):
                        f.prefetch(self._weight(pointers[1], line), locality=2)
                if fetch:
                    self._fetch_block(source, pixels, trip.index, count)
                for step in range(size):
                    source, w = self._emit_step(source, w, step, pixels, acc)
                pointers[0] = w
                next_pointers = [
                    self._weight(p, s) for p, s in zip(pointers, strides, strict=False)
                ]
                trip.next([*next_pointers, *acc])
            state = trip.results
        return state

    def _emit_block(
        self, x: ir.Value, pixels: list[tuple[int, int]], state: list[ir.Value]
    ) -> list[ir.Value]:
        """One kernel position of a block of bytes, which is shuffled for every step."""
        assert isinstance(self.products, Paired)
        source, (w, *acc) = self.f.anchor(x), state
        for step in range(QUADS):
            self.products.shuffle(self._weight(w, step * LANES))
            weight_offset = SHUFFLES + step * self.step_width
            source, w = self._emit_products(source, w, 0, [weight_offset], pixels, acc)
        return [self._weight(w, BLOCK), *acc]

    def _emit_further(
        self, x: ir.Value, pixels: list[tuple[int, int]], state: list[ir.Value]
    ) -> list[ir.Value]:
        """The steps of weights that are in no safe pair."""
        assert isinstance(self.products, Paired)
        f, b = self.f, self.f.b
        table = f.args[2 + bool(self.spec.bias)]
        ends = [f.at(table, (self.order, 4), at, dtype="int8") for at in (0, 4)]
        start, stop = (b.sext(f.load(end, "int32", lanes=0), I64) for end in ends)
        entries = f.at(table, entries_at(static_size(self.block_groups)), dtype="int8")
        with f.loop(stop, start=start, carry=state[1:]) as step:
            acc, entry = list(step.values), f.at(entries, (step.index, ENTRY), dtype="int8")
            offset = f.load(entry, "int64", lanes=0)
            self.products.shuffle(f.at(entry, 16, dtype="int8"))
            self._emit_products(self._input(x, (offset, 1)), entry, 0, [64], pixels, acc)
            step.next(acc)
        return [state[0], *step.results]

    def _fetch_block(
        self, source: ir.Value, pixels: list[tuple[int, int]], trip: Index, trips: Size
    ) -> None:
        """Prefetch the next input block of a tile, one share in each of `trips` trips."""
        f, block = self.f, self.x_block
        if trips == 1:
            for r, c in pixels:
                f.prefetch(self._input(source, block + r * self.x_row + c * self.x_col))
            return
        stride = self.x_row if pixels[-1][0] else self.x_col
        share = static_size(ceil_div(len(pixels), trips))
        for i in range(share):
            f.prefetch(self._input(source, (trip, share * stride), block + i * stride))

    def _emit_step(
        self,
        x: ir.Value,
        w: ir.Value,
        step: int,
        pixels: list[tuple[int, int]],
        acc: list[ir.Value],
    ) -> tuple[ir.Value, ir.Value]:
        """One step: acc += x * w for every pixel and block. Returns x and w for the next."""
        f, spec = self.f, self.spec
        offset, here = step * spec.x.lane * spec.step, step * self.step_width
        weight_offsets = [here + j * LANES * spec.step for j in range(self.blocks)]
        if self.schedule.near:
            for weight_offset in weight_offsets:
                f.prefetch(self._weight(w, self.schedule.near * self.step_width + weight_offset))
        return self._emit_products(x, w, offset, weight_offsets, pixels, acc)

    def _emit_products(
        self,
        x: ir.Value,
        w: ir.Value,
        offset: Size,
        weight_offsets: Sequence[Size],
        pixels: list[tuple[int, int]],
        acc: list[ir.Value],
    ) -> tuple[ir.Value, ir.Value]:
        """acc += x * w, the data `offset` behind each pixel's, weights at `places`."""
        weights = self._computed(
            [self.products.weights(self._weight(w, p)) for p in weight_offsets]
        )
        for i, (r, c) in enumerate(pixels):
            value = self.products.value(self._input(x, r * self.x_row + c * self.x_col + offset))
            values = self._computed([value] * self.blocks)
            for j, (one, weight) in enumerate(zip(values, weights, strict=True)):
                k = i * self.blocks + j
                acc[k] = self.products.add(one, weight, acc[k])
            ends = i == len(pixels) - 1
            for k in range(i * self.blocks, (i + 1) * self.blocks):
                (x, *more), acc[k] = self.products.after([x, w] if ends else [x], acc[k])
                w = more[0] if more else w
        return x, w

    def _outputs(
        self, row: Index, col: Index, pixels: list[tuple[int, int]]
    ) -> Iterator[tuple[Index, Index, list[Index], Sizes]]:
        """(batch, block, place, offset) of every accumulator, as `Strides.at` takes them."""
        f, phase = self.f, self.phase
        position, offset = self._output_position(row, col), (0, 0, 0)
        for r, c in pixels:
            if self.flat and not self.dense:
                position = self._output_position(f.iadd(row, r), col)
            else:
                dr, dc = (0, r) if self.flat else (r, c)
                offset = (0, dr * phase.out_step[1], dc * phase.out_step[2])
            for j in range(self.blocks):
                yield self.n, f.iadd(self.block, j), position, offset

    def _output_position(self, row: Index, col: Index) -> list[Index]:
        """Depth, row and column in the output of a position on the phase's grid."""
        f, phase = self.f, self.phase
        if self.flat and self.dense:
            row, col = 0, row
        elif self.flat:
            row, col = f.split(row, phase.count[2])
        return [
            f.iadd(f.imul(i, step), first)
            for i, step, first in zip(
                (self.d, row, col), phase.out_step, phase.out_first, strict=True
            )
        ]

    def _emit_final(
        self,
        row: Index,
        col: Index,
        pixels: list[tuple[int, int]],
        outputs: list[tuple[Index, Index, list[Index], Sizes]],
        acc: Sequence[ir.Value],
    ) -> None:
        f, spec = self.f, self.spec
        operands = f.args[2 + spec.extra_arguments : -1]
        if len(acc) > self.blocks and self.finishes_later:
            for location, value in zip(outputs, acc, strict=True):
                self._store(value, *location)

            def wheres(r: Index, c: Index) -> list[Where]:
                position = self._output_position(f.iadd(row, r), f.iadd(col, c))
                blocks = [f.iadd(self.block, j) for j in range(self.blocks)]
                return [(self.n, block, position, (0, 0, 0)) for block in blocks]

            size = pixels[-1][0] + 1, pixels[-1][1] + 1
            finish_stored(f, spec, size, operands, self.blocks, wheres, self._lanes, self._store)
            return
        counts = [self._lanes(location[1]) for location in outputs]
        results = finished(f, spec.epilogue, operands, acc, outputs, counts)
        for location, value in zip(outputs, results, strict=True):
            self._store(value, *location)

    def _lanes(self, block: Index) -> Index | None:
        """Filters of this block that y has; None for all 16."""
        if not self.spec.exact or self.spec.filters % LANES == 0:
            return None
        return self.f.clamp(self.f.iadd(self.spec.filters, self.f.imul(block, -LANES)), 0, LANES)

    def _store(
        self, value: ir.Value, n: Index, block: Index, position: list[Index], offset: Sizes
    ) -> None:
        f, lanes = self.f, self._lanes(block)
        address = self.spec.y.at(f, f.args[-1], n, block, position, offset, self.types.y)
        if lanes is None:
            f.store(value, address)
        else:
            f.store_first(value, address, lanes)
