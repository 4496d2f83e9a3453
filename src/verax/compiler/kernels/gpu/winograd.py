"""Winograd's transforms of float32 on a GPU: a thread has a channel of a tile.

Neighboring threads have neighboring channels of a block, so what a warp reads or writes lies
together. Tiles out of the ordinary are rare: all sixteen channels are the first thread's, which
does as the CPU does. Scales are made by blocks of threads, a row of tiles each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verax.compiler.kernels.convolution.tiles import OutputTile
from verax.compiler.kernels.convolution.winograd import STORED, WinogradOutput
from verax.compiler.kernels.convolution.winograd_scales import (
    WinogradScales,
    emit_scales_of_columns,
    lanes_of,
)
from verax.compiler.kernels.convolution.winograd_special import (
    emit_special_input,
    emit_special_output,
    is_not_finite,
    is_ordinary,
)
from verax.compiler.kernels.convolution.winograd_tiles import F32, Tiling, WinogradInput, place_of
from verax.compiler.kernels.gpu.finish import Channels
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.layout import finished
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import BlockBuilder, block_kernel
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS, emits
from verax.compiler.kernels.sizes import all_open, static_size
from verax.compiler.kernels.target import LANES
from verax.numerics import power_of_two, winograd

_CPU_INPUT = EMITTERS[WinogradInput, ANY_TARGET]
_CPU_OUTPUT = EMITTERS[WinogradOutput, ANY_TARGET]
THREADS = 128
"""Of a block that makes scales."""


def _tile_of(f: FunctionBuilder, item: Index, tiling: Tiling) -> tuple[OutputTile, Index, ir.Value]:
    """A thread's tile, its channel in the block, and whether that is the first (i1)."""
    n = Index32(f)
    extents = map(n.of, (tiling.batch, tiling.down, tiling.across, LANES))
    block, image, down, across, lane = n.split(n.truncated(item), *extents)
    row, col = (n.wide(n.mul(i, tiling.tile)) for i in (down, across))
    size = tiling.tile
    tile = OutputTile(n.wide(image), n.wide(block), 0, row, col, size, size)
    is_first = f.b.icmp_signed("==", n.value(lane), ir.Constant(I32, 0))
    return tile, n.wide(lane), is_first


