"""The outputs of a thread: what their sums start from, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

from verax.compiler.kernels.convolution.schedule import filter_blocks
from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.gpu.staging import CHUNK, is_aligned, is_multiple
from verax.compiler.kernels.gpu.tiles import TileSchedule
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES, Index
from verax.compiler.kernels.llvm.gpu import BlockBuilder
from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import LANES
from verax.numerics.expr import evaluate


class Outputs:
    """Some pixels by some chunks of filters. group, first_panel: of the tile. pixels: image and
    position in the phase's grid of each, and whether it exists; column: of this thread.

    Pixels and filters that do not exist are computed as the last that do, and not stored.
    """

    def __init__(
        self,
        f: BlockBuilder,
        spec: ConvSpec,
        phase: Phase,
        schedule: TileSchedule,
        group: Int,
        first_panel: Int,
        pixels: Sequence[tuple[list[Int], ir.Value]],
        column: Int,
    ) -> None:
        self.f, self.n, self.spec, self.phase, self.schedule = f, Index32(f), spec, phase, schedule
        first_filter = self.n.mul(first_panel, LANES)
        granularity = CHUNK if spec.exact else LANES
        self.filters: Size = ceil_div(spec.group_filters, granularity) * granularity
        self.has_parts = spec.exact and not is_multiple(spec.filters, CHUNK)
        n, s = self.n, schedule
        self.pixels = [(n.wide(at[0]), self._position(at[1:]), exists) for at, exists in pixels]
        self.chunks: list[tuple[Index, Index, Index | None, ir.Value]] = []
        total = n.of(self.filters)
        for j in range(s.thread_filters // CHUNK):
            filter_ = n.add(first_filter, n.mul(n.add(column, j * s.across), CHUNK))
            exists = n.less(filter_, total)
            inside = n.minimum(filter_, n.sub(total, CHUNK))
            block, within = n.divmod(inside, LANES)
            block = n.add(block, n.mul(group, n.of(filter_blocks(self.spec))))
            count: Index | None = None
            if self.has_parts:
                left = f.iadd(self.spec.filters, f.imul(n.wide(inside), -1))
                count = f.clamp(left, 0, CHUNK)
            self.chunks.append((n.wide(block), n.wide(within), count, exists))

    def _position(self, grid: Sequence[Int]) -> list[Index]:
        n, phase = self.n, self.phase
        return [
            n.wide(n.add(n.mul(i, step), first))
            for i, step, first in zip(grid, phase.out_step, phase.out_first, strict=True)
        ]

    def _at(self, strides: Strides, pointer: ir.Value, i: int, j: int, dtype: str) -> ir.Value:
        """The `j`-th chunk of the `i`-th pixel of a tensor."""
        image, position, _ = self.pixels[i]
        block, within, _, _ = self.chunks[j]
        there = strides.at(self.f, pointer, image, block, position, dtype=dtype)
        return self.f.at(there, (within, strides.lane), dtype=dtype)

    def _load(self, strides: Strides, pointer: ir.Value, i: int, j: int, dtype: str) -> ir.Value:
        f, count = self.f, self.chunks[j][2]
        address = self._at(strides, pointer, i, j, dtype)
        if strides.lane == 0:
            return f.broadcast(address, dtype, CHUNK)
        if count is None:
            return f.load(address, dtype, CHUNK)
        return f.load_first(address, count, dtype, CHUNK)

    def _of_channels(self, pointer: ir.Value, j: int, dtype: str) -> ir.Value:
        block, within, _, _ = self.chunks[j]
        return self.f.load(self.f.at(pointer, (block, LANES), within, dtype=dtype), dtype, CHUNK)

    def start(self) -> list[ir.Value]:
        """What the sums begin with, by pixel and chunk: the bias, a tensor's elements, or +0."""
        f, spec, kind = self.f, self.spec, self.spec.types.sum
        if spec.initial:
            return [
                self._load(spec.initial, f.args[2], i, j, kind)
                for i in range(len(self.pixels))
                for j in range(len(self.chunks))
            ]
        if spec.bias:
            bias = [self._of_channels(f.args[2], j, kind) for j in range(len(self.chunks))]
        else:
            zero = 0.0 if kind.startswith("float") else 0
            bias = [f.constant(zero, kind, CHUNK)] * len(self.chunks)
        return bias * len(self.pixels)

    def finish(self, sums: Sequence[ir.Value]) -> None:
        """Store the sums, after the epilogue."""
        f, spec = self.f, self.spec
        size = ELEMENT_SIZES[spec.types.y]
        wide = [*spec.y.space, spec.y.batch, spec.y.block]
        by_vector = None
        if not self.has_parts and all(is_multiple(s, CHUNK) for s in wide):
            by_vector = is_aligned(f, [f.args[-1]], CHUNK * size)
        shared = self._shared_operands()
        for i, (_, _, pixel_exists) in enumerate(self.pixels):
            with f.when(pixel_exists):
                for j, (_, _, _, filters_exist) in enumerate(self.chunks):
                    with f.when(filters_exist):
                        value = self._finished(sums[i * len(self.chunks) + j], i, j, shared)
                        self._store(value, i, j, by_vector)

    def _shared_operands(self) -> dict[tuple[int, int], ir.Value]:
        """Vectors of channels, by operand and chunk."""
        spec = self.spec
        operands = spec.epilogue.operands if spec.epilogue else ()
        pointers = self.f.args[2 + spec.extra_arguments : -1]
        return {
            (k, j): self._of_channels(pointer, j, operand.dtype)
            for k, (operand, pointer) in enumerate(zip(operands, pointers, strict=True))
            if operand.strides is None
            for j in range(len(self.chunks))
        }

    def _finished(
        self, value: ir.Value, i: int, j: int, shared: dict[tuple[int, int], ir.Value]
    ) -> ir.Value:
        f, spec = self.f, self.spec
        if spec.epilogue is None:
            return value
        inputs = [value]
        pointers = f.args[2 + spec.extra_arguments : -1]
        for k, (operand, pointer) in enumerate(zip(spec.epilogue.operands, pointers, strict=True)):
            if operand.strides is None:
                inputs.append(shared[k, j])
            else:
                inputs.append(self._load(operand.strides, pointer, i, j, operand.dtype))
        return evaluate(spec.epilogue.expr, LlvmArith(f, CHUNK), inputs)  # type: ignore[no-any-return]

    def _store(self, value: ir.Value, i: int, j: int, by_vector: ir.Value | None) -> None:
        f, spec, count = self.f, self.spec, self.chunks[j][2]
        address = self._at(spec.y, f.args[-1], i, j, spec.types.y)
        if count is not None:
            f.store_first(value, address, count)
        elif by_vector is None:
            f.store(value, address)
        else:
            with f.b.if_else(by_vector) as (yes, no):
                with yes:
                    f.b.store(value, address, align=CHUNK * ELEMENT_SIZES[spec.types.y])
                with no:
                    f.store(value, address)
