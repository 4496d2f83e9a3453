"""Convolution in groups that cut through blocks of 16 channels on a GPU: a thread computes some
outputs of a row for one filter. Neighboring threads have neighboring filters, whose weights lie
together. Blocks of channels, kernel positions and channels come in the order of the weights.
"""

from __future__ import annotations

import dataclasses
import math

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.gpu.depthwise import MOST_COLS
from verax.compiler.kernels.gpu.finish import Channels
from verax.compiler.kernels.gpu.index32 import Index32
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES


@dataclasses.dataclass(frozen=True)
class FilterSchedule(ConvSchedule):
    """`cols` outputs of a row are a thread's; nothing else of `ConvSchedule` says anything."""

    blocks: int = 1
    cols: int = 4

    def __str__(self) -> str:
        return f"{self.cols} outputs by a filter of a thread"


def takes(spec: ConvSpec) -> bool:
    """Whether `emit_filters` makes the kernel."""
    factors = spec.types.x, spec.types.weights, spec.types.sum
    is_depthwise = spec.depthwise and spec.x.lane == 1
    is_other = spec.aligned or is_depthwise or spec.paired
    return not is_other and factors == ("float32",) * 3 and spec.y.lane == 1


def filters_admitted(schedule: object) -> bool:
    """Whether a kernel of known sizes may have a schedule."""
    return (
        isinstance(schedule, FilterSchedule)
        and type(schedule.cols) is int
        and 1 <= schedule.cols <= MOST_COLS
        and schedule == FilterSchedule(cols=schedule.cols)
    )


