"""Depthwise convolution on a GPU: a thread computes some outputs of a row for four channels.

Neighboring threads have neighboring channels and then columns, so a warp reads whole lines. An
input is loaded once for all outputs of the thread. Kernel positions come in ascending order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.gpu.finish import Channels
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.gpu.staging import CHUNK, is_aligned, is_multiple
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.sizes import ceil_div, static_size
from verax.compiler.kernels.target import LANES

CHUNKS = LANES // CHUNK
MOST_COLS = 8
"""Outputs of a thread."""
MOST_UNROLLED = 256
"""Multiply-adds by four channels that are written out; larger kernels loop over rows of taps."""


@dataclasses.dataclass(frozen=True)
class StripSchedule(ConvSchedule):
    """`cols` outputs of a row are a thread's; nothing else of `ConvSchedule` says anything."""

    blocks: int = 1
    cols: int = 4

    def __str__(self) -> str:
        return f"{self.cols} outputs by 4 channels of a thread"


def takes(spec: ConvSpec) -> bool:
    """Whether `emit_strips` makes the kernel."""
    factors = spec.types.x, spec.types.weights, spec.types.sum
    lanes = spec.x.lane, spec.y.lane
    return spec.depthwise and factors == ("float32",) * 3 and lanes == (1, 1)


def strip_schedule(spec: ConvSpec) -> StripSchedule:
    """By rule: as many outputs as a row has, and fewer where strides leave little to share."""
    cols = spec.output[2]
    if not isinstance(cols, int):  # a row may be shorter than a strip
        return StripSchedule(cols=1)
    max_cols = 4 if spec.strides[2] == 1 else 2
    return StripSchedule(cols=min(max_cols, cols))


def strips_admitted(spec: ConvSpec, schedule: object) -> bool:
    """Whether a kernel of known sizes may have a schedule."""
    return (
        isinstance(schedule, StripSchedule)
        and type(schedule.cols) is int
        and 1 <= schedule.cols <= min(MOST_COLS, static_size(spec.output[2]))
        and schedule == StripSchedule(cols=schedule.cols)
    )


def strips_tried(best: ConvSchedule) -> Iterator[ConvSchedule]:
    """Other numbers of outputs of a thread."""
    return (dataclasses.replace(best, cols=cols) for cols in (1, 2, 4, 8, 3, 6))


