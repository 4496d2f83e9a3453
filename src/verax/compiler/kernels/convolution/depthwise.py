"""Depthwise convolution: every channel has its own filter, so lanes never mix.

Sixteen channels are computed side by side. An input is loaded once per tile and given to every
output and kernel position that needs it; running over inputs in ascending order is running over
each output's kernel positions in ascending order, so the canonical order holds. Integers are summed
in float32 where no sum can leave its 24 bits: every step is exact then.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from verax.compiler.kernels.convolution.finish import Where, finish_stored
from verax.compiler.kernels.convolution.schedule import ConvSchedule, for_sums
from verax.compiler.kernels.convolution.spare import computed, widened_blocks
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.convolution.tiles import (
    OutputTile,
    Walk,
    choose_chunk,
    choose_tile,
    splits_channels,
)
from verax.compiler.kernels.layout import Triple, finished
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder, Term
from verax.compiler.kernels.llvm.side_by_side import is_chain
from verax.compiler.kernels.products.steps import multiply_add, products, widened
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES, Target

MOST_UNROLLED = 640
"""Multiply-adds written out in a tile; larger ones loop over kernel positions."""

IN_FLIGHT = 4
"""Registers with inputs and weights on their way, where weights are loaded as they are needed: with
sums in these, too, AVX2 spilled, and took 1.4 times as long for 3x3, 1.5 times for 7x7."""

IN_STEP = 8
"""Sums that hide the latency of multiply-adds. Tiles of so many outputs are written out if that can
be: loops over kernel positions load an input for each (7x7 takes 0.8 of the time, Zen 4)."""

WIDEST = 8
"""Outputs in a row of a tile; wider ones were no faster."""


def depthwise_schedule(spec: ConvSpec, target: Target) -> ConvSchedule:
    """A tile that reuses inputs and fits the registers."""
    target = for_sums(spec, target)
    taps, max_outputs = math.prod(spec.kernel), most_outputs(spec, target)
    weights_in_registers = _holds_weights(spec, target)
    (_, kh, kw), (_, sh, sw), (_, dh, dw) = spec.kernel, spec.strides, spec.dilations

    def cycles(rows: int, cols: int) -> float:
        inputs = ((rows - 1) * sh + (kh - 1) * dh + 1) * ((cols - 1) * sw + (kw - 1) * dw + 1)
        loads = inputs * spec.kernel[0] + rows * cols * (0 if weights_in_registers else taps)
        work = max(rows * cols * taps / 2, loads / 2, taps * 4) * target.physical
        return work + rows * cols * target.physical + 6

    count = _outputs(spec)
    rows, cols = choose_tile(count, max_outputs, WIDEST, cycles)
    items = static_size(spec.batch) * _blocks(spec) * count[0]
    outer = splits_channels(count[1], count[2])
    chunk = choose_chunk(items, count[1] // rows, outer)
    return ConvSchedule(
        1, rows, cols, chunk, filters_outer=outer, spare=spare_channels(spec, target)
    )


def spare_channels(spec: ConvSpec, target: Target) -> int:
    """Number of unused lanes of the last channel block, a multiple of a register's lanes.

    0 unless all types are float32: only floats are computed for part of a block."""
    if {spec.types.x, spec.types.weights, spec.types.sum} != {"float32"}:
        return 0
    register_lanes = LANES // target.physical
    return -static_size(spec.channels) % LANES // register_lanes * register_lanes


def most_outputs(spec: ConvSpec, target: Target) -> int:
    """Outputs of a tile whose sums fit the register file, beside its weights or those in flight."""
    taps = math.prod(spec.kernel)
    other_registers = taps * target.physical if _holds_weights(spec, target) else IN_FLIGHT
    fitting = max(1, min(14, (target.registers - 3 - other_registers) // target.physical))
    unrolled = MOST_UNROLLED // taps
    return min(fitting, unrolled) if unrolled >= IN_STEP else fitting


def _outputs(spec: ConvSpec) -> Triple:
    """Of a known size, for which schedules are chosen."""
    depth, rows, cols = map(static_size, spec.output)
    return depth, rows, cols


def _blocks(spec: ConvSpec) -> int:
    return -(-static_size(spec.channels) // LANES)


def _holds_weights(spec: ConvSpec, target: Target) -> bool:
    """Whether all weights of a block stay in registers."""
    return math.prod(spec.kernel) * target.physical <= target.registers // 2


def pack_depthwise_weights(weights: np.ndarray, spec: ConvSpec) -> np.ndarray:
    """[block][kernel position][16] from (channels, 1, kd, kh, kw), zero beyond the channels."""
    w = np.asarray(weights, spec.types.weights).reshape(static_size(spec.channels), -1)
    w = np.pad(w, ((0, -static_size(spec.channels) % LANES), (0, 0)))
    return np.ascontiguousarray(w.reshape(-1, LANES, w.shape[1]).swapaxes(1, 2)).reshape(-1)


def emit_depthwise(module: ModuleBuilder, spec: ConvSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel for a `spec.depthwise` convolution; arguments as `ConvSpec` lists them."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("depthwise", spec, schedule), 3 + spec.bias + len(operands))
    if f.kernel is not None:
        return f.kernel
    tile_walk = Walk(
        spec.batch, _blocks(spec), spec.output, schedule.rows, schedule.cols, schedule.chunk,
        schedule.filters_outer, aligned=False,
    )  # fmt: skip
    later = finishes_later(spec, schedule, module.target)
    sums = dataclasses.replace(spec, epilogue=None) if later else spec
    tile_walk.emit(
        f,
        lambda tile: _emit_any(f, sums, schedule.spare, tile),
        (lambda row: _finish_row(f, spec, row)) if later else None,
    )
    outputs = spec.batch * spec.channels * math.prod(spec.output)
    inputs = spec.batch * spec.channels * math.prod(hi - lo for lo, hi in spec.input_extent())
    return f.finish(tile_walk.items, spec.flops, 4 * (inputs + outputs))


SHORT_ROW = 1 << 12
"""Bytes of a row of tiles up to which its sums are stored first in any case: a tile of few columns
starts again too often (EfficientNet-B0 on Zen 5: rows of 14 KB take 0.73 to 0.85 of the time when
tiles finish themselves, of 7 KB 0.9 to 0.97, of 1.8 KB 1.05 to 1.2)."""


def finishes_later(spec: ConvSpec, schedule: ConvSchedule, target: Target) -> bool:
    """Whether sums go to the output first, and a row of them through the epilogue then: where a
    tile's sums leave few registers for a function, or rows are short."""
    same = spec.types.sum == spec.types.y
    if not same or spec.epilogue is None or not is_chain([spec.epilogue.expr]):
        return False
    columns = spec.output[2]
    if not isinstance(columns, int):
        return False
    return target.physical > 1 or schedule.rows * columns * LANES * 4 <= SHORT_ROW


