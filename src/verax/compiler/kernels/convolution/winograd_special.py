"""Tiles of float32 that are out of the ordinary: of large or tiny numbers, or not all finite.

They are rare, so their code is short instead of fast: loops over positions, with the matrices as
the only memory. What it computes is what `ops.windows.winograd` promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from verax.compiler.kernels.convolution.tiles import OutputTile
from verax.compiler.kernels.convolution.winograd_tiles import WinogradInput
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import I1, I32, FunctionBuilder, Index
from verax.compiler.kernels.sizes import Size
from verax.compiler.kernels.target import LANES
from verax.numerics import power_of_two, winograd

ONE = 0x3F800000
"""The bits of 1.0."""
TAPS = winograd.KERNEL * winograd.KERNEL
MASKS = 2
"""Sets of filters that are kept for a tap and a channel: of weights below zero, and of zero."""


def is_ordinary(f: FunctionBuilder, scale: ir.Value) -> ir.Value:
    """Whether a tile whose scale lies there is neither scaled nor has what is not finite."""
    return f.b.icmp_signed("==", f.load(scale, "int32", 0), ir.Constant(I32, ONE))


def is_not_finite(f: FunctionBuilder, scale: ir.Value) -> ir.Value:
    """Whether a pixel under a tile whose scale lies there is not finite."""
    return f.b.icmp_signed("<", f.load(scale, "int32", 0), ir.Constant(I32, 0))


def transform_in_loops(
    f: FunctionBuilder,
    along: Callable[[Sequence[Typed]], list[Typed]],
    grid: ir.Value,
    size: int,
    results_per_side: int,
    stride: Size,
) -> None:
    """`winograd.both_ways` of size x size vectors of float32 at `grid`, row by row with `stride`
    elements between them, in place: `made` x `made` results, with the rows where they were."""
    m = LlvmArith(f)
    with f.loop(2) as direction:  # down the columns, then along the rows
        first = f.b.icmp_signed("==", f.i64(direction.index), f.i64(0))
        between, along_line, lines = (
            f.b.select(first, f.i64(down), f.i64(across))
            for down, across in (
                (stride, size * stride),
                (size * stride, stride),
                (size, results_per_side),
            )
        )
        with f.loop(lines) as line:
            start = f.at(grid, (line.index, between))
            pointers = [f.at(start, (i, along_line)) for i in range(size)]
            results = along([m.bind(f.load(p), "float32") for p in pointers])
            for result, target in zip(results, pointers):
                f.store(m.unbind(result), target)


def emit_special_input(
    f: FunctionBuilder,
    spec: WinogradInput,
    source: ir.Value,
    magnitudes: ir.Value,
    scale: ir.Value,
    target: ir.Value,
    stride: Size,
) -> None:
    """The input transform of a tile: of scaled numbers, and of zeros where a pixel is not finite.
    stride: between matrices."""
    m, size = LlvmArith(f), spec.tiling.size
    factor = m.abs(m.bind(f.broadcast(scale), "float32"))
    limit, zero = ir.Constant(I32, winograd.NOT_FINITE), m.const(0.0, "float32")

    with f.loop(size) as row, f.loop(size) as col:
        there = f.at(source, (row.index, spec.x.row), (col.index, spec.x.pixel))
        magnitude = f.at(magnitudes, (row.index, spec.tables.reach), col.index, dtype="int32")
        finite = f.b.icmp_signed("<", f.load(magnitude, "int32", 0), limit)
        value = m.mul(m.bind(f.load(there), "float32"), factor)
        address = f.at(target, (row.index, size * stride), (col.index, stride))
        f.store(f.b.select(finite, value.value, zero.value), address)

    def along(d: Sequence[Typed]) -> list[Typed]:
        return winograd.input_transform(m, spec.tiling.tile, d)

    transform_in_loops(f, along, target, size, size, stride)


def emit_special_output(
    f: FunctionBuilder,
    source: WinogradInput,
    filters: Size,
    tile: OutputTile,
    sums: ir.Value,
    stride: Size,
    bias: ir.Value,
    x: ir.Value,
    signs: ir.Value,
    factors: ir.Value,
    finish: Callable[[Index, Index, ir.Value], None],
) -> None:
    """The outputs of a tile of 16 filters, of which some may see what is not finite: `finish` is
    given the row and the column in the tile, and the value, of each.

    tile: a whole one, which may hang over the end of the image. sums: where they lie in the first
    matrix; they are overwritten. stride: between matrices. bias: a vector.
    """
    m, tiling = LlvmArith(f), source.tiling
    tables, blocks = source.tables, -(-filters // LANES)
    image = tables.image(f, tile.batch, tile.block, blocks)

    def along(s: Sequence[Typed]) -> list[Typed]:
        return winograd.output_transform(m, tiling.tile, s)

    transform_in_loops(f, along, sums, tiling.size, tiling.tile, stride)
    rows, cols = (
        f.clamp(f.iadd(n, f.imul(first, -1)), 0, tiling.tile)
        for n, first in ((tiling.rows, tile.row), (tiling.cols, tile.col))
    )
    with f.loop(rows) as r, f.loop(cols) as c:
        row, col = f.iadd(tile.row, r.index), f.iadd(tile.col, c.index)
        factor = f.load(tables.factor_at(f, factors, image, row, col), lanes=0)
        value = f.at(sums, (r.index, tiling.size * stride), (c.index, stride))
        f.store(f.fma(f.load(value), f.splat(factor), bias), value)
        with f.when(f.b.unordered(factor, factor)):
            f.store(ir.Constant(f.vector_type(), None), value)
            _add_not_finite(f, source, filters, tile, row, col, x, signs, value)
            f.store(f.b.fadd(f.load(value), bias), value)
        finish(r.index, c.index, f.load(value))


def _add_not_finite(
    f: FunctionBuilder,
    source: WinogradInput,
    filters: Size,
    tile: OutputTile,
    row: Index,
    col: Index,
    x: ir.Value,
    signs: ir.Value,
    total: ir.Value,
) -> None:
    """Add to 16 sums at `total`, which are 0, each product of the output at (row, col) that is not
    finite, for whose sign that of the weight is enough. Once all are NaN nothing is added."""
    channels = source.channels // source.groups
    blocks, filter_blocks = -(-channels // LANES), -(-filters // LANES)
    group = f.idiv(tile.block, filter_blocks // source.groups) if source.groups > 1 else 0
    first = f.at(source.x.at(f, x, tile.batch, f.imul(group, blocks), [0, row, col]), source.first)
    with f.loop(TAPS * blocks) as step:
        tap, block = f.split(step.index, blocks)
        down, right = f.split(tap, winograd.KERNEL)
        space = (down, source.x.row), (right, source.x.pixel)
        pixel = f.at(first, *space, (block, source.x.block))
        valid_lanes = f.clamp(f.iadd(channels, f.imul(block, -LANES)), 0, LANES)
        before = f.load(total)
        undecided = f.b.bitcast(f.b.fcmp_ordered("==", before, before), ir.IntType(LANES))
        any_undecided = f.b.icmp_unsigned("!=", undecided, undecided.type(0))
        with f.when(any_undecided), f.loop(valid_lanes) as lane:
            value = f.load(f.at(pixel, lane.index), lanes=0)
            with f.when(_not_finite(f, value)):
                masks = f.at(
                    signs,
                    (tile.block, TAPS * channels * MASKS),
                    (tap, channels * MASKS),
                    (f.iadd(f.imul(block, LANES), lane.index), MASKS),
                    dtype="int16",
                )
                kind = ir.VectorType(I1, LANES)
                below, zero = (
                    f.b.bitcast(f.load(f.at(masks, i, dtype="int16"), "int16", 0), kind)
                    for i in range(MASKS)
                )
                splatted = f.splat(value)
                term = f.b.select(below, f.b.fneg(splatted), splatted)
                term = f.b.select(zero, f.constant(float("nan")), term)
                f.store(f.b.fadd(f.load(total), term), total)
    if filters % LANES:  # lanes of no filter stay 0
        real = f.first(f.clamp(f.iadd(filters, f.imul(tile.block, -LANES)), 0, LANES))
        zeros = ir.Constant(f.vector_type(), None)
        f.store(f.b.select(real, f.load(total), zeros), total)


def _not_finite(f: FunctionBuilder, value: ir.Value) -> ir.Value:
    """Of one number."""
    bits = f.b.and_(f.b.bitcast(value, I32), ir.Constant(I32, power_of_two.MAGNITUDE_MASK))
    return f.b.icmp_signed(">=", bits, ir.Constant(I32, winograd.NOT_FINITE))


def signs_bytes(w: np.ndarray) -> int:
    """Bytes of what `pack_signs` gives."""
    return -(-w.shape[0] // LANES) * TAPS * w.shape[1] * MASKS * 2


def pack_signs(w: np.ndarray) -> np.ndarray:
    """Signs of weights [o, c / groups, 3, 3] as `emit_special_output` reads them: uint16 [blocks of
    16 filters, taps, c / groups, 2], a bit for each filter: of those below zero, and of zeros."""
    filters, channels = w.shape[:2]
    taps = np.zeros((-(-filters // LANES) * LANES, channels, TAPS), w.dtype)
    taps[:filters] = w.reshape(filters, channels, TAPS)
    lanes = taps.reshape(-1, LANES, channels, TAPS).transpose(0, 3, 2, 1)
    masks = np.stack([lanes < 0, lanes == 0], axis=-2)
    packed = np.packbits(masks, axis=-1, bitorder="little")
    return packed.view(np.dtype("<u2")).reshape(masks.shape[:-1])
