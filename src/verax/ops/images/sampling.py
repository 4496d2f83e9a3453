"""Operators that sample at computed positions: GridSample, AffineGrid.

GridSample's canonical order in float32, per output position: coordinate x = ((g + 1) * n - 1) / 2
(align_corners: (g + 1) / 2 * (n - 1)), each step rounded; weights from the fraction x - floor(x);
then the innermost axis first: v = tap0 * w0 rounded, one fused multiply-add per further tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Array, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.error_model import KAPPA, TINY, Rounding, U
from verax.numerics.fma import fma32, fma64
from verax.ops.common import draw
from verax.ops.movement.movement import agree, at_least_float32, ints, known_ints

Fused = Callable[[Any, Any, Any], Any]


@operator
class GridSample(Operator):
    """X (N, C, D1, ...) at the normalized positions grid (N, E1, ..., r), innermost axis first.

    NaN positions are taken as -1; positions beyond int32 as its ends.
    """

    align_corners: bool = False
    mode: str = "linear"
    padding_mode: str = "zeros"
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, grid = ctx.type(0), ctx.type(1)
        ctx.one_of("mode", self.mode, ("linear", "nearest", "cubic"))
        ctx.one_of("padding_mode", self.padding_mode, ("zeros", "border", "reflection"))
        ctx.require(x.rank >= 3 and grid.rank == x.rank, f"X {x} and grid {grid} do not fit")
        ctx.require(grid.dtype.is_float, f"grid must hold floats, it is {grid}")
        agree(ctx, (grid.dims[-1], x.rank - 2), f"coordinates in {grid} and spatial axes of {x}")
        batch = agree(ctx, (x.dims[0], grid.dims[0]), "batch sizes of X and grid")
        for d in x.dims[2:]:
            ctx.require(d != 0, f"X {x} has an empty spatial axis")
        return (x.with_dims([batch, x.dims[1], *grid.dims[1:-1]]),)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        jumps = index == 1 and self.mode == "nearest"
        return InputGain(Gain.unbounded if jumps else Gain.bounded)

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int] | None:
        return axes if index == 0 else None

    def reference(self, ev: Evaluation, x: Array, grid: Array) -> Array:
        if x.shape[0] != grid.shape[0]:
            raise InputError(f"the batch sizes of {x.shape} and {grid.shape} differ")
        return self._sample(x, grid, lambda a, b, c: a * b + c)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        x, grid = inputs
        if x.dtype != np.float32 or grid.dtype != np.float32:
            return super().canonical(ev, *inputs)
        return self._sample(x, grid, fma32)

    def _sample(self, x: Array, grid: Array, fma: Fused) -> Array:
        taps = [self._axis_taps(grid[..., -1 - i], n) for i, n in enumerate(x.shape[2:])]
        return _interpolate(x, [p for p, _ in taps], [w for _, w in taps], fma)

    def _coordinate(self, g: Array, size: int) -> Array:
        """Position on an axis of `size`, in pixels, before padding."""
        one = _scalar(g.dtype, 1)
        if self.align_corners:
            return (g + one) / (one + one) * (one * (size - 1))
        return ((g + one) * (one * size) - one) / (one + one)

    def _axis_taps(self, g: Array, size: int) -> tuple[list[Array], list[Array]]:
        """Source positions (-1: shows zero) and weights of each tap, in the shape of `g`."""
        g = np.where(g == g, g, -np.ones((), g.dtype))
        x = self._coordinate(g, size)
        one = x - x + 1
        if self.mode == "nearest":
            return [self._position(_rint(x), size)], [one]
        x = self._folded(x, size)
        base = np.floor(x)
        t = x - base
        if self.mode == "linear":
            return [self._position(base + k, size) for k in (0, 1)], [one - t, t]
        weights = [_cubic(d) for d in (t + one, t, one - t, one - t + one)]
        return [self._position(base + k, size) for k in (-1, 0, 1, 2)], weights

    def _folded(self, x: Array, size: int) -> Array:
        """Coordinates outside of the axis clamped or reflected (cubic and nearest: per tap)."""
        if self.mode != "linear" or self.padding_mode == "zeros":
            return x
        if self.padding_mode == "border":
            return np.clip(x, _scalar(x.dtype, 0), _scalar(x.dtype, size - 1))
        return self._reflected(x, size)

    def _reflected(self, x: Array, size: int) -> Array:
        """Reflection at the outer pixels' centers (align_corners) or outer borders."""
        if size == 1:
            return x * 0
        double = 2 * (size - 1) if self.align_corners else 2 * size
        half = (
            0 if self.align_corners else x.dtype.type(0.5) if x.dtype != object else Fraction(1, 2)
        )
        span = double // 2
        distance = np.abs(x + half)
        within = distance - np.floor(distance / double) * double
        folded = np.where(within > span, double - within, within) - half
        return np.clip(folded, 0, size - 1).astype(x.dtype)

    def _position(self, x: Array, size: int) -> Array:
        """Whole coordinates as int64 source positions, -1 where zero is shown."""
        if self.mode != "linear" and self.padding_mode == "reflection":
            x = _rint(self._reflected(x, size))
        limit = 2**31 - 1
        index = np.clip(x, -limit, limit).astype(np.int64)
        if self.padding_mode == "zeros":
            return np.where((index >= 0) & (index < size), index, -1)
        return index.clip(0, size - 1)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """A coordinate's rounding moves along the slope; then roundings of weights and sums."""
        x, grid = (np.asarray(v, np.float64) for v in inputs)
        size = np.zeros(outputs[0].shape[:1] + outputs[0].shape[2:])
        positions: list[list[Array]] = []
        weights: list[list[Array]] = []
        for i, n in enumerate(x.shape[2:]):
            g = grid[..., -1 - i]
            taps, factors = self._axis_taps(g, n)
            step = 4 * U * (n * (np.abs(g) + 1) + 1)
            size = size + step
            around = [self._folded(self._coordinate(g, n) + s * step, n) for s in (-1, 1)]
            floors = [np.rint(a) if self.mode == "nearest" else np.floor(a) for a in around]
            next_taps = [self._position(f + k, n) for f in floors for k in range(len(taps))]
            positions.append(taps + next_taps)
            weights.append(factors)
        samples = [_take(x, p) for p in product(*positions)]
        high, low = np.maximum.reduce(samples), np.minimum.reduce(samples)
        if self.mode == "nearest":
            return (_if_any(Rounding(high - low + 0.0, high - low + TINY)),)
        counted = [p[: len(w)] for p, w in zip(positions, weights)]
        sizes = [[np.abs(w) for w in ws] for ws in weights]
        absolute = _interpolate(np.abs(x), counted, sizes, lambda a, b, c: a * b + c)
        n = sum(len(w) for w in weights)
        drift = size[:, None] * (high - low) * (2.0 if self.mode == "cubic" else 1.0)
        largest = np.maximum(high, -low)
        # A cubic's weights are differences of numbers up to 8 |a|.
        factors = U * largest * (7.0 if self.mode == "cubic" else 0.0)
        sigma = np.hypot(drift / 10, np.hypot(KAPPA * U * np.sqrt(2 * n) * absolute, factors))
        bound = 2 * drift + U * (8 * n) * np.maximum(absolute, largest) + 12 * factors + n * TINY
        return (at_least_float32(Rounding(sigma, bound), ev.outputs[0].dtype),)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 4, 5))
        grid = rng.uniform(-1.6, 1.6, (2, 3, 6, 2)).astype(np.float32)
        grid[0, 0, 0], grid[0, 0, 1], grid[1, 2, 3] = (1, -1), (0, 0.5), (-3.7, 9.2)
        for mode in ("linear", "nearest", "cubic"):
            for padding_mode in ("zeros", "border", "reflection"):
                for align_corners in (False, True):
                    op = cls(mode=mode, padding_mode=padding_mode, align_corners=align_corners)
                    yield Case(op, (x, grid), (), f"{mode} {padding_mode} {align_corners}")
        volume = draw(rng, (2, 1, 3, 4, 5))
        coordinates = rng.uniform(-1.3, 1.3, (2, 2, 3, 1, 3)).astype(np.float32)
        for mode in ("linear", "nearest"):
            yield Case(cls(mode=mode, align_corners=True), (volume, coordinates), (), f"3-D {mode}")
        line = rng.uniform(-1, 1, (1, 7, 1)).astype(np.float32)
        yield Case(cls(), (draw(rng, (1, 2, 5)), line), (), "1-D")


