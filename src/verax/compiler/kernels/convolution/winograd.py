"""Winograd's transforms on blocked activations: tiles of an image to matrices, and sums to outputs.

Of float32, or of integers, whose results are exact (`numerics.winograd_integers`): 16 bits that are
summed in 32.

The products between them are ordinary ones: for each of the (tile + 2)^2 positions, the channels of
all tiles times that position's transformed weights (`product`). A matrix lies as a blocked tensor
does, its pixels being the tiles of all images in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from verax.compiler.kernels.convolution.pack import direct_elements, pack_direct_weights
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.convolution.tiles import (
    OutputTile,
    Walk,
    choose_chunk,
    item_position,
    splits_channels,
)
from verax.compiler.kernels.convolution.winograd_special import (
    emit_special_input,
    emit_special_output,
    is_not_finite,
    is_ordinary,
)
from verax.compiler.kernels.convolution.winograd_tiles import Tiling, WinogradInput, place_of
from verax.compiler.kernels.dtypes import FLOAT32, ContractionTypes
from verax.compiler.kernels.layout import (
    Epilogue,
    Strides,
    finished,
    fused,
    operand_dtypes,
)
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import Index, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open, entries, static_size
from verax.compiler.kernels.target import LANES
from verax.numerics import winograd, winograd_integers

F32, I16, I32 = "float32", "int16", "int32"
STORED = (F32, "float16", "bfloat16", "int8", "uint8", I16, "uint16", I32, "int64")
"""Element types that an epilogue may read and make."""


@dataclasses.dataclass(frozen=True)
class WinogradOutput:
    """A^T m A of every tile, plus the bias if there is one, and the epilogue. sums: float32 or
    int32, which are those of `numerics.winograd_integers`. stored: element type of y. source: of
    sums of float32, the transform that they come from.

    Arguments of the kernel: the matrices; packed bias if `bias`; of float32 also x, the packed
    signs of the weights, scales and factors (`winograd_tiles.Tables`); epilogue operands; y.
    """

    tiling: Tiling
    filters: Size
    y: Strides
    bias: bool = True
    epilogue: Epilogue | None = None
    sums: str = F32
    stored: str = F32
    source: WinogradInput | None = None

    def __str__(self) -> str:
        to = "" if self.stored == self.sums else f" to {self.stored}"
        return (
            f"{self.sums}{to} output transform {self.tiling} of {self.filters} filters"
            f"{fused(self.epilogue)}"
        )

    @property
    def dtypes(self) -> tuple[str, ...]:
        return self.sums, self.stored, *operand_dtypes(self.epilogue)


WHOLE = ContractionTypes(I16, I16, I32, I32)
"""Of the products of integers."""


def product(
    tiling: Tiling,
    channels: Size,
    filters: Size,
    groups: int = 1,
    types: ContractionTypes = FLOAT32,
) -> ConvSpec:
    """The sums over channels, position by position, as a convolution with one kernel position."""
    spec = ConvSpec(
        batch=tiling.positions,
        channels=channels,
        filters=filters,
        output=(1, 1, tiling.tiles),
        kernel=(1, 1, 1),
        x=tiling.matrices(channels),
        y=tiling.matrices(filters),
        bias=False,
        groups=groups,
        types=types,
    )
    per_group = -(-channels // groups // spec.step) * spec.step
    strides = -(-filters // groups // LANES) * LANES * per_group * groups, 0
    return dataclasses.replace(spec, weight_strides=strides)


def pack_filters(
    w: np.ndarray, tiling: Tiling, spec: ConvSpec, schedule: ConvSchedule
) -> np.ndarray:
    """The transformed weights [o, c / groups, 3, 3], in the order that the product reads."""
    transformed = winograd.transformed_filters if spec.types == FLOAT32 else _whole_filters
    filters = transformed(w, tiling.tile).reshape(tiling.positions, *w.shape[:2])
    packed = np.empty((len(filters), direct_elements(spec, schedule)), spec.types.weights)
    for matrix, target in zip(filters, packed, strict=True):
        target[:] = pack_direct_weights(matrix, spec, schedule)
    return packed.reshape(-1)


_whole_filters = winograd_integers.transformed_filters


@emits(WinogradInput, dtypes=(F32, I16), settle=all_open)
def emit_input(module: ModuleBuilder, spec: WinogradInput) -> Kernel:
    """The kernel that transforms tiles of the input. Items: rows of tiles of a channel block."""
    is_integer = spec.dtype != F32
    f = module.kernel(("winograd_input", spec), 2 if is_integer else 4)
    if f.kernel is not None:
        return f.kernel
    tiling, blocks = spec.tiling, -(-spec.channels // LANES)
    matrices, m, kind = tiling.matrices(spec.channels), LlvmArith(f), spec.dtype
    transform = (winograd_integers if is_integer else winograd).input_transform

    def emit(tile: OutputTile) -> None:
        source = f.at(
            spec.x.at(f, f.args[0], tile.batch, tile.block, [0, tile.row, tile.col], dtype=kind),
            spec.first,
            dtype=kind,
        )
        target = place_of(f, tiling, matrices, f.args[-1], tile, kind)
        if is_integer:
            emit_ordinary(source, target)
            return
        image = spec.tables.image(f, tile.batch, tile.block, blocks)
        scale = spec.tables.scale_at(f, f.args[2], image, tile)
        with f.b.if_else(is_ordinary(f, scale)) as (yes, no):
            with yes:
                emit_ordinary(source, target)
            with no:
                magnitudes = spec.tables.magnitude_at(f, f.args[1], image, tile)
                emit_special_input(f, spec, source, magnitudes, scale, target, matrices.batch)

    def emit_ordinary(source: ir.Value, target: ir.Value) -> None:
        seen = [
            [
                m.bind(
                    f.load(f.at(source, i * spec.x.row + j * spec.x.pixel, dtype=kind), kind), kind
                )
                for j in range(tiling.size)
            ]
            for i in range(tiling.size)
        ]
        transformed = winograd.both_ways(lambda d: transform(m, tiling.tile, d), seen)
        for i, value in enumerate(v for row in transformed for v in row):
            f.store(m.unbind(value), f.at(target, i * matrices.batch, dtype=kind))

    tile_walk = _tile_walk(tiling, blocks, tiling.down * tiling.tile, tiling.across * tiling.tile)
    tile_walk.emit(f, emit)
    elements = spec.channels * tiling.tiles * (tiling.tile**2 + tiling.positions)
    return f.finish(tile_walk.items, 0, (2 if is_integer else 4) * elements)


@emits(WinogradOutput, dtypes=STORED, settle=all_open)
def emit_output(module: ModuleBuilder, spec: WinogradOutput) -> Kernel:
    """The kernel that makes outputs of sums. Items: rows of tiles of a channel block."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    own = 1 + spec.bias + (4 if spec.source else 0)
    f = module.kernel(("winograd_output", spec), own + len(operands) + 1)
    if f.kernel is not None:
        return f.kernel
    tiling, blocks = spec.tiling, -(-spec.filters // LANES)
    matrices, m, kind = tiling.matrices(spec.filters), LlvmArith(f), spec.sums
    is_integer = spec.source is None
    transform = (winograd_integers if is_integer else winograd).output_transform

    def bias_of(tile: OutputTile) -> ir.Value | None:
        if spec.bias:
            return f.load(f.at(f.args[1], (tile.block, LANES)))
        return None if is_integer else f.constant(0.0)

    def store(tile: OutputTile, values: Sequence[ir.Value], offsets: Sequence[tuple[Index, Index]],
              fixed: Sequence[tuple[int, int]]) -> None:  # fmt: skip
        locations = [
            (tile.batch, tile.block, [0, f.iadd(tile.row, r), f.iadd(tile.col, c)], (0, *more))
            for (r, c), more in zip(offsets, fixed, strict=True)
        ]
        results = finished(f, spec.epilogue, f.args[own:-1], values, locations)
        for location, value in zip(locations, results, strict=True):
            f.store(value, spec.y.at(f, f.args[-1], *location, dtype=spec.stored))

    def emit(tile: OutputTile) -> None:
        if spec.source is None:
            emit_ordinary(tile, None)
            return
        tables = spec.source.tables
        image = tables.image(f, tile.batch, tile.block, blocks)
        odd = is_not_finite(f, tables.scale_at(f, f.args[own - 2], image, tile))
        with f.when(f.b.not_(odd)):
            factors = tables.factor_at(f, f.args[own - 1], image, tile.row, tile.col)
            emit_ordinary(tile, factors)

    def emit_ordinary(tile: OutputTile, factors: ir.Value | None) -> None:
        source = place_of(f, tiling, matrices, f.args[0], tile, kind)
        sums: list[list[Typed]] = [
            [
                m.bind(
                    f.load(f.at(source, (i * tiling.size + j) * matrices.batch, dtype=kind), kind),
                    kind,
                )
                for j in range(tiling.size)
            ]
            for i in range(tiling.size)
        ]
        outputs = winograd.both_ways(lambda s: transform(m, tiling.tile, s), sums)
        bias = bias_of(tile)

        def value_at(r: int, c: int) -> ir.Value:
            result = outputs[r][c]
            if spec.source is not None and factors is not None and bias is not None:
                factor = f.broadcast(f.at(factors, r * spec.source.tables.width + c))
                return f.fma(m.unbind(result), factor, bias)
            return m.unbind(winograd_integers.unscaled(m, tiling.tile, result))

        for row in range(tile.rows):
            if tile.inside is not None:
                store_inside(row, tile, tile.inside, value_at)
                continue
            values = [value_at(row, c) for c in range(tile.cols)]
            fixed = [(row, c) for c in range(tile.cols)]
            store(tile, values, [(0, 0)] * tile.cols, fixed)

    def store_inside(
        row: int, tile: OutputTile, inside: tuple[Index, Index],
        value_at: Callable[[int, int], ir.Value],
    ) -> None:  # fmt: skip
        """Of a row of a tile what the image has."""
        with f.when(f.b.icmp_signed("<", f.i64(row), f.i64(inside[0]))):
            for c in range(tile.cols):
                with f.when(f.b.icmp_signed("<", f.i64(c), f.i64(inside[1]))):
                    store(tile, [value_at(row, c)], [(0, 0)], [(row, c)])

    def emit_special(item: Index) -> None:
        """Of an item's tiles those that see what is not finite."""
        assert spec.source is not None
        tables = spec.source.tables
        batch, block, depth, chunk = item_position(
            f, item, blocks, 1, tile_walk.chunks, tile_walk.blocks_outer
        )
        first = f.imul(chunk, tile_walk.chunk)
        last = f.b.icmp_signed("==", f.i64(chunk), f.i64(tile_walk.chunks - 1))
        stop = f.b.select(last, f.i64(tiling.down), f.i64(f.iadd(first, tile_walk.chunk)))
        with f.loop(stop, start=first) as r, f.loop(tiling.across) as c:
            row, col = f.imul(r.index, tiling.tile), f.imul(c.index, tiling.tile)
            tile = OutputTile(batch, block, depth, row, col, tiling.tile, tiling.tile)
            image = tables.image(f, batch, block, blocks)
            with f.when(is_not_finite(f, tables.scale_at(f, f.args[own - 2], image, tile))):
                sums = place_of(f, tiling, matrices, f.args[0], tile, kind)
                bias = bias_of(tile)
                assert bias is not None
                emit_special_output(
                    f, spec.source, spec.filters, tile, sums, matrices.batch, bias,
                    f.args[own - 4], f.args[own - 3], f.args[own - 1],
                    lambda r, c, value: store(tile, [value], [(r, c)], [(0, 0)]),
                )  # fmt: skip

    tile_walk = _tile_walk(tiling, blocks, tiling.rows, tiling.cols)
    tile_walk.emit(f, emit)
    if not is_integer:
        with f.items() as item:
            emit_special(item.index)
    elements = spec.filters * tiling.tiles * (tiling.tile**2 + tiling.positions)
    return f.finish(tile_walk.items, 0, 4 * elements)


OPEN_CHUNK = 2
"""Rows of tiles of an item, where how many there are is read at run time."""


def _tile_walk(tiling: Tiling, blocks: Size, rows: Size, cols: Size) -> Walk:
    """Tile by tile; where the output ends inside a tile the last one is smaller."""
    if entries((tiling.batch, rows, cols)):
        count = (1, rows, cols)
        return Walk(tiling.batch, blocks, count, tiling.tile, tiling.tile, OPEN_CHUNK, False)
    known_rows = static_size(rows)
    outer = splits_channels(known_rows, static_size(cols))
    images = static_size(tiling.batch)
    chunk = choose_chunk(static_size(images * blocks), max(1, known_rows // tiling.tile), outer)
    return Walk(tiling.batch, blocks, (1, rows, cols), tiling.tile, tiling.tile, chunk, outer)
