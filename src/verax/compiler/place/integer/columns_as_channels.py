"""Images of one or a few odd channels, whose pixels lie side by side: no lane of a pair is wasted.

The kernels of the blocked layout multiply pairs of a pixel's channels (of bytes, where VNNI is,
fours), so an image of three has a quarter of nothing in them, and sixteen numbers for each pixel in
memory. With channels last, and no more than there are, the columns of a window are neighbors: one
pixel with all their channels. So 7x7 windows of three channels are 7x1 windows of 21. In bytes the
border holds what stands for 0, which need not be the byte 0.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES
from verax.compiler.place.convolution.borders import write_border
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Physical, Placed
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr

Pads = tuple[tuple[int, int], ...]


def lie_beside(spec: ConvSpec) -> bool:
    """Whether columns of windows of `spec` are taken as channels: of pairs, where that saves steps.

    For images of two axes. Of an even number of channels, pairs are whole as they are.
    """
    flat = spec.kernel[0] == 1 and spec.output[0] == 1 and spec.strides[0] == 1
    plain = spec.groups == 1 and not spec.transposed and spec.dilations[2] == 1
    channels, columns = static_size(spec.channels), spec.kernel[2]
    fewer = (
        static_size(spec.steps(channels * columns)) < static_size(spec.steps(channels)) * columns
    )
    return spec.step > 1 and flat and plain and channels < LANES // 2 and fewer


def beside(
    lowering: Lowering, source: Placed, pads: Pads, center: Expr, label: str, zero: int = 0
) -> Placed:
    """The image [N, C, H, W] as [N, 1, H, W C], with a border for `pads`.

    pads: rows and columns of the border, of which the window reads. center: what becomes of an
    element, int16 or uint8. zero: what the border holds.
    """
    n, channels, rows, cols = source.physical.shape
    above, (left, right) = pads
    type_ = TensorType(DType(center.dtype), (n, 1, rows, cols * channels))
    spare = right * channels + 4 // type_.dtype.itemsize - 1  # a window's last step may end there
    target = lowering.values.allocate(Physical(type_, pads=(above, (left * channels, spare))))
    if zero:
        write_border(lowering, target, zero)
    batch, lane, row, col = source.physical.axis_strides
    to_batch, _, to_row, _ = target.physical.strides
    move = LoopSpec(
        (n, rows, cols, channels),
        (Access(str(source.physical.type.dtype), (batch, row, col, lane)),),
        (Access(center.dtype, (to_batch, to_row, channels, 1)),),
        (center,),
    )
    lowering.calls.call(move, (source, target), label)
    return target


def spec_beside(spec: ConvSpec, x: Placed) -> ConvSpec:
    """`spec` over columns as channels; x: as `beside` gives it."""
    channels, (_, rows, columns) = static_size(spec.channels), spec.kernel
    batch, _, row, _ = x.physical.strides
    strides = Strides(batch, LANES, 0, row, channels)
    return dataclasses.replace(spec, channels=channels * columns, kernel=(1, rows, 1), x=strides)


def weights_beside(weights: np.ndarray) -> np.ndarray:
    """(filters, channels, rows, columns) as (filters, columns * channels, rows, 1)."""
    filters, channels, rows, columns = weights.shape
    transposed = weights.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(transposed).reshape(filters, columns * channels, rows, 1)
