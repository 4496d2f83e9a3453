"""What Strassen's product computes and where its operands lie (`strassen` emits it)."""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import Epilogue, Strides, Triple, fused, operand_dtypes
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix
from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import LANES
from verax.numerics import strassen

F32 = "float32"


@dataclasses.dataclass(frozen=True)
class ImageRows:
    """Rows of a product that are the pixels of an image in blocks of 16 channels.

    block: elements from a block of a to the next one; its pixels lie side by side. y: strides of
    the result. size: depth, rows and columns of the image, of y and what is fused too.
    """

    block: Size
    y: Strides
    size: Triple


@dataclasses.dataclass(frozen=True)
class StrassenSpec:
    """y [m, n] = a [m, k] @ b [k, n], float32; k is even, n a multiple of 32. Both are row-major
    and dense, or as `image` says; k is then a multiple of 32. epilogue: as that of `whole`, or of a
    convolution; y has its type.

    Arguments of the kernel: a, sums of its quarters and scales of its rows (of `left_sums`), packed
    b, scales of its columns, signs of b (int8 [k, n]), room for sums (`room_elements`), epilogue
    operands, y.
    """

    m: Size
    n: Size
    k: Size
    epilogue: Epilogue | None = None
    image: ImageRows | None = None

    def __str__(self) -> str:
        text = f"[{self.m}, {self.k}] @ [{self.k}, {self.n}]"
        if self.image:
            text = f"convolution {self.k} to {self.n} x {self.m} pixels"
        return f"Strassen float32 {text}{fused(self.epilogue)}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return F32, *operand_dtypes(self.epilogue)

    @property
    def stored(self) -> str:
        """Element type of y."""
        return self.epilogue.expr.dtype if self.epilogue else F32

    @property
    def upper(self) -> Size:
        """Rows of the upper half; the lower one has one less where m is odd."""
        return ceil_div(self.m, 2)

    @property
    def lower(self) -> Size:
        return self.m // 2

    @property
    def full_product(self) -> GemmSpec:
        """The product itself, of matrices."""
        return GemmSpec(self.m, self.n, self.k, Matrix(self.k, 1), Matrix(self.n, 1), types=FLOAT32)

    @property
    def half(self) -> ConvSpec:
        """One of the seven, of a sum of quarters of a; written where y's upper left quarter is."""
        n, k = self.n // 2, self.k // 2
        if self.image is None:
            left, y = Matrix(k, 1), Matrix(self.n, 1)
            return GemmSpec(self.upper, n, k, left, y, types=FLOAT32).convolution()
        row = self.upper * LANES
        x, result = (Strides(0, stride, 0, row) for stride in (row, self.image.y.block))
        size, one = (1, 1, self.upper), (1, 1, 1)
        return ConvSpec(1, k, n, size, one, x, result, bias=False, types=FLOAT32)

    @property
    def steps(self) -> tuple[Size, Size, Size]:
        """Elements of a from a row to the next, from 16 terms to the next, to the right half."""
        if self.image is None:
            return self.k, LANES, self.k // 2
        return LANES, self.image.block, self.k // 2 // LANES * self.image.block

    @property
    def sum_steps(self) -> tuple[Size, Size]:
        """Elements of a sum from a row to the next, from 16 terms to the next."""
        return (self.k // 2, LANES) if self.image is None else (LANES, self.upper * LANES)

    @property
    def sum_elements(self) -> Size:
        """Elements that the seven sums of a's quarters take."""
        return strassen.PRODUCTS * self.upper * (self.k // 2)