def _finish_row(f: FunctionBuilder, spec: ConvSpec, row: OutputTile) -> None:
    """The epilogue of a row of tiles."""

    def wheres(r: Index, c: Index) -> list[Where]:
        return [(row.batch, row.block, [row.depth, f.iadd(row.row, r), c], (0, 0, 0))]

    def store(value: ir.Value, batch: Index, block: Index, at: list[Index], by: Triple) -> None:
        f.store(value, spec.y.at(f, f.args[-1], batch, block, at, by, spec.types.y))

    operands, size = f.args[2 + spec.bias : -1], (row.rows, row.cols)
    finish_stored(f, spec, size, operands, 1, wheres, lambda block: None, store)


def _emit_any(f: FunctionBuilder, spec: ConvSpec, spare: int, tile: OutputTile) -> None:
    """A tile of any block; of the last one without its `spare` lanes."""
    last = _blocks(spec) - 1
    if not spare or isinstance(tile.block, int):
        _emit_tile(f, spec, tile, spare if tile.block == last else 0)
        return
    with f.b.if_else(f.b.icmp_signed("==", f.i64(tile.block), f.i64(last))) as (narrow, full):
        with narrow:
            _emit_tile(f, spec, tile, spare)
        with full:
            _emit_tile(f, spec, tile, 0)