def _scalar(dtype: np.dtype, value: float) -> Any:
    """A number in the arithmetic of `dtype` (object: Fractions)."""
    return Fraction(value) if dtype.kind == "O" else dtype.type(value)


def _rint(x: Array) -> Array:
    """Nearest integer, ties to even, of floats or Fractions."""
    if x.dtype.kind != "O":
        return np.rint(x)
    return np.array([round(v) for v in x.ravel()], object).reshape(x.shape)


def _cubic(d: Array) -> Array:
    """Keys' kernel with a = -0.75 at distances d in [0, 2]; which half is told by the value."""
    a = _scalar(d.dtype, -0.75)
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, inner, outer)


def _take(x: Array, positions: Sequence[Array]) -> Array:
    """x (N, C, D1, ...) at int64 positions (N, E1, ...) per axis: (N, C, E1, ...); -1 gives 0."""
    batch = np.arange(len(x)).reshape((-1,) + (1,) * (positions[0].ndim - 1))
    elements = np.moveaxis(x, 1, -1)[(batch, *positions)]
    outside = np.logical_or.reduce([p < 0 for p in positions])
    elements = np.where(outside[..., None], np.zeros((), x.dtype), elements)
    return np.moveaxis(elements, -1, 1)


def _interpolate(
    x: Array, positions: list[list[Array]], weights: list[list[Array]], fma: Fused
) -> Array:
    """Weighted sums over the taps of each axis, the innermost first."""

    def along_axis(axis: int, tap_positions: tuple[Array, ...]) -> Array:
        if axis == len(positions):
            return _take(x, tap_positions)
        total: Array | None = None
        for p, w in zip(positions[axis], weights[axis]):
            value, factor = along_axis(axis + 1, (*tap_positions, p)), w[:, None]
            total = value * factor if total is None else fma(value, factor, total)
        assert total is not None
        return total

    if len(positions[0]) == 1:  # nearest
        return _take(x, [p[0] for p in positions])
    return along_axis(0, ())