def emit_filters(module: ModuleBuilder, spec: ConvSpec, schedule: FilterSchedule) -> Kernel:
    """As `convolution.grouped.emit_grouped`. Items: some outputs of a row of a filter."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("grouped", spec, schedule), 3 + spec.bias + len(operands))
    if f.kernel is not None:
        return f.kernel
    batch, blocks = static_size(spec.batch), -(-static_size(spec.filters) // LANES)
    items = weights = 0
    phases = [phase for phase in spec.phases() if math.prod(phase.count)]
    with f.items() as item:
        for phase in phases:
            depth, rows, cols = map(static_size, phase.count)
            width = min(schedule.cols, cols)
            count = batch * blocks * depth * rows * -(-cols // width) * LANES
            own = f.iadd(item.index, -items)
            with f.when(f.b.icmp_unsigned("<", f.i64(own), f.i64(count))):
                _Filter(f, spec, phase, width, own, weights).emit()
            items += count
            terms = static_size(spec.group_channels) * math.prod(phase.tap_counts)
            weights += blocks * LANES * terms
    outputs = spec.batch * math.prod(spec.output) * spec.filters
    return f.finish(items, spec.flops, 4 * (outputs + weights))


class _Filter:
    """The outputs of a thread, which is number `item` of a phase whose weights begin at
    `first_weight`."""

    def __init__(
        self,
        f: FunctionBuilder,
        spec: ConvSpec,
        phase: Phase,
        width: int,
        item: Index,
        first_weight: int,
    ) -> None:
        self.f, self.n, self.spec, self.phase, self.width = f, Index32(f), spec, phase, width
        n, (depth, rows, cols) = self.n, map(static_size, phase.count)
        blocks = -(-static_size(spec.filters) // LANES)
        extents = blocks, depth, rows, -(-cols // width), LANES
        image, block, d, row, strip, lane = n.split(n.truncated(item), *extents)
        self.begin = n.mul(strip, width)
        self.col = n.minimum(self.begin, cols - width)  # the last strip ends with the row
        self.image, self.block, self.lane = n.wide(image), n.wide(block), n.wide(lane)
        self.row = [n.wide(d), n.wide(row)]
        channels = static_size(spec.group_channels)
        last = static_size(spec.filters) - 1
        filter_index = n.minimum(
            n.add(n.mul(block, LANES), lane), last
        )  # spare lanes do as the last
        self.first_channel = n.mul(
            n.divmod(filter_index, static_size(spec.group_filters))[0], channels
        )
        start = self.block, channels * math.prod(phase.tap_counts) * LANES
        self.weights = f.at(f.args[1], start, self.lane, first_weight)
        x = spec.x
        steps = [a * s for a, s in zip(phase.step, x.space, strict=True)]
        first = sum(a * s for a, s in zip(phase.first, x.space, strict=True))
        position = zip((*self.row, n.wide(self.col)), steps, strict=True)
        self.x = f.at(f.args[0], (self.image, x.batch), *position, first)
        self.x_step = steps[2]

    def emit(self) -> None:
        f, spec = self.f, self.spec
        start: ir.Value = f.constant(0.0, lanes=0)
        if spec.bias:
            start = f.load(f.at(f.args[2], (self.block, LANES), self.lane), lanes=0)
        sums = [start] * self.width
        full, remainder = divmod(static_size(spec.group_channels), LANES)
        if math.prod(self.phase.tap_counts):
            for first, trips, count in ((0, full, LANES), (full, 1, remainder)):
                if not trips or not count:
                    continue
                with f.loop(trips, carry=sums) as block:
                    index = f.iadd(block.index, first)
                    block.next(self._taps(index, count, list(block.values)))
                sums = list(block.results)
        self._finish(sums)

    def _taps(self, block: Index, count: int, sums: list[ir.Value]) -> list[ir.Value]:
        """All kernel positions of `count` channels of a block of the group's."""
        f, phase = self.f, self.phase
        depth, rows, cols = phase.tap_counts
        steps = [a * s for a, s in zip(phase.tap_step, self.spec.x.space, strict=True)]
        before = f.imul(block, LANES * depth * rows * cols)
        with f.loop(depth, carry=sums) as z:
            with f.loop(rows, carry=z.values) as y:
                with f.loop(cols, carry=y.values) as k:
                    tap = f.iadd(f.imul(f.iadd(f.imul(z.index, rows), y.index), cols), k.index)
                    x = f.at(self.x, *zip((z.index, y.index, k.index), steps, strict=True))
                    term = f.iadd(before, f.imul(tap, count))
                    with f.loop(count, carry=k.values) as c:
                        channel = f.iadd(f.imul(block, LANES), c.index)
                        c.next(self._add(x, channel, f.iadd(term, c.index), list(c.values)))
                    k.next(c.results)
                y.next(k.results)
            z.next(y.results)
        return list(z.results)

    def _add(
        self, x: ir.Value, channel: Index, term: Index, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """sums + a channel of the group, counted from its first, times its weight."""
        f, n, strides = self.f, self.n, self.spec.x
        weight = f.load(f.at(self.weights, (term, LANES)), lanes=0)
        block, lane = n.divmod(n.add(self.first_channel, n.truncated(channel)), LANES)
        source = f.at(x, (n.wide(block), strides.block), (n.wide(lane), strides.lane))
        values = [f.load(f.at(source, i * self.x_step), lanes=0) for i in range(self.width)]
        return [f.fma(value, weight, total) for value, total in zip(values, sums, strict=True)]

    def _finish(self, sums: list[ir.Value]) -> None:
        """Through the epilogue and to y, but for columns that the strip before has."""
        f, n, spec, phase = self.f, self.n, self.spec, self.phase
        operands = f.args[2 + spec.bias : -1]
        for i, total in enumerate(sums):
            col = n.add(self.col, i)
            grid = zip((*self.row, n.wide(col)), phase.out_step, phase.out_first, strict=True)
            position = [f.iadd(f.imul(at, step), first) for at, step, first in grid]
            channel = Channels(f, 0, self.image, self.block, self.lane, position)
            with f.when(f.b.not_(n.less(col, self.begin))):
                result = channel.finished(spec.epilogue, operands, total)
                f.store(result, channel.of_tensor(spec.y, f.args[-1], spec.types.y))