@emits(WinogradInput, dtypes=_CPU_INPUT.dtypes, target="gpu", settle=all_open)
def emit_input(module: ModuleBuilder, spec: WinogradInput) -> Kernel:
    """As `convolution.winograd.emit_input`, which makes those of integers. Items: a channel of a
    tile."""
    if spec.dtype != F32:
        return _CPU_INPUT.emit(module, spec, None)
    f = module.kernel(("winograd_input", spec), 4)
    if f.kernel is not None:
        return f.kernel
    tiling, blocks = spec.tiling, -(-spec.channels // LANES)
    matrices, m = tiling.matrices(spec.channels), LlvmArith(f, 0)
    with f.items() as item:
        tile, lane, is_first = _tile_of(f, item.index, tiling)
        position = [0, tile.row, tile.col]
        source = f.at(spec.x.at(f, f.args[0], tile.batch, tile.block, position), spec.first)
        target = place_of(f, tiling, matrices, f.args[-1], tile, F32)
        image = spec.tables.image(f, tile.batch, tile.block, blocks)
        scale = spec.tables.scale_at(f, f.args[2], image, tile)
        with f.b.if_else(is_ordinary(f, scale)) as (yes, no):
            with yes:
                grid = _grid(
                    f, m, f.at(source, (lane, spec.x.lane)), spec.x.row, spec.x.pixel, tiling.size
                )
                results = winograd.both_ways(
                    lambda d: winograd.input_transform(m, tiling.tile, d), grid
                )
                here = f.at(target, lane)
                for i, value in enumerate(v for row in results for v in row):
                    f.store(m.unbind(value), f.at(here, i * matrices.batch))
            with no, f.when(is_first):
                magnitudes = spec.tables.magnitude_at(f, f.args[1], image, tile)
                emit_special_input(f, spec, source, magnitudes, scale, target, matrices.batch)
    elements = spec.channels * tiling.tiles * (tiling.tile**2 + tiling.positions)
    return f.finish(blocks * tiling.tiles * LANES, 0, 4 * elements)


def _grid(
    f: FunctionBuilder, m: LlvmArith, source: ir.Value, row: Any, pixel: Any, size: int
) -> list[list[Typed]]:
    """Numbers at `source`, `row` and `pixel` elements apart."""
    return [
        [m.bind(f.load(f.at(source, i * row + j * pixel), lanes=0), F32) for j in range(size)]
        for i in range(size)
    ]


@emits(WinogradOutput, dtypes=STORED, target="gpu", settle=all_open)
def emit_output(module: ModuleBuilder, spec: WinogradOutput) -> Kernel:
    """As `convolution.winograd.emit_output`, which makes those of integers. Items: a channel of a
    tile."""
    if spec.source is None:
        return _CPU_OUTPUT.emit(module, spec, None)
    operands = spec.epilogue.operands if spec.epilogue else ()
    own = 1 + spec.bias + 4
    f = module.kernel(("winograd_output", spec), own + len(operands) + 1)
    if f.kernel is not None:
        return f.kernel
    tiling, tables, blocks = spec.tiling, spec.source.tables, -(-spec.filters // LANES)
    with f.items() as item:
        tile, lane, is_first = _tile_of(f, item.index, tiling)
        image = tables.image(f, tile.batch, tile.block, blocks)
        odd = is_not_finite(f, tables.scale_at(f, f.args[own - 2], image, tile))
        with f.b.if_else(odd) as (yes, no):
            with yes, f.when(is_first):
                _emit_special(f, spec, tile, own)
            with no:
                _emit_ordinary(f, spec, tile, lane, image, own)
    elements = spec.filters * tiling.tiles * (tiling.tile**2 + tiling.positions)
    return f.finish(blocks * tiling.tiles * LANES, 0, 4 * elements)


def _emit_ordinary(
    f: FunctionBuilder, spec: WinogradOutput, tile: OutputTile, lane: Index, image: Index, own: int
) -> None:
    assert spec.source is not None
    tiling, tables, m = spec.tiling, spec.source.tables, LlvmArith(f, 0)
    stride = tiling.matrices(spec.filters).batch
    sums = f.at(place_of(f, tiling, tiling.matrices(spec.filters), f.args[0], tile, F32), lane)
    grid = _grid(f, m, sums, tiling.size * stride, stride, tiling.size)
    outputs = winograd.both_ways(lambda s: winograd.output_transform(m, tiling.tile, s), grid)
    bias: ir.Value = f.constant(0.0, lanes=0)
    if spec.bias:
        bias = f.load(f.at(f.args[1], (tile.block, LANES), lane), lanes=0)
    factors = tables.factor_at(f, f.args[own - 1], image, tile.row, tile.col)
    for r, row in enumerate(outputs):
        with _inside(f, tile.row, r, tiling.rows, tiling.tile):
            for c, value in enumerate(row):
                with _inside(f, tile.col, c, tiling.cols, tiling.tile):
                    factor = f.load(f.at(factors, r * tables.width + c), lanes=0)
                    result = f.fma(m.unbind(value), factor, bias)
                    position = [0, f.iadd(tile.row, r), f.iadd(tile.col, c)]
                    channel = Channels(f, 0, tile.batch, tile.block, lane, position)
                    final = channel.finished(spec.epilogue, f.args[own:-1], result)
                    f.store(final, channel.of_tensor(spec.y, f.args[-1], spec.stored))


def _inside(f: FunctionBuilder, first: Index, offset: int, extent: Any, tile: int) -> Any:
    """Code for an output that the image has."""
    return f.when(f.b.icmp_signed("<", f.i64(f.iadd(first, offset)), f.i64(extent)))


def _emit_special(f: FunctionBuilder, spec: WinogradOutput, tile: OutputTile, own: int) -> None:
    """The outputs of all sixteen filters of a tile that sees what is not finite."""
    assert spec.source is not None
    matrices = spec.tiling.matrices(spec.filters)
    sums = place_of(f, spec.tiling, matrices, f.args[0], tile, F32)
    bias = f.load(f.at(f.args[1], (tile.block, LANES))) if spec.bias else f.constant(0.0)

    def store(r: Index, c: Index, value: ir.Value) -> None:
        position: Sequence[Index] = [0, f.iadd(tile.row, r), f.iadd(tile.col, c)]
        location = tile.batch, tile.block, position, (0, 0, 0)
        (result,) = finished(f, spec.epilogue, f.args[own:-1], [value], [location])
        f.store(result, spec.y.at(f, f.args[-1], *location, dtype=spec.stored))

    emit_special_output(
        f, spec.source, spec.filters, tile, sums, matrices.batch, bias,
        f.args[own - 4], f.args[own - 3], f.args[own - 1], store,
    )  # fmt: skip


@emits(WinogradScales, dtypes=(F32,), target="gpu", settle=all_open)
def emit_scales(module: ModuleBuilder, spec: WinogradScales) -> Kernel:
    """As `convolution.winograd_scales.emit_scales`. Items: rows of tiles of an image and a group,
    whose rows of pixels are a block's own: those that two items see are computed twice."""
    f = block_kernel(module, ("winograd_scales", spec), 4, THREADS, hint="winograd_scales")
    if f.kernel is not None:
        return f.kernel
    source, tables, tiling = spec.source, spec.source.tables, spec.source.tiling
    n, lanes = Index32(f), lanes_of(module.target)
    x, magnitudes, scales, factors = f.args
    blocks = -(-source.channels // LANES) // source.groups
    image, down = f.split(f.begin, tiling.down)
    batch, group = f.split(image, source.groups)
    chunk, row = f.split(down, tables.chunk)
    first_row = f.imul(down, tiling.tile)
    seen = source.x.at(f, x, batch, f.imul(group, blocks), [0, first_row, 0])
    seen = f.at(seen, source.first)
    of_chunk = f.iadd(f.imul(image, tables.chunks), chunk), tables.chunk_elements
    rows = f.at(magnitudes, of_chunk, f.imul(row, tiling.tile * tables.reach), dtype="int32")
    width = n.of(tiling.across * tiling.tile + 2)
    for index in _dealt(f, n, n.mul(width, tiling.size)):
        r, col = n.divmod(index, width)
        pixel = f.at(seen, (n.wide(r), source.x.row), (n.wide(col), source.x.pixel))
        position = f.at(rows, (n.wide(r), tables.reach), n.wide(col), dtype="int32")
        f.store(_largest(f, source, pixel), position)
    f.barrier()
    line = f.iadd(f.imul(image, tiling.down), down)
    for index in _dealt(f, n, n.of(tables.width // lanes)):
        begin = f.imul(n.wide(index), lanes)
        emit_scales_of_columns(
            f, tables, lanes, f.at(rows, begin, dtype="int32"),
            f.at(scales, (line, tables.width // tiling.tile), f.idiv(begin, tiling.tile)),
            f.at(factors, (f.imul(line, tiling.tile), tables.width), begin),
        )  # fmt: skip
    pixels = tiling.tiles * tiling.tile**2
    return f.finish(tables.images * tiling.down, 0, 4 * pixels * (source.channels + 2))


def _dealt(f: BlockBuilder, n: Index32, count: Int) -> Any:
    """Indices below `count`, each of which one thread of the block gets; what is emitted during the
    iteration runs for it."""
    with f.loop(n.wide(n.divmod(n.add(count, THREADS - 1), THREADS)[0])) as turn:
        index = n.add(n.mul(n.truncated(turn.index), THREADS), f.thread)
        with f.when(n.less(index, count)):
            yield index


def _largest(f: FunctionBuilder, source: WinogradInput, pixel: ir.Value) -> ir.Value:
    """The largest magnitude of a pixel's channels (i32)."""
    m, channels, quarter = LlvmArith(f, 4), source.channels // source.groups, 4
    full, left = divmod(channels, LANES)
    remainder = static_size(left)

    def larger(before: Typed, block: Index, valid: int) -> Typed:
        for offset in range(0, valid, quarter):
            lanes = [power_of_two.MAGNITUDE_MASK * (offset + i < valid) for i in range(quarter)]
            mask = Typed(ir.Constant(f.vector_type("int32", quarter), lanes), "int32")
            address = f.at(pixel, (block, source.x.block), offset)
            value = m.bind(f.load(address, "int32", quarter), "int32")
            before = m.max(before, m.and_(value, mask))
        return before

    largest = m.const(0, "int32")
    if full:
        with f.loop(full, carry=[largest.value]) as block:
            block.next([larger(Typed(block.values[0], "int32"), block.index, LANES).value])
        largest = Typed(block.results[0], "int32")
    if remainder:
        largest = larger(largest, full, remainder)
    scalars, one = [], LlvmArith(f, 0)
    for i in range(quarter):
        scalars.append(Typed(f.b.extract_element(largest.value, ir.Constant(I32, i)), "int32"))
    result = scalars[0]
    for scalar in scalars[1:]:
        result = one.max(result, scalar)
    return result.value