def _if_any(model: Rounding) -> Rounding | None:
    """None when the model allows no error anywhere."""
    return model if model.sigma.any() else None


@operator
class AffineGrid(Operator):
    """Grid for GridSample: theta (N, r, r + 1) applied to the normalized positions of `size`.

    size: (N, C, D1, ..., Dr) as int64. Result (N, D1, ..., Dr, r). With `align_corners` an axis of
    size 1 lies at 0, as in PyTorch; ONNX's formula divides by zero there.
    """

    gains = (Gain.bounded,)
    align_corners: bool = False
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        theta, size = ctx.type(0), ctx.type(1)
        ctx.require(theta.rank == 3, f"theta must have rank 3, it is {theta}")
        rank = theta.dims[1]
        if not isinstance(rank, int):
            ctx.fail(f"the number of spatial axes in theta {theta} is not known")
        ctx.require(theta.dims[2] == rank + 1, f"theta must be (N, r, r + 1), it is {theta}")
        ctx.require(size.dims == (rank + 2,), f"size must hold {rank + 2} numbers, it is {size}")
        static_size = known_ints(ctx, 1, "size")
        spatial = (
            [ctx.fresh("grid") for _ in range(rank)] if static_size is None else static_size[2:]
        )
        batch = (
            theta.dims[0]
            if static_size is None
            else agree(ctx, (theta.dims[0], static_size[0]), "batch")
        )
        return (theta.with_dims([batch, *spatial, rank]),)

    def _positions(self, n: int, dtype: np.dtype) -> Array:
        i = np.arange(n).astype(dtype)
        one = _scalar(dtype, 1)
        if self.align_corners:
            return (i * 2 / (one * (n - 1)) - one) if n > 1 else i
        return (i * 2 + one) / (one * n) - one

    def _points(self, theta: Array, size: Array) -> Array:
        """(D1, ..., Dr, r + 1): position, innermost axis first, and a 1."""
        spatial = ints(size)[2:]
        if len(spatial) != theta.shape[1] or min(spatial, default=0) < 0:
            raise InputError(f"size {ints(size)} does not fit theta {theta.shape}")
        axes = np.meshgrid(*(self._positions(n, theta.dtype) for n in spatial), indexing="ij")
        ones = np.ones(spatial, dtype=theta.dtype)
        return np.stack([*reversed(axes), ones], axis=-1)

    def reference(self, ev: Evaluation, theta: Array, size: Array) -> Array:
        points = self._points(theta, size)
        flat = points.reshape(-1, points.shape[-1])
        out = np.stack([flat @ matrix.T for matrix in theta]) if len(theta) else theta[:, :0]
        return out.reshape(len(theta), *points.shape[:-1], theta.shape[1])

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """In float64, from the innermost axis on: a product, then fused multiply-adds; then it is
        rounded once."""
        theta, size = inputs
        if theta.dtype.itemsize == 2:
            return self.in_float32(ev, theta, size)
        wide = np.asarray(theta, np.float64)
        points = self._points(wide, size)[..., None, :]
        matrices = wide.reshape(len(wide), *[1] * (points.ndim - 2), *wide.shape[1:])
        with np.errstate(all="ignore"):
            total = points[..., 0] * matrices[..., 0]
            for k in range(1, wide.shape[2]):
                total = fma64(points[..., k], matrices[..., k], total)
            return total.astype(ev.outputs[0].dtype.numpy)

    def axis_positions(self, n: int) -> Array:
        """Normalized positions of an axis of n, float64."""
        return self._positions(n, np.dtype(np.float64))

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        theta = np.abs(np.asarray(inputs[0], np.float64))
        absolute = self.reference(ev, theta, inputs[1]) * 0
        points = np.abs(self._points(theta, inputs[1])) + 1.0  # positions come from 2i/n - 1
        flat = points.reshape(-1, points.shape[-1])
        absolute += (flat @ theta.swapaxes(1, 2)).reshape(absolute.shape)
        n = theta.shape[2]
        model = Rounding(KAPPA * U * np.sqrt(n) * absolute, U * (n + 4) * absolute + n * TINY)
        return (at_least_float32(model, ev.outputs[0].dtype),)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        flat, deep = draw(rng, (2, 2, 3)), draw(rng, (3, 3, 4))
        for align_corners in (False, True):
            op = cls(align_corners=align_corners)
            yield Case(op, (flat, np.array([2, 5, 3, 4])), (1,))
            yield Case(op, (deep, np.array([3, 1, 2, 1, 5])), (1,), "3-D")
        yield Case(cls(), (flat, np.array([2, 1, 4, 1])), (), "size at run time")
