"""Convolution in groups that do not begin at whole blocks of 16 channels: the general path.

A vector holds 16 output channels, which may belong to several groups and so read different input
channels. Where groups have as many filters as channels and 16 is a multiple of that number, the 16
inputs lie in one block and a shuffle brings each to its lane. Otherwise inputs are gathered lane by
lane: right for every number of groups and of channels per group, and slow.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.layout import finished
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.products.steps import multiply_add, products, widened
from verax.compiler.kernels.sizes import Size, static_size
from verax.compiler.kernels.target import LANES


def pack_grouped_weights(weights: np.ndarray, spec: ConvSpec) -> np.ndarray:
    """Per phase [output block][input block of the group][tap][channel][16].

    weights: (filters, channels of a group, kd, kh, kw), whichever way the convolution goes.
    """
    filters, channels = static_size(spec.filters), static_size(spec.group_channels)
    w = np.asarray(weights, spec.types.weights).reshape(filters, channels, *spec.kernel)
    w = np.pad(w, ((0, -filters % LANES), *[(0, 0)] * 4))
    w = w.reshape(-1, LANES, *w.shape[1:])
    panels = [np.zeros(0, w.dtype)]
    for phase in spec.phases():
        taps = w
        for axis, indices in enumerate(phase.taps):
            taps = np.take(taps, indices, axis=3 + axis)
        taps = taps.reshape(*w.shape[:3], -1)  # block, lane, channel, tap
        for block in taps:
            for first in range(0, channels, LANES):
                panels.append(block[:, first : first + LANES].transpose(2, 1, 0).reshape(-1))
    return np.concatenate(panels)


def emit_grouped(module: ModuleBuilder, spec: ConvSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel for any `spec`; arguments as `ConvSpec` lists them. Items: a row of outputs of one
    block of filters."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("grouped", spec), 3 + spec.bias + len(operands))
    if f.kernel is not None:
        return f.kernel
    items = weights = 0
    batch, blocks = static_size(spec.batch), -(-static_size(spec.filters) // LANES)
    for phase in (r for r in spec.phases() if math.prod(r.count)):
        depth, rows, cols = map(static_size, phase.count)
        count = batch * blocks * depth * rows
        start = f.clamp(f.iadd(f.begin, -items), 0, count)
        with f.loop(f.clamp(f.iadd(f.end, -items), 0, count), start=start) as item:
            n, block, d, row = f.split(item.index, blocks, depth, rows)
            for first, trips, size in _pieces(spec, cols):
                with f.loop(trips) as t:
                    col = f.iadd(f.imul(t.index, size), first)
                    _Outputs(f, spec, phase, n, block, (d, row, col), size, weights).emit()
        items += count
        weights += blocks * LANES * static_size(spec.group_channels) * math.prod(phase.tap_counts)
    outputs = spec.batch * math.prod(spec.output) * spec.filters
    return f.finish(items, spec.flops, 4 * (outputs + weights))


SHUFFLED_TILE, GATHERED_TILE = 8, 4
"""Neighboring outputs computed together: enough chains to hide latency, or to share addresses."""


def _pieces(spec: ConvSpec, columns: int) -> list[tuple[int, int, int]]:
    """(first, trips, size) of the tiles of a row. Gathers are long, so what is left over is taken
    one by one, in a loop."""
    tile = SHUFFLED_TILE if _shuffles(spec) else GATHERED_TILE
    full, remainder = divmod(columns, tile)
    left = (full * tile, 1, remainder) if _shuffles(spec) else (full * tile, remainder, 1)
    return [piece for piece in ((0, full, tile), left) if piece[1] and piece[2]]


def _shuffles(spec: ConvSpec) -> bool:
    """Whether a block of filters reads exactly the block of input channels at the same place."""
    square = spec.group_channels == spec.group_filters
    return square and LANES % static_size(spec.group_channels) == 0 and spec.x.lane == 1


@dataclasses.dataclass
class _Outputs:
    """`size` neighboring outputs of one block of filters, from `position` in a phase."""

    f: FunctionBuilder
    spec: ConvSpec
    phase: Phase
    n: Index
    block: Index
    position: tuple[Index, Index, Index]
    size: int
    weights: int

    def emit(self) -> None:
        f, spec, phase = self.f, self.spec, self.phase
        taps, channels = phase.tap_counts, static_size(spec.group_channels)
        per_block = channels * math.prod(taps) * LANES
        kind = spec.types.x
        w = f.at(f.args[1], (self.block, per_block), self.weights, dtype=spec.types.weights)
        strides = zip(phase.first, phase.step, self.position, spec.x.space, strict=True)
        terms = [(f.iadd(f.imul(i, step), first), s) for first, step, i, s in strides]
        x = f.at(f.args[0], (self.n, spec.x.batch), *terms, dtype=kind)
        if spec.bias:
            bias = f.at(f.args[2], (self.block, LANES), dtype=spec.types.sum)
            start = f.load(bias, spec.types.sum)
        else:
            start = products(f, spec.types).zero()
        state = [w, *[start] * self.size]
        steps = [a * s for a, s in zip(phase.tap_step, spec.x.space, strict=True)]
        base = [] if _shuffles(spec) else _first_channels(f, spec, self.block)
        for first in range(0, channels if math.prod(taps) else 0, LANES):
            count = min(LANES, channels - first)
            with f.loop(taps[0], carry=state) as kd:
                with f.loop(taps[1], carry=kd.values) as kh:
                    with f.loop(taps[2], carry=kh.values) as kw:
                        moves = zip((kd.index, kh.index, kw.index), steps, strict=True)
                        source = f.at(x, *moves, dtype=kind)
                        if base:
                            kw.next(self._gathered(source, base, first, count, kw.values))
                        else:
                            kw.next(self._shuffled(source, kw.values))
                    kh.next(kw.results)
                kd.next(kh.results)
            state = kd.results
        self._store(state[1:])

    def _shuffled(self, x: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
        """One kernel position: whole blocks are loaded, and each channel shuffled to its lanes."""
        f, group = self.f, static_size(self.spec.group_channels)
        types = self.spec.types
        x = f.anchor(f.at(x, (self.block, self.spec.x.block), dtype=types.x))
        across = self.phase.step[2] * self.spec.x.pixel
        inputs = [
            widened(f, f.load(f.at(x, i * across, dtype=types.x), types.x), types)
            for i in range(self.size)
        ]
        w, acc = state[0], list(state[1:])
        for c in range(group):
            weight = f.load(f.at(w, c * LANES, dtype=types.weights), types.weights)
            lanes = [lane // group * group + c for lane in range(LANES)]
            for i, value in enumerate(inputs):
                acc[i] = multiply_add(f, types, f.shuffle(value, lanes), weight, acc[i])
        return [f.at(w, group * LANES, dtype=types.weights), *acc]

    def _gathered(
        self, x: ir.Value, base: list[ir.Value], first: int, count: int, state: list[ir.Value]
    ) -> list[ir.Value]:
        """One kernel position, `count` channels from `first`."""
        f = self.f
        across = self.phase.step[2] * self.spec.x.pixel
        with f.loop(count, carry=state) as c:
            inputs = _gather(f, self.spec, x, base, f.iadd(c.index, first), self.size, across)
            types = self.spec.types
            weight = f.load(c.values[0], types.weights)
            terms = zip(inputs, c.values[1:], strict=True)
            acc = [multiply_add(f, types, widened(f, v, types), weight, a) for v, a in terms]
            c.next([f.at(c.values[0], LANES, dtype=types.weights), *acc])
        return c.results

    def _store(self, acc: list[ir.Value]) -> None:
        f, spec, phase = self.f, self.spec, self.phase
        position = [
            f.iadd(f.imul(i, step), first)
            for i, step, first in zip(self.position, phase.out_step, phase.out_first, strict=True)
        ]
        locations = [
            (self.n, self.block, position, (0, 0, i * phase.out_step[2])) for i in range(len(acc))
        ]
        results = finished(f, spec.epilogue, f.args[2 + spec.bias : -1], acc, locations)
        for location, result in zip(locations, results, strict=True):
            f.store(result, spec.y.at(f, f.args[-1], *location, dtype=spec.types.y))


def _first_channels(f: FunctionBuilder, spec: ConvSpec, block: Index) -> list[ir.Value]:
    """Per lane, the first input channel of its filter's group; spare lanes repeat the last."""
    channels = []
    for lane in range(LANES):
        filter_ = f.clamp(f.iadd(f.imul(block, LANES), lane), 0, spec.filters - 1)
        group = f.b.udiv(f.i64(filter_), f.i64(spec.group_filters))
        channels.append(f.b.mul(group, f.i64(spec.group_channels)))
    return channels


def _gather(
    f: FunctionBuilder,
    spec: ConvSpec,
    x: ir.Value,
    base: list[ir.Value],
    channel: Index,
    size: int,
    across: Size,
) -> list[ir.Value]:
    """Input channel base[lane] + channel in each lane, of `size` pixels `across` apart."""
    kind = spec.types.x
    vectors: list[ir.Value] = [ir.Constant(f.vector_type(kind), ir.Undefined)] * size
    for lane, first in enumerate(base):
        at = f.b.add(first, f.i64(channel))
        block, within = f.b.lshr(at, f.i64(LANES.bit_length() - 1)), f.b.and_(at, f.i64(LANES - 1))
        terms = (block, spec.x.block), (within, spec.x.lane)
        source = f.anchor(f.at(x, *terms, dtype=kind))
        for i in range(size):
            value = f.load(f.at(source, i * across, dtype=kind), kind, lanes=0)
            vectors[i] = f.b.insert_element(vectors[i], value, ir.Constant(I32, lane))
    return vectors
