"""Winograd's transforms on blocked activations: tiles of an image to matrices, and sums to outputs.

Of float32, or of integers, whose results are exact (`numerics.winograd_integers`): 16 bits that are
summed in 32.

The products between them are ordinary ones: for each of the (tile + 2)^2 positions, the channels of
all tiles times that position's transformed weights (`product`). A matrix lies as a blocked tensor
does, its pixels being the tiles of all images in order.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.pack import direct_elements, pack_direct_weights
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.convolution.tiles import Tile, Walk, choose_chunk, splits_channels
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
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import known
from verax.compiler.kernels.target import LANES
from verax.numerics import winograd, winograd_integers

F32, I16, I32 = "float32", "int16", "int32"
STORED = (F32, "float16", "bfloat16", "int8", "uint8", I16, "uint16", I32, "int64")
"""Element types that an epilogue may read and make."""
APART = LANES
"""Elements between two matrices: at a power of two their lines would evict one another."""


@dataclasses.dataclass(frozen=True)
class Tiling:
    """How an output of `rows` x `cols` of `batch` images is cut into tiles."""

    tile: int
    batch: int
    rows: int
    cols: int

    def __str__(self) -> str:
        return f"F({self.tile}x{self.tile}, 3x3), {self.batch} x {self.down}x{self.across} tiles"

    @property
    def size(self) -> int:
        """Inputs under a tile, along an axis."""
        return self.tile + winograd.KERNEL - 1

    @property
    def positions(self) -> int:
        return self.size * self.size

    @property
    def down(self) -> int:
        return -(-self.rows // self.tile)

    @property
    def across(self) -> int:
        return -(-self.cols // self.tile)

    @property
    def tiles(self) -> int:
        return self.batch * self.down * self.across

    def matrices(self, channels: int) -> Strides:
        """Strides of the matrices: batch is the position, a pixel is a tile."""
        block = self.tiles * LANES
        return Strides(-(-channels // LANES) * block + APART, block, block, block)

    def elements(self, channels: int) -> int:
        """Elements that all matrices of `channels` take."""
        return self.positions * known(self.matrices(channels).batch)


@dataclasses.dataclass(frozen=True)
class WinogradInput:
    """B^T d B of every tile. x: strides of the input, whose border holds the zeros around it;
    pads: zeros before, per axis. dtype: float32 or int16, of the data and of the matrices.

    Arguments of the kernel: x, the matrices.
    """

    tiling: Tiling
    channels: int
    x: Strides
    pads: tuple[int, int]
    dtype: str = F32

    def __str__(self) -> str:
        return f"{self.dtype} input transform {self.tiling} of {self.channels} channels"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype,)


@dataclasses.dataclass(frozen=True)
class WinogradOutput:
    """A^T m A of every tile, plus the bias if there is one, and the epilogue. sums: float32 or
    int32, which are those of `numerics.winograd_integers`. stored: element type of y.

    Arguments of the kernel: the matrices, packed bias if `bias`, epilogue operands, y.
    """

    tiling: Tiling
    filters: int
    y: Strides
    bias: bool = True
    epilogue: Epilogue | None = None
    sums: str = F32
    stored: str = F32

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
    channels: int,
    filters: int,
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
    per_group = known(spec.steps(channels // groups)) * spec.step
    strides = -(-filters // groups // LANES) * LANES * per_group * groups, 0
    return dataclasses.replace(spec, weight_strides=strides)


def pack_filters(
    w: np.ndarray, tiling: Tiling, spec: ConvSpec, schedule: ConvSchedule
) -> np.ndarray:
    """The transformed weights [o, c / groups, 3, 3], in the order that the product reads."""
    transformed = winograd.transformed_filters if spec.types == FLOAT32 else _whole_filters
    made = transformed(w, tiling.tile).reshape(tiling.positions, *w.shape[:2])
    packed = np.empty((len(made), direct_elements(spec, schedule)), spec.types.weights)
    for part, target in zip(made, packed, strict=True):
        target[:] = pack_direct_weights(part, spec, schedule)
    return packed.reshape(-1)


_whole_filters = winograd_integers.transformed_filters


@emits(WinogradInput, dtypes=(F32, I16))
def emit_input(module: ModuleBuilder, spec: WinogradInput) -> Kernel:
    """The kernel that transforms tiles of the input. Items: rows of tiles of a channel block."""
    f = module.kernel(("winograd_input", spec), 2)
    if f.kernel is not None:
        return f.kernel
    tiling, blocks = spec.tiling, -(-spec.channels // LANES)
    matrices, m, kind = tiling.matrices(spec.channels), LlvmArith(f), spec.dtype
    transform = (winograd if kind == F32 else winograd_integers).input_transform
    first = -sum(p * s for p, s in zip(spec.pads, spec.x.space[1:], strict=True))

    def emit(tile: Tile) -> None:
        source = f.at(
            spec.x.at(f, f.args[0], tile.batch, tile.block, [0, tile.row, tile.col], dtype=kind),
            first,
            dtype=kind,
        )
        seen = [
            [
                m.bind(
                    f.load(f.at(source, i * spec.x.row + j * spec.x.pixel, dtype=kind), kind), kind
                )
                for j in range(tiling.size)
            ]
            for i in range(tiling.size)
        ]
        made = winograd.both_ways(lambda d: transform(m, tiling.tile, d), seen)
        target = _place(f, tiling, matrices, f.args[1], tile, kind)
        for i, value in enumerate(v for row in made for v in row):
            f.store(m.unbind(value), f.at(target, i * matrices.batch, dtype=kind))

    walk = _walk(tiling, blocks, tiling.down * tiling.tile, tiling.across * tiling.tile)
    walk.emit(f, emit)
    moved = spec.channels * tiling.tiles * (tiling.tile**2 + tiling.positions)
    return f.finish(walk.items, 0, (4 if kind == F32 else 2) * moved)


@emits(WinogradOutput, dtypes=STORED)
def emit_output(module: ModuleBuilder, spec: WinogradOutput) -> Kernel:
    """The kernel that makes outputs of sums. Items: rows of tiles of a channel block."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("winograd_output", spec), 2 + spec.bias + len(operands))
    if f.kernel is not None:
        return f.kernel
    tiling, blocks = spec.tiling, -(-spec.filters // LANES)
    matrices, m, kind = tiling.matrices(spec.filters), LlvmArith(f), spec.sums
    whole = kind != F32
    transform = (winograd_integers if whole else winograd).output_transform

    def emit(tile: Tile) -> None:
        source = _place(f, tiling, matrices, f.args[0], tile, kind)
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
        made = winograd.both_ways(lambda s: transform(m, tiling.tile, s), sums)
        bias = f.load(f.at(f.args[1], (tile.block, LANES))) if spec.bias else None

        def value_at(r: int, c: int) -> ir.Value:
            result = made[r][c]
            value: ir.Value = m.unbind(
                winograd_integers.unscaled(m, tiling.tile, result) if whole else result
            )
            return value if bias is None else f.b.fadd(value, bias)

        for row in range(tile.rows):
            values = [value_at(row, c) for c in range(tile.cols)]
            places = [
                (tile.batch, tile.block, [0, tile.row, tile.col], (0, row, c))
                for c in range(tile.cols)
            ]
            results = finished(f, spec.epilogue, f.args[1 + spec.bias : -1], values, places)
            for where, value in zip(places, results, strict=True):
                f.store(value, spec.y.at(f, f.args[-1], *where, dtype=spec.stored))

    walk = _walk(tiling, blocks, tiling.rows, tiling.cols)
    walk.emit(f, emit)
    moved = spec.filters * tiling.tiles * (tiling.tile**2 + tiling.positions)
    return f.finish(walk.items, 0, 4 * moved)


def _walk(tiling: Tiling, blocks: int, rows: int, cols: int) -> Walk:
    """Tile by tile; where the output ends inside a tile the last one is smaller."""
    outer = splits_channels(rows, cols)
    chunk = choose_chunk(tiling.batch * blocks, max(1, rows // tiling.tile), outer)
    return Walk(tiling.batch, blocks, (1, rows, cols), tiling.tile, tiling.tile, chunk, outer)


def _place(
    f: FunctionBuilder,
    tiling: Tiling,
    matrices: Strides,
    pointer: ir.Value,
    tile: Tile,
    dtype: str,
) -> ir.Value:
    """Where a tile's 16 channels lie in the first matrix."""
    row: Index = f.iadd(f.imul(tile.batch, tiling.down), f.idiv(tile.row, tiling.tile))
    pixel = f.iadd(f.imul(row, tiling.across), f.idiv(tile.col, tiling.tile))
    return f.at(pointer, (tile.block, matrices.block), (pixel, LANES), dtype=dtype)
