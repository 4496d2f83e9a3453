"""ResizeInteger: bilinear interpolation between integers, exact, as LiteRT's reference kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.ops.common import draw, normalize_axis
from verax.ops.windows.windows import Ints

TYPES = (DType.int8, DType.int16)
BITS = 10
"""Of the weight of a neighbor, along each axis."""
MAX_SIZE = 1 << 20
"""Positions along one axis up to which their table is made."""
Table = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of each position its lower neighbor, its upper one, and the weight of that; all int64 [size]."""


@operator
class ResizeInteger(Operator):
    """Bilinear interpolation of x along `axes` to `sizes`: products of weights of 10 bits in
    integers, added exactly, rounded once with halves away from zero.

    Scale and zero point stay. align_corners: first and last positions meet; half_pixel_centers:
    positions count from the middles of pixels; not both. Source: LiteRT's reference kernel.
    """

    sizes: Ints = ()
    axes: Ints = (1, 2)
    align_corners: bool = False
    half_pixel_centers: bool = False

    exact = True
    no_derivative = "its results are integers, which jump"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        ctx.require(x.dtype in TYPES, f"the input is {x}, not {', '.join(TYPES)}")
        ctx.require(len(self.sizes) == len(self.axes), f"{self.sizes} for axes {self.axes}")
        excluded = self.align_corners and self.half_pixel_centers
        ctx.require(not excluded, "align_corners and half_pixel_centers exclude each other")
        dims = list(x.dims)
        axes = [normalize_axis(ctx, a, x.rank) for a in self.axes]
        ctx.require(len(set(axes)) == len(axes), f"an axis occurs twice in {self.axes}")
        for axis, size in zip(axes, self.sizes):
            ctx.require(0 < size <= MAX_SIZE, f"size {size} is not within 1 .. {MAX_SIZE}")
            ctx.require(dims[axis] != 0, f"nothing to interpolate along axis {axis}")
            dims[axis] = size
        return [TensorType(x.dtype, tuple(dims))]

    def table(self, axis: int, in_size: int) -> Table:
        """(lower neighbors, upper neighbors, weights) of the output along `self.axes[axis]`.

        in_size: elements of the input along it."""
        size = self.sizes[axis]
        if self.align_corners and size > 1:
            scale = ((in_size - 1 << BITS) + (size - 1) // 2) // (size - 1)
        else:
            scale = ((in_size << BITS) + size // 2) // size
        at = np.arange(size, dtype=np.int64) * scale
        if self.half_pixel_centers:
            at += scale // 2 - (1 << BITS - 1)
        low = np.maximum(at >> BITS, 0)  # positions before the first have a negative weight
        high = np.minimum(-(-at >> BITS), in_size - 1)
        return low, np.maximum(high, 0), at - (low << BITS)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        tables = [self.table(i, x.shape[a]) for i, a in enumerate(self.axes)]
        total = weighted(x, self.axes, tables, BITS)
        one = 1 << len(self.axes) * BITS
        return (np.sign(total) * ((np.abs(total) + one // 2) // one)).astype(x.dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 5, 7, 3), "int8", -128, 127)
        yield Case(cls(sizes=(11, 4)), (x,))
        yield Case(cls(sizes=(11, 4), align_corners=True), (x,))
        yield Case(cls(sizes=(3, 13), half_pixel_centers=True), (x,))
        words = draw(rng, (2, 3, 5, 6), "int16", -32768, 32767)
        yield Case(cls(sizes=(7, 4), axes=(-2, -1)), (words,), label="channels first")
        yield Case(cls(sizes=(9,), axes=(1,)), (words,), label="one axis")
        yield Case(cls(sizes=(1, 1), align_corners=True), (x,), label="to a point")


def weighted(x: np.ndarray, axes: Ints, tables: Sequence[Table], bits: int) -> np.ndarray:
    """Sums of products along every axis: the interpolation times 2^(bits of all axes), int64."""
    value = x.astype(np.int64)
    for axis, (low, high, weight) in zip(axes, tables):
        lanes = [1] * x.ndim
        lanes[axis] = -1
        factor = weight.reshape(lanes)
        below, above = (np.take(value, indices, axis) for indices in (low, high))
        value = below * ((1 << bits) - factor) + above * factor
    return value
