"""Products and direct convolutions by blocks of threads.

A block computes a tile of pixels by filters: of a product, of rows by columns. It goes through the
terms of the sums once, in the order of the packed weights, a multiply-add for each term and output;
so each output is one chain, which starts from the bias, and its bits are the CPU's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext

from verax.compiler.kernels.convolution.schedule import filter_blocks
from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.gpu.outputs import Outputs
from verax.compiler.kernels.gpu.staging import (
    CHUNK,
    CHUNK_BYTES,
    ROW_BYTES,
    Offset,
    Staging,
    Terms,
    chunks_are_aligned,
    is_aligned,
    is_short,
    offset_of,
    swizzled_weight,
)
from verax.compiler.kernels.gpu.tiles import (
    TERMS,
    TileSchedule,
    own_weights,
    pixels_of,
    tiles_of,
)
from verax.compiler.kernels.gpu.words import add_words, come_in_words, in_words
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import F32, I8, I32, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import WARP, BlockBuilder, block_kernel
from verax.compiler.kernels.sizes import Size
from verax.compiler.kernels.target import LANES


def takes(spec: ConvSpec) -> bool:
    """Whether `emit_tiled` makes the kernel: for sums of float32 or of integers of 8 and 16 bits,
    of groups that begin at whole blocks, of filters that are neighbors where they are written."""
    factors = spec.types.x, spec.types.weights, spec.types.sum
    is_depthwise = spec.depthwise and spec.x.lane == 1
    return (
        (factors == ("float32",) * 3 or come_in_words(spec))
        and spec.aligned
        and not is_depthwise
        and not spec.paired
        and spec.y.lane == 1
    )


def tile_kernel(
    module: ModuleBuilder, key: Hashable, n_args: int, schedule: TileSchedule, hint: str
) -> BlockBuilder:
    """As `block_kernel`, with what the tiles of a schedule take."""
    return block_kernel(
        module,
        (key, schedule),
        n_args,
        schedule.threads,
        schedule.shared_bytes,
        schedule.resident,
        hint,
    )


def emit_tiled(module: ModuleBuilder, spec: ConvSpec, schedule: TileSchedule) -> Kernel:
    """The kernel for `spec`, which it `takes`; arguments as `ConvSpec` lists them, weights packed
    with this schedule. An item is a tile."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    n_args = 3 + spec.extra_arguments + len(operands)
    f = tile_kernel(module, ("tiled", spec), n_args, schedule, "conv")
    if f.kernel is not None:
        return f.kernel
    phases = [r for r in spec.phases() if math.prod(r.count) != 0]
    items: Size = 0
    weights: Size = 0
    for phase in phases:
        one = PhaseTiles(f, in_words(spec), schedule, phase, items, weights)
        one.emit(alone=len(phases) == 1)
        items += one.items
        weights += one.weights
    size, flops = 4 // spec.step, spec.flops
    outputs = spec.batch * math.prod(spec.output) * spec.filters
    inputs = spec.batch * spec.channels * math.prod(hi - lo for lo, hi in spec.input_extent())
    return f.finish(items, flops, 4 * (outputs + weights) + size * inputs)