def emit_strips(module: ModuleBuilder, spec: ConvSpec, schedule: StripSchedule) -> Kernel:
    """Items: strips of outputs by chunks of channels; arguments as `ConvSpec` lists them."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("depthwise", spec, schedule), 3 + spec.bias + len(operands))
    if f.kernel is not None:
        return f.kernel
    blocks = -(-static_size(spec.channels) // LANES)
    depth, rows, cols = spec.output
    across = ceil_div(cols, schedule.cols)
    steps = [a * s for a, s in zip(spec.strides, spec.x.space, strict=True)]
    first = sum(-p * s for p, s in zip(spec.pads, spec.x.space, strict=True))
    distances = [*spec.x.space, spec.x.batch, spec.x.block, first]
    distances += [*spec.y.space, spec.y.batch, spec.y.block]
    by_vector = all(is_multiple(d, CHUNK) for d in distances)
    with f.items() as item:
        n = Index32(f)
        extents = (blocks, *map(n.of, (depth, rows, across)), CHUNKS)
        image, block, d, row, strip, chunk = n.split(n.truncated(item.index), *extents)
        begin = n.mul(strip, schedule.cols)
        col = begin
        if not is_multiple(cols, schedule.cols):  # the last strip is one that ends with the row
            col = n.minimum(begin, n.sub(n.of(cols), schedule.cols))
        terms = zip(map(n.wide, (d, row, col)), steps, strict=True)
        within = n.wide(n.mul(chunk, CHUNK))
        start = (n.wide(image), spec.x.batch), (n.wide(block), spec.x.block)
        x = f.at(f.args[0], *start, *terms, within, first)
        w = f.at(f.args[1], (n.wide(block), math.prod(spec.kernel) * LANES), within)
        strip_ = _Strip(f, n, spec, schedule, x, w, image, block, within, [d, row, col], begin)
        if not by_vector:
            strip_.emit(False)
        else:
            vectors = [f.args[0], f.args[1], *f.args[2 : 2 + spec.bias]]
            with f.b.if_else(is_aligned(f, vectors)) as (yes, no):
                with yes:
                    strip_.emit(True)
                with no:
                    strip_.emit(False)
    outputs = spec.batch * spec.channels * math.prod(spec.output)
    inputs = spec.batch * spec.channels * math.prod(hi - lo for lo, hi in spec.input_extent())
    items = spec.batch * blocks * depth * rows * across * CHUNKS
    return f.finish(items, spec.flops, 4 * (inputs + outputs))


@dataclasses.dataclass(frozen=True)
class _Strip:
    """The outputs of a thread. x, w: their first input and weight; within: of the block of
    channels; position: depth, row and first column; begin: the first column that is stored."""

    f: FunctionBuilder
    n: Index32
    spec: ConvSpec
    schedule: StripSchedule
    x: ir.Value
    w: ir.Value
    image: Int
    block: Int
    within: Index
    position: list[Int]
    begin: Int

    def emit(self, by_vector: bool) -> None:
        """by_vector: x, weights and bias lie at multiples of 16 bytes."""
        f, spec, width = self.f, self.spec, self.schedule.cols
        start = f.constant(0.0, lanes=CHUNK)
        if spec.bias:
            bias = f.at(f.args[2], (self.n.wide(self.block), LANES), self.within)
            start = self._load(bias, by_vector)
        sums = [start] * width
        kd, kh, kw = spec.kernel
        steps = [d * s for d, s in zip(spec.dilations, spec.x.space, strict=True)]
        if kd * kh * kw * width <= MOST_UNROLLED:
            for tap in range(kd * kh):
                z, y = divmod(tap, kh)
                x = f.at(self.x, (z, steps[0]), (y, steps[1]))
                sums = self._row_of_taps(x, f.at(self.w, tap * kw * LANES), sums, by_vector)
        else:
            with f.loop(kd, carry=sums) as z_:
                with f.loop(kh, carry=z_.values) as y_:
                    x = f.at(self.x, (z_.index, steps[0]), (y_.index, steps[1]))
                    row = f.iadd(f.imul(z_.index, kh), y_.index)
                    w = f.at(self.w, (row, kw * LANES))
                    y_.next(self._row_of_taps(x, w, list(y_.values), by_vector))
                z_.next(y_.results)
            sums = z_.results
        self._finish(sums)

    def _load(self, pointer: ir.Value, by_vector: bool) -> ir.Value:
        kind = self.f.vector_type(lanes=CHUNK)
        return self.f.b.load(pointer, align=16 if by_vector else 4, typ=kind)

    def _row_of_taps(
        self, x: ir.Value, w: ir.Value, sums: list[ir.Value], by_vector: bool
    ) -> list[ir.Value]:
        f, spec, kw = self.f, self.spec, self.spec.kernel[2]
        weights = [self._load(f.at(w, k * LANES), by_vector) for k in range(kw)]
        step, dilation = spec.strides[2], spec.dilations[2]
        users: dict[int, list[tuple[int, int]]] = {}
        for c in range(len(sums)):
            for k in range(kw):
                users.setdefault(c * step + k * dilation, []).append((c, k))
        for column, uses in sorted(users.items()):
            value = self._load(f.at(x, (column, spec.x.pixel)), by_vector)
            for c, k in uses:
                sums[c] = f.fma(value, weights[k], sums[c])
        return sums

    def _channels(self, c: int) -> Channels:
        """Those of the `c`-th output."""
        n = self.n
        position = [n.wide(i) for i in (*self.position[:2], n.add(self.position[2], c))]
        image, block = n.wide(self.image), n.wide(self.block)
        return Channels(self.f, CHUNK, image, block, self.within, position)

    def _finish(self, sums: Sequence[ir.Value]) -> None:
        """Through the epilogue and to y, but for columns that the strip before has."""
        f, n, spec = self.f, self.n, self.spec
        is_apart = is_multiple(spec.output[2], self.schedule.cols)
        aligned = None
        if all(is_multiple(s, CHUNK) for s in (*spec.y.space, spec.y.batch, spec.y.block)):
            aligned = is_aligned(f, [f.args[-1]], CHUNK * ELEMENT_SIZES[spec.types.y])
        for c, total in enumerate(sums):
            if is_apart or c == self.schedule.cols - 1:
                self._store(self._finished(total, c), c, aligned)
            else:
                is_before = n.less(n.add(self.position[2], c), self.begin)
                with f.when(f.b.not_(is_before)):
                    self._store(self._finished(total, c), c, aligned)

    def _finished(self, total: ir.Value, c: int) -> ir.Value:
        operands = self.f.args[2 + self.spec.bias : -1]
        return self._channels(c).finished(self.spec.epilogue, operands, total)

    def _store(self, value: ir.Value, c: int, aligned: ir.Value | None) -> None:
        f, kind = self.f, self.spec.types.y
        address = self._channels(c).of_tensor(self.spec.y, f.args[-1], kind)
        if aligned is None:
            f.store(value, address)
            return
        with f.b.if_else(aligned) as (yes, no):
            with yes:
                f.b.store(value, address, align=CHUNK * ELEMENT_SIZES[kind])
            with no:
                f.store(value, address)