def _emit_tile(f: FunctionBuilder, spec: ConvSpec, tile: OutputTile, spare: int) -> None:
    lanes = LANES - spare
    taps = math.prod(spec.kernel)
    first = sum(-p * s for p, s in zip(spec.pads, spec.x.space, strict=True))
    input_position = [
        f.imul(i, s) for i, s in zip((tile.depth, tile.row, tile.col), spec.strides, strict=True)
    ]
    kind = spec.types.x
    origin = spec.x.at(f, f.args[0], tile.batch, tile.block, input_position, dtype=kind)
    x = f.anchor(f.at(origin, first, dtype=kind))
    w = f.at(f.args[1], (tile.block, taps * LANES), dtype=spec.types.weights)
    if spec.bias:
        bias = f.at(f.args[2], (tile.block, LANES), dtype=spec.types.sum)
        start = f.load(bias, spec.types.sum, lanes)
    else:
        (start,) = computed(f, [products(f, spec.types).zero()], 1, spare)
    acc = {pixel: start for pixel in tile.pixels()}
    if taps * len(acc) <= MOST_UNROLLED:
        _emit_unrolled(f, spec, x, w, acc, lanes)
    else:
        _emit_looped(f, spec, x, w, acc, lanes)
    position = [tile.depth, tile.row, tile.col]
    sums = widened_blocks(f, list(acc.values()), 1, spare)
    locations = [(tile.batch, tile.block, position, (0, r, c)) for r, c in acc]
    results = finished(f, spec.epilogue, f.args[2 + spec.bias : -1], sums, locations)
    for location, value in zip(locations, results, strict=True):
        f.store(value, spec.y.at(f, f.args[-1], *location, dtype=spec.types.y))


def _load(f: FunctionBuilder, spec: ConvSpec, lanes: int, x: ir.Value, *terms: Term) -> ir.Value:
    """The channels of the input, as wide as the sum."""
    kind = spec.types.x
    value = f.load(f.at(x, *terms, dtype=kind), kind, lanes)
    return widened(f, value, spec.types) if lanes == LANES else value


def _weight(f: FunctionBuilder, spec: ConvSpec, lanes: int, w: ir.Value, *terms: Term) -> ir.Value:
    kind = spec.types.weights
    return f.load(f.at(w, *terms, dtype=kind), kind, lanes)


def _emit_unrolled(
    f: FunctionBuilder,
    spec: ConvSpec,
    x: ir.Value,
    w: ir.Value,
    acc: dict[tuple[int, int], ir.Value],
    lanes: int,
) -> None:
    """Inputs in ascending order, each loaded once."""
    (kd, kh, kw), (_, sh, sw), (dd, dh, dw) = spec.kernel, spec.strides, spec.dilations
    loaded_weights = {}
    if _holds_weights(spec, f.module.target):
        loaded_weights = {
            tap: _weight(f, spec, lanes, w, tap * LANES) for tap in range(kd * kh * kw)
        }
    for z in range(kd):
        users: dict[tuple[int, int], list[tuple[tuple[int, int], int]]] = {}
        for (r, c), ky, kx in ((p, a, b) for p in acc for a in range(kh) for b in range(kw)):
            there = r * sh + ky * dh, c * sw + kx * dw
            users.setdefault(there, []).append(((r, c), (z * kh + ky) * kw + kx))
        for (iy, ix), uses in sorted(users.items()):
            offset = z * dd * spec.x.depth + iy * spec.x.row + ix * spec.x.pixel
            value = _load(f, spec, lanes, x, offset)
            for pixel, tap in uses:
                weight = (
                    loaded_weights[tap]
                    if loaded_weights
                    else _weight(f, spec, lanes, w, tap * LANES)
                )
                acc[pixel] = multiply_add(f, spec.types, value, weight, acc[pixel])


def _emit_looped(
    f: FunctionBuilder,
    spec: ConvSpec,
    x: ir.Value,
    w: ir.Value,
    acc: dict[tuple[int, int], ir.Value],
    lanes: int,
) -> None:
    """Kernel positions in ascending order, in loops."""
    pixels, values = list(acc), list(acc.values())
    steps = [d * s for d, s in zip(spec.dilations, spec.x.space, strict=True)]
    (kd, kh, kw), (_, sh, sw) = spec.kernel, spec.strides
    with f.loop(kd, carry=values) as z:
        with f.loop(kh, carry=z.values) as y:
            with f.loop(kw, carry=y.values) as k:
                terms = zip((z.index, y.index, k.index), steps, strict=True)
                source = f.anchor(f.at(x, *terms, dtype=spec.types.x))
                tap = f.iadd(f.imul(f.iadd(f.imul(z.index, kh), y.index), kw), k.index)
                weight = _weight(f, spec, lanes, w, (tap, LANES))
                inputs = [
                    _load(f, spec, lanes, source, r * sh * spec.x.row + c * sw * spec.x.pixel)
                    for r, c in pixels
                ]
                input_sums = zip(inputs, k.values, strict=True)
                k.next([multiply_add(f, spec.types, v, weight, a) for v, a in input_sums])
            y.next(k.results)
        z.next(y.results)
    acc.update(zip(pixels, z.results, strict=True))