class PhaseTiles:
    """The tiles of one phase. first_item, first_weight: how many are before them."""

    def __init__(
        self,
        f: BlockBuilder,
        spec: ConvSpec,
        schedule: TileSchedule,
        phase: Phase,
        first_item: Size,
        first_weight: Size,
    ) -> None:
        self.f, self.n, self.spec, self.schedule = f, Index32(f), spec, schedule
        self.phase, self.first_item, self.first_weight = phase, first_item, first_weight
        self.vector = ir.VectorType(F32 if spec.step == 1 else I32, CHUNK)
        self.tiles = tiles_of(spec, phase, schedule)
        self.items: Size = math.prod(self.tiles)
        self.terms = Terms(spec, phase, self.n)
        self.panel = self.terms.count * LANES
        self.panel_step = self.panel
        self.weights = spec.groups * filter_blocks(spec) * self.panel

    def emit(self, alone: bool) -> None:
        """The tile of this block, if it is one of these. alone: there are no others."""
        with nullcontext() if alone else self._mine():
            self._emit_tile()

    def _mine(self) -> AbstractContextManager[None]:
        f = self.f
        item = f.iadd(f.begin, -self.first_item)
        return f.when(f.b.icmp_unsigned("<", f.i64(item), f.i64(self.items)))

    def locate(self) -> tuple[Int, Int]:
        """Which tile this block's is, and this thread's row and column in the block."""
        f, n, spec, s = self.f, self.n, self.spec, self.schedule
        item = n.truncated(f.iadd(f.begin, -self.first_item))
        image, group, down, across = n.split(item, *map(n.of, self.tiles[1:]))
        self.image = n.split(image, n.of(self.phase.count[0])) if own_weights(spec) else None
        self.total = n.of(pixels_of(spec, self.phase))
        self.first_pixel = n.mul(down, s.pixels)
        self.group_index = group
        self.first_panel = n.mul(across, s.filters // LANES)
        return self._place_of_thread()

    def _emit_tile(self) -> None:
        f, n, spec = self.f, self.n, self.spec
        row, column = self.locate()
        outputs = self._outputs(row, column)
        sums = outputs.start()
        if self.terms.count != 0:
            first = sum(a * s for a, s in zip(self.phase.first, spec.x.space, strict=True))
            of_x, of_weights = f.at(f.args[0], first), f.at(f.args[1], self.first_weight)
            sums = self.emit_sums(row, column, sums, of_x, of_weights)
            outputs = self._outputs(*(n.anew(i) for i in (row, column)))
        outputs.finish(sums)

    def _outputs(self, row: Int, column: Int) -> Outputs:
        """The outputs of the thread at that place of the block."""
        n, s = self.n, self.schedule
        pixels = [
            self._position(n.add(self.first_pixel, n.add(row, i * s.down)))
            for i in range(s.thread_pixels)
        ]
        first = self.first_panel
        return Outputs(self.f, self.spec, self.phase, s, self.group_index, first, pixels, column)

    def _place_of_thread(self) -> tuple[Int, Int]:
        """Row and column of this thread in the block: of a warp 8 by 4, neighbors in one row."""
        n, s = self.n, self.schedule
        warp, lane = n.divmod(self.f.thread, WARP)
        column = n.or_(n.and_(lane, 1), n.mul(n.divmod(lane, 16)[0], 2))
        row = n.and_(n.divmod(lane, 2)[0], 7)
        warp_row, warp_column = n.divmod(warp, s.across // 4)
        return n.add(row, n.mul(warp_row, 8)), n.add(column, n.mul(warp_column, 4))

    def _position(self, pixel: Int) -> tuple[list[Int], ir.Value]:
        """Image, depth, row and column in the phase's grid of the tile's image, the last one for
        pixels beyond it, and whether there is such a pixel (i1)."""
        n, (depth, rows, cols) = self.n, self.phase.count
        exists = n.less(pixel, self.total)
        inside = n.minimum(pixel, n.sub(self.total, 1))
        if self.image is not None:
            return [*self.image, *n.split(inside, n.of(cols))], exists
        return n.split(inside, n.of(depth), n.of(rows), n.of(cols)), exists

    # --- sums

    def emit_sums(
        self,
        row: Int,
        column: Int,
        sums: list[ir.Value],
        of_x: ir.Value,
        of_weights: ir.Value,
    ) -> list[ir.Value]:
        """`sums` of the thread at that place of the block, by pixel and chunk of filters, and all
        terms. of_x, of_weights: where both tensors begin."""
        f, n, s = self.f, self.n, self.schedule
        by_chunk = chunks_are_aligned(self.spec.x, self.phase, self.terms.group)
        staging = Staging(f, s, self.terms, by_chunk)
        inputs = [self._input(i) for i in staging.row_indices()]
        panels = [self._panel(i) for i in staging.panel_indices()]
        staging.read_from(inputs, panels, of_x, of_weights)
        aligned = is_aligned(f, [of_x, of_weights] if by_chunk else [of_weights])
        for stage in range(s.stages - 1):
            self._copy(staging, stage * s.steps, stage * s.stage_bytes, aligned)
        rounds = -(-self.terms.steps // s.steps)
        first_read = self._read_places(row, column)
        ring = [ir.Constant(I32, 0), ir.Constant(I32, (s.stages - 1) * s.stage_bytes)]
        with f.loop(rounds, carry=[*ring, *sums]) as trip:
            read, write, *sums = trip.values
            f.await_copies(s.stages - 2)
            f.barrier()
            ahead = n.mul(n.add(n.truncated(trip.index), s.stages - 1), s.steps)
            self._copy(staging, ahead, write, aligned)
            sums = self._multiply(first_read, read, sums)
            trip.next([self._following(read), self._following(write), *sums])
        return trip.results[2:]

    def _copy(self, staging: Staging, step: Int, stage: Int, aligned: ir.Value) -> None:
        """Begin to copy the steps from `step` on, if there are any: a group of copies."""
        steps = self.n.of(self.terms.steps)
        if isinstance(step, int) and isinstance(steps, int):
            if step < steps:
                staging.copy(step, stage, aligned)
        else:
            with self.f.when(self.n.less(step, steps)):
                staging.copy(step, stage, aligned)
        self.f.commit_copies()

    def _following(self, stage: ir.Value) -> ir.Value:
        """The stage behind, the first one behind the last."""
        n, s = self.n, self.schedule
        following = n.value(n.add(stage, s.stage_bytes))
        last = self.f.b.icmp_signed("==", following, ir.Constant(I32, s.shared_bytes))
        return self.f.b.select(last, ir.Constant(I32, 0), following)

    def _input(self, pixel: Int) -> Offset:
        """Where the x of a pixel of the tile lies, at the group's first channel and the first
        kernel position."""
        n, phase, x = self.n, self.phase, self.spec.x
        (image, *position), _ = self._position(n.add(self.first_pixel, pixel))
        steps = [a * s for a, s in zip(phase.step, x.space, strict=True)]
        group = self.group_index, self.terms.group
        terms = [(image, x.batch), group, *zip(position, steps, strict=True)]
        return offset_of(n, terms, self.terms.is_short)

    def _panel(self, panel: Int) -> Offset:
        """Where the weights of a panel of the tile lie, the last one where there are fewer."""
        n, spec = self.n, self.spec
        blocks = n.of(filter_blocks(spec))
        here = n.minimum(n.add(self.first_panel, panel), n.sub(blocks, 1))
        terms = [(n.add(n.mul(self.group_index, blocks), here), self.panel_step)]
        counts: list[tuple[Size, Size]] = [(spec.groups * filter_blocks(spec), self.panel_step)]
        if self.image is not None:
            terms += zip(self.image, spec.weight_strides, strict=True)
            images = (spec.batch, self.phase.count[0])
            counts += zip(images, spec.weight_strides, strict=True)
        return offset_of(n, terms, is_short(counts))

    def _read_places(self, row: Int, column: Int) -> tuple[list[Int], list[Int]]:
        """Bytes of a stage from which this thread reads: by the chunk of terms its first pixel's,
        and its first filters' in terms of even and of odd number."""
        n, s = self.n, self.schedule
        key = n.and_(n.divmod(row, 2)[0], CHUNK - 1)
        of_x = [
            n.add(n.mul(row, ROW_BYTES), n.mul(n.xor(key, q), CHUNK_BYTES))
            for q in range(TERMS // CHUNK)
        ]
        begin = s.steps * s.x_bytes
        of_weights: list[Int] = []
        for odd in (0, 1):
            position = column
            if s.across >= 2 * CHUNK:
                position = swizzled_weight(column, odd, s.filters, n)
            of_weights.append(n.add(n.mul(position, CHUNK_BYTES), begin))
        return of_x, of_weights

    def _multiply(
        self, first_read: tuple[list[Int], list[Int]], stage: ir.Value, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """The sums with the terms of a stage."""
        f, n, s, sums = self.f, self.n, self.schedule, list(sums)
        of_x = [self._shared(n.add(stage, at)) for at in first_read[0]]
        of_weights = [self._shared(n.add(stage, at)) for at in first_read[1]]
        groups = s.thread_filters // CHUNK
        for u in range(s.steps):
            for q in range(TERMS // CHUNK):
                x = [
                    self._load(of_x[q], u * s.x_bytes + i * s.down * ROW_BYTES)
                    for i in range(s.thread_pixels)
                ]
                for k in range(CHUNK):
                    term = q * CHUNK + k
                    begin = u * s.weight_bytes + term * 4 * s.filters
                    weights = [
                        self._load(of_weights[term % 2], begin + self._group(j, term) * CHUNK_BYTES)
                        for j in range(groups)
                    ]
                    for i in range(s.thread_pixels):
                        value = f.shuffle(x[i], [k] * CHUNK)
                        # There and back, so that a factor is used again at once.
                        for j in range(groups) if i % 2 == 0 else reversed(range(groups)):
                            at = i * groups + j
                            sums[at] = self._added(value, weights[j], sums[at])
        return sums

    def _added(self, x: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
        """`total` and a term's products."""
        if self.spec.step == 1:
            return self.f.fma(x, weights, total)
        return add_words(self.f, self.spec.step, x, weights, total)

    def _group(self, j: int, term: int) -> int:
        """Chunks from a thread's first filters to its `j`-th."""
        s = self.schedule
        if s.across == CHUNK and s.filters >= 2 * LANES:  # the exchange is of whole groups
            j ^= term % 2
        return j * s.across

    def _shared(self, byte: Int) -> ir.Value:
        return self.f.b.gep(self.f.shared, [self.n.value(byte)], I8)

    def _load(self, pointer: ir.Value, byte: int) -> ir.Value:
        address = self.f.b.gep(pointer, [ir.Constant(I32, byte)], I8)
        return self.f.b.load(address, align=CHUNK_BYTES, typ=self.vector)
