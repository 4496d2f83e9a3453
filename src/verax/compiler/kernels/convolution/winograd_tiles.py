"""How Winograd's algorithm cuts an image into tiles, and where what belongs to a tile lies.

Data only: the kernels that fill it are in `winograd` and `winograd_scales`.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.convolution.tiles import OutputTile
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index
from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import LANES
from verax.numerics import winograd

F32 = "float32"
APART = LANES
"""Elements between two matrices: at a power of two their lines would evict one another."""
CHUNKS = 4
"""Parts of an image whose magnitudes several threads take; rows of tiles of a part, where how many
there are is read at run time."""


@dataclasses.dataclass(frozen=True)
class Tiling:
    """How an output of `rows` x `cols` of `batch` images is cut into tiles."""

    tile: int
    batch: Size
    rows: Size
    cols: Size

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
    def down(self) -> Size:
        return ceil_div(self.rows, self.tile)

    @property
    def across(self) -> Size:
        return ceil_div(self.cols, self.tile)

    @property
    def tiles(self) -> Size:
        return self.batch * self.down * self.across

    def matrices(self, channels: Size) -> Strides:
        """Strides of the matrices: batch is the position, a pixel is a tile."""
        block = self.tiles * LANES
        return Strides(-(-channels // LANES) * block + APART, block, block, block)

    def elements(self, channels: Size) -> Size:
        """Elements that all matrices of `channels` take."""
        return self.positions * self.matrices(channels).batch


@dataclasses.dataclass(frozen=True)
class Tables:
    """Where the numbers lie that keep zeros, infinities and large numbers what they are in direct
    summation (`numerics.winograd.scales`), by group of channels and image.

    magnitudes: int32, of the pixels that the tiles see. Rows of tiles are taken in chunks, each of
    which has all its rows of pixels. scales: float32, of tiles; negative where one of its pixels is
    not finite. factors: float32, of outputs, as many as the tiles have. Rows are of whole vectors,
    so that all of a table's may be computed 16 at a time; behind the last lies what means nothing.
    """

    tiling: Tiling
    groups: int

    @property
    def chunk(self) -> int:
        """Rows of tiles that are taken together: two rows of pixels more are read for each."""
        down, images = self.tiling.down, self.tiling.batch
        if not isinstance(down, int) or not isinstance(images, int):
            return CHUNKS
        return -(-down // min(down, -(-CHUNKS // (images * self.groups))))

    @property
    def chunks(self) -> Size:
        return ceil_div(self.tiling.down, self.chunk)

    @property
    def images(self) -> Size:
        """Pairs of an image and a group."""
        return self.tiling.batch * self.groups

    @property
    def width(self) -> Size:
        """Factors in a row."""
        return ceil_div(self.tiling.across * self.tiling.tile, LANES) * LANES

    @property
    def reach(self) -> Size:
        """Magnitudes in a row."""
        return self.width + LANES

    @property
    def chunk_elements(self) -> Size:
        """Magnitudes of a chunk."""
        return (self.chunk * self.tiling.tile + 2) * self.reach

    @property
    def elements(self) -> tuple[Size, Size, Size]:
        """Of the magnitudes, the scales and the factors."""
        rows = self.images * self.tiling.down
        scales, factors = (
            rows * self.width // self.tiling.tile,
            rows * self.tiling.tile * self.width,
        )
        return self.images * self.chunks * self.chunk_elements, scales, factors

    def image(self, f: FunctionBuilder, batch: Index, block: Index, blocks: Size) -> Index:
        """The number of an image and the group of a block, of so many in all."""
        group = f.idiv(block, blocks // self.groups) if self.groups > 1 else 0
        return f.iadd(f.imul(batch, self.groups), group)

    def scale_at(
        self, f: FunctionBuilder, scales: ir.Value, image: Index, tile: OutputTile
    ) -> ir.Value:
        """Where a tile's scale lies."""
        size = self.tiling.tile
        row = f.iadd(f.imul(image, self.tiling.down), f.idiv(tile.row, size))
        return f.at(scales, (row, self.width // size), f.idiv(tile.col, size))

    def factor_at(
        self, f: FunctionBuilder, factors: ir.Value, image: Index, row: Index, col: Index
    ) -> ir.Value:
        """Where an output's factor lies."""
        down = f.iadd(f.imul(image, self.tiling.down * self.tiling.tile), row)
        return f.at(factors, (down, self.width), col)

    def magnitude_at(
        self, f: FunctionBuilder, magnitudes: ir.Value, image: Index, tile: OutputTile
    ) -> ir.Value:
        """Pointer to the magnitude of the first input pixel under `tile`."""
        chunk, row = f.split(f.idiv(tile.row, self.tiling.tile), self.chunk)
        chunk_index = f.iadd(f.imul(image, self.chunks), chunk)
        row = f.imul(row, self.tiling.tile * self.reach)
        return f.at(magnitudes, (chunk_index, self.chunk_elements), row, tile.col, dtype="int32")


@dataclasses.dataclass(frozen=True)
class WinogradInput:
    """B^T d B of every tile. x: strides of the input, whose border holds the zeros around it;
    pads: zeros before, per axis. dtype: float32 or int16, of the data and of the matrices. groups:
    whose channels are summed apart; of float32, whose tiles are scaled by group.

    Arguments of the kernel: x, of float32 magnitudes and scales (see `Tables`), the matrices.
    """

    tiling: Tiling
    channels: Size
    x: Strides
    pads: tuple[int, int]
    dtype: str = F32
    groups: int = 1

    def __str__(self) -> str:
        return f"{self.dtype} input transform {self.tiling} of {self.channels} channels"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype,)

    @property
    def first(self) -> Size:
        """Elements from the first pixel of x to the first that a tile sees."""
        return sum(-p * s for p, s in zip(self.pads, self.x.space[1:], strict=True))

    @property
    def tables(self) -> Tables:
        """Of the scales of its tiles."""
        return Tables(self.tiling, self.groups)


def place_of(
    f: FunctionBuilder,
    tiling: Tiling,
    matrices: Strides,
    pointer: ir.Value,
    tile: OutputTile,
    dtype: str,
) -> ir.Value:
    """Where a tile's 16 channels lie in the first matrix."""
    row: Index = f.iadd(f.imul(tile.batch, tiling.down), f.idiv(tile.row, tiling.tile))
    pixel = f.iadd(f.imul(row, tiling.across), f.idiv(tile.col, tiling.tile))
    return f.at(pointer, (tile.block, matrices.block), (pixel, LANES), dtype=dtype)
