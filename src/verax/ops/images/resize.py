"""Resize: nearest, linear and cubic resampling of any axes (Upsample is a case of it).

The operator is separable: one table per axis (`resize_tables`). Its canonical order takes the last
resized axis first, then the ones before it; each output of an axis is x0 * w0 rounded, then one
fused multiply-add per further tap in ascending order, weights in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import DimLike, is_known
from verax.ir.gains import Gain
from verax.ir.operator import Array, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import KAPPA, TINY, Rounding, U
from verax.numerics.fma import fma32
from verax.ops.common import constant, draw, normalize_axes
from verax.ops.images.resize_tables import (
    NEAREST_MODES,
    TRANSFORMS,
    AxisTable,
    Interpolation,
    axis_table,
    float32_positions,
    nearest_index,
)
from verax.ops.movement.movement import along, at_least_float32, axis_of, ints, known_ints

POLICIES = ("stretch", "not_larger", "not_smaller")
WHOLE = (Fraction(0), Fraction(1))


@dataclass(frozen=True)
class AxisPlan:
    """One axis to resample: its sizes, scale and region of interest, all numbers."""

    axis: int
    in_size: int
    out_size: int
    scale: Fraction
    roi: tuple[Fraction, Fraction]


@operator
class Resize(Operator):
    """Inputs: X, roi, scales, sizes (exactly one of the last two; an empty tensor is an omitted
    one). `axes` says which axes these speak of (None: all). Attributes as in ONNX; the output
    size of a scale is floor(in * scale) computed in float32, as runtimes and recorded shapes do.
    Integers are computed in float64, rounded to nearest even and saturated.
    """

    gains = (Gain.bounded, Gain.unbounded)
    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False
    axes: tuple[int, ...] | None = None
    keep_aspect_ratio_policy: str = "stretch"
    max_inputs: ClassVar[int | None] = 4

    @property
    def interpolation(self) -> Interpolation:
        """The attributes that tables depend on."""
        return Interpolation(
            self.mode,
            self.coordinate_transformation_mode,
            self.nearest_mode,
            self.cubic_coeff_a,
            self.exclude_outside,
            self.antialias and self.mode != "nearest",
        )

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        transform = self.coordinate_transformation_mode
        ctx.one_of("mode", self.mode, ("nearest", "linear", "cubic"))
        ctx.one_of("coordinate_transformation_mode", transform, TRANSFORMS)
        ctx.one_of("nearest_mode", self.nearest_mode, NEAREST_MODES)
        ctx.one_of("keep_aspect_ratio_policy", self.keep_aspect_ratio_policy, POLICIES)
        axes = self._axes(ctx, x.rank)
        has_scales, has_sizes = (ctx.has(i) and ctx.type(i).size != 0 for i in (2, 3))
        ctx.require(has_scales != has_sizes, "exactly one of scales and sizes must be given")
        source = 2 if has_scales else 3
        count = ctx.type(source).size
        ctx.require(
            not isinstance(count, int) or count == len(axes), f"{count} numbers for axes {axes}"
        )
        is_crop = self.coordinate_transformation_mode == "tf_crop_and_resize"
        if is_crop:
            ctx.require(ctx.has(1) and ctx.type(1).size == 2 * len(axes), "roi must be given")
        if has_sizes:
            static_sizes = known_ints(ctx, 3, "sizes")
            sizes = self._from_sizes(ctx, [x.dims[a] for a in axes], static_sizes)
        else:
            scales = ctx.value(2)
            roi = ctx.value(1) if is_crop else np.repeat([0.0, 1.0], len(axes))
            sizes = [ctx.fresh("resize") for _ in axes]
            if scales is not None and roi is not None:
                self._check_scales(ctx.fail, np.asarray(scales, np.float64))
                for i, a in enumerate(axes):
                    extent = float(roi[len(axes) + i]) - float(roi[i])
                    scaled_size = _scaled(x.dims[a], float(scales[i]), extent)
                    sizes[i] = sizes[i] if scaled_size is None else scaled_size
        dims = list(x.dims)
        for a, size in zip(axes, sizes):
            ctx.require(
                dims[a] != 0 or size == 0, f"axis {a} of {x} is empty and cannot be enlarged"
            )
            dims[a] = size
        return (x.with_dims(dims),)

    def _axes(self, ctx: Inference, rank: int) -> tuple[int, ...]:
        return normalize_axes(ctx, range(rank) if self.axes is None else self.axes, rank)

    def _from_sizes(
        self, ctx: Inference, dims: list[DimLike], sizes: list[DimLike] | None
    ) -> list[DimLike]:
        if sizes is None:
            return [ctx.fresh("resize") for _ in dims]
        ctx.require(all(not is_known(s) or s >= 0 for s in sizes), f"a size of {sizes} is negative")
        if self.keep_aspect_ratio_policy == "stretch":
            return sizes
        old = [d for d in dims if isinstance(d, int)]
        new = [s for s in sizes if isinstance(s, int)]
        if len(old) < len(dims) or len(new) < len(dims):
            return [ctx.fresh("resize") for _ in dims]
        ctx.require(min(old) > 0, f"sizes {old} have no aspect ratio")
        return [d for d, _ in self._kept_aspect(old, new)]

    def _kept_aspect(self, old: list[int], new: list[int]) -> list[tuple[DimLike, Fraction]]:
        ratios = [Fraction(n, o) for n, o in zip(new, old)]
        scale = min(ratios) if self.keep_aspect_ratio_policy == "not_larger" else max(ratios)
        return [(floor(scale * o + Fraction(1, 2)), scale) for o in old]

    @staticmethod
    def _check_scales(fail: Callable[[str], Any], scales: Array) -> None:
        if not (np.isfinite(scales).all() and (scales > 0).all()):
            fail(f"scales must be positive, they are {scales.tolist()}")

    def plan(
        self, shape: tuple[int, ...], roi: Array | None, scales: Array | None, sizes: Array | None
    ) -> list[AxisPlan]:
        """Axes to resample, from the values of the inputs. Raises `InputError`."""
        rank = len(shape)
        axes = [axis_of(a, rank) for a in (range(rank) if self.axes is None else self.axes)]
        old = [shape[a] for a in axes]
        rois = [WHOLE] * len(axes)
        if self.coordinate_transformation_mode == "tf_crop_and_resize":
            flat = [] if roi is None else [float(v) for v in np.ravel(roi)]
            if len(flat) != 2 * len(axes) or not np.isfinite(flat).all():
                raise InputError(f"roi {flat} must be {2 * len(axes)} finite numbers")
            rois = [(Fraction(a), Fraction(b)) for a, b in zip(flat, flat[len(axes) :])]
        if sizes is not None and np.size(sizes):
            new = ints(sizes)
            if len(new) != len(axes) or min(new, default=0) < 0:
                raise InputError(f"sizes {new} do not fit the axes {axes} of {shape}")
            if any(o == 0 != n for o, n in zip(old, new)):
                raise InputError(f"an empty axis of {shape} cannot be enlarged to {new}")
            if self.keep_aspect_ratio_policy != "stretch" and 0 not in old:
                size_ratios = self._kept_aspect(old, new)
                new, ratios = [int(n) for n, _ in size_ratios], [s for _, s in size_ratios]  # type: ignore[arg-type]
            else:
                ratios = [Fraction(n, max(o, 1)) for n, o in zip(new, old)]
        else:
            factors = np.array([float(v) for v in np.ravel(scales)])  # type: ignore[arg-type]
            self._check_scales(_raise_input_error, factors)
            if len(factors) != len(axes):
                raise InputError(f"{len(factors)} scales for the axes {axes} of {shape}")
            ratios = [Fraction(float(f)) for f in factors]
            new = [
                int(_scaled(o, float(f), float(end - start)))  # type: ignore[arg-type]
                for o, f, (start, end) in zip(old, factors, rois)
            ]
        return [AxisPlan(*p) for p in zip(axes, old, new, ratios, rois)]

    def tables(
        self,
        shape: tuple[int, ...],
        roi: Array | None,
        scales: Array | None,
        sizes: Array | None,
        dtype: str = "float32",
    ) -> list[tuple[int, AxisTable]]:
        """(axis, table) of the axes that change, in the canonical order; weights in `dtype`."""
        axis_tables = []
        for p in sorted(self.plan(shape, roi, scales, sizes), key=lambda p: -p.axis):
            if p.in_size == 0 and p.out_size == 0:
                continue
            table = axis_table(self.interpolation, p.in_size, p.out_size, p.scale, p.roi, dtype)
            if not table.is_identity or p.in_size != p.out_size:
                axis_tables.append((p.axis, table))
        return axis_tables

    def reference(
        self,
        ev: Evaluation,
        x: Array,
        roi: Array | None = None,
        scales: Array | None = None,
        sizes: Array | None = None,
    ) -> Array:
        declared = ev.inputs[0]
        is_float = declared is None or declared.dtype.is_float
        dtype = ("object" if ev.work.kind == "O" else str(ev.work)) if is_float else "float64"
        tables = self.tables(x.shape, roi, scales, sizes, dtype)
        out = x if is_float or self.mode == "nearest" else x.astype(np.float64)
        for axis, table in tables:
            out = resample(out, axis, table, lambda a, b, c: a * b + c)
        out = self._extrapolated(out, tables, constant(ev, self.extrapolation_value))
        return out if is_float or self.mode == "nearest" else _saturated(out, x.dtype)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """See the module's docstring; nearest copies; other dtypes round the float64 meaning."""
        x = inputs[0]
        if self.mode != "nearest" and x.dtype != np.float32:
            return super().canonical(ev, *inputs)
        tables = self.tables(x.shape, *_optional_inputs(inputs))
        for axis, table in tables:
            x = resample(x, axis, table, fma32)
        return self._extrapolated(x, tables, x.dtype.type(self.extrapolation_value))

    @staticmethod
    def _extrapolated(x: Array, tables: list[tuple[int, AxisTable]], value: Any) -> Array:
        for axis, table in tables:
            if table.outside.any():
                x = x.copy()
                x[along(axis, table.outside)] = value
        return x

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Coordinates computed in float32 move along the slope; then one rounding per tap."""
        x, y = inputs[0], outputs[0]
        if self.mode == "nearest":
            return (self._nearest_error(x, y, *_optional_inputs(inputs)),)
        if not ev.outputs[0].dtype.is_float:
            return (Rounding(np.full(y.shape, 0.5), np.ones(y.shape)),)
        high, low, absolute = np.asarray(x), np.asarray(x), np.abs(x)
        taps, drift = 1, np.zeros((1,) * y.ndim)
        for axis, table in self.tables(x.shape, *_optional_inputs(inputs), "float64"):
            assert table.weights is not None
            near = _widened(table.positions, x.shape[axis])
            high = _extreme(high, axis, near, np.maximum)
            low = _extreme(low, axis, near, np.minimum)
            bare = replace(table, weights=abs(table.weights))
            absolute = resample(absolute, axis, bare, lambda a, b, c: a * b + c)
            taps += table.positions.shape[1]
            shape = [1] * y.ndim
            shape[axis] = -1
            drift = drift + table.drift.reshape(shape)
        if taps == 1:
            return (None,)
        slope = (high - low) * (2.0 if self.mode == "cubic" else 1.0)
        # A cubic's weights are differences of numbers up to 8 |a|.
        weights = np.maximum(high, -low) * (7.0 if self.mode == "cubic" else 0.0)
        sums = np.hypot(KAPPA * np.sqrt(taps) * absolute, weights)
        sigma = U * np.hypot(0.4 * drift * slope, sums)
        bound = U * (6 * drift * slope + (3 * taps + 2) * absolute + 12 * weights) + taps * TINY
        model = Rounding(sigma + np.zeros(y.shape), bound + np.zeros(y.shape))
        return (at_least_float32(model, ev.outputs[0].dtype),)

    def _nearest_error(
        self, x: Array, y: Array, roi: Any, scales: Any, sizes: Any
    ) -> Rounding | None:
        """Exact but where a coordinate in float32 falls to another side of a tie."""
        high = low = np.asarray(x)
        differs = False
        for p in sorted(self.plan(x.shape, roi, scales, sizes), key=lambda p: -p.axis):
            if p.in_size == 0:
                return None
            table = axis_table(self.interpolation, p.in_size, p.out_size, p.scale, p.roi)
            float32_indices = float32_positions(
                self.interpolation, p.in_size, p.out_size, p.scale, p.roi
            )
            ratio = self._by_ratio(table, p)
            candidates = np.stack([table.positions[:, 0], float32_indices, ratio], axis=1)
            differs |= bool((candidates != candidates[:, :1]).any())
            high = _extreme(high, p.axis, candidates, np.maximum)
            low = _extreme(low, p.axis, candidates, np.minimum)
        if not differs:
            return None
        distance = np.maximum(high - y, y - low).astype(np.float64) + TINY
        return Rounding(distance, distance)

    def _by_ratio(self, table: AxisTable, p: AxisPlan) -> Array:
        """Elements chosen when aligned corners are computed as i * ((n - 1) / (m - 1)) in float32,
        as some runtimes do."""
        if self.coordinate_transformation_mode != "align_corners" or p.out_size < 2:
            return table.positions[:, 0]
        step = np.float32(p.in_size - 1) / np.float32(p.out_size - 1)
        coordinates = np.arange(p.out_size, dtype=np.float32) * step
        indices = [nearest_index(Fraction(float(x)), self.nearest_mode) for x in coordinates]
        return np.array(indices, np.int64).clip(0, p.in_size - 1)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield from resize_cases(cls, rng)


def resample(x: Array, axis: int, table: AxisTable, fma: Callable[[Any, Any, Any], Any]) -> Array:
    """One axis by its table: the first tap's product, then `fma(x, w, sum)` for each further."""
    if table.weights is None:
        return x[along(axis, table.positions[:, 0])]
    shape = (-1,) + (1,) * (x.ndim - axis - 1)
    total = x[along(axis, table.positions[:, 0])] * table.weights[:, 0].reshape(shape)
    for k in range(1, table.positions.shape[1]):
        tap = x[along(axis, table.positions[:, k])]
        total = fma(tap, table.weights[:, k].reshape(shape), total)
    return total


def _scaled(size: DimLike, scale: float, extent: float) -> DimLike | None:
    """Output size of an axis; None when a symbol times this scale cannot be written."""
    if isinstance(size, int):
        product = np.float32(size) * np.float32(scale)
        return max(0, floor(product if extent == 1.0 else product * np.float32(extent)))
    exact = Fraction(float(np.float32(scale)))
    if extent != 1.0 or exact.denominator > 64:
        return None
    return size * exact.numerator // exact.denominator


def _optional_inputs(inputs: Sequence[Any]) -> tuple[Any, Any, Any]:
    """(roi, scales, sizes) of the inputs, None for each that is omitted."""
    roi, scales, sizes = (*inputs[1:], None, None, None)[:3]
    return roi, scales, sizes


def _raise_input_error(message: str) -> None:
    raise InputError(message)


def _saturated(x: Array, dtype: np.dtype) -> Array:
    if dtype.kind == "b":
        return np.rint(x).astype(dtype)
    info = np.iinfo(dtype)
    return np.clip(np.rint(x), float(info.min), float(info.max)).astype(dtype)


def _widened(positions: Array, size: int) -> Array:
    """Positions with one neighbor more at either end: a coordinate may round into them."""
    ends = np.stack([positions[:, 0] - 1, positions[:, -1] + 1], axis=1)
    return np.concatenate([positions, ends], axis=1).clip(0, size - 1)


def _extreme(x: Array, axis: int, positions: Array, choose: Any) -> Array:
    """Largest (smallest) element of `x` at the candidate positions of each output of an axis.

    positions: int64 [out_size, candidates]. choose: np.maximum or np.minimum.
    """
    extreme = x[along(axis, positions[:, 0])]
    for k in range(1, positions.shape[1]):
        extreme = choose(extreme, x[along(axis, positions[:, k])])
    return extreme


def resize_cases(cls: type[Resize], rng: np.random.Generator) -> Iterator[Case]:
    """Every attribute, enlarging and shrinking, by scales and by sizes."""
    x = draw(rng, (2, 3, 4, 5))

    def by_scales(*scales: float, **attributes: Any) -> Case:
        inputs = (x, None, np.array(scales, np.float32))
        return Case(cls(**attributes), inputs, (2,), f"scales {scales}")

    def by_sizes(*sizes: int, **attributes: Any) -> Case:
        return Case(cls(**attributes), (x, None, None, np.array(sizes)), (3,), f"sizes {sizes}")

    for mode in ("nearest", "linear", "cubic"):
        yield by_scales(1, 1, 2, 2, mode=mode)
        yield by_sizes(2, 3, 3, 11, mode=mode)
        for transform in TRANSFORMS[:-1]:
            modes = {"mode": mode, "coordinate_transformation_mode": transform}
            yield by_sizes(2, 3, 7, 3, **modes)
            yield by_scales(1, 1, 0.6, 1.3, **modes)
        roi = np.array([0.0, 0.0, 0.3, -0.2, 1.0, 1.0, 0.9, 1.25], np.float32)
        crop = cls(
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=-1.5,
        )
        yield Case(crop, (x, roi, None, np.array([2, 3, 6, 7])), (1, 3), "roi")
        yield by_sizes(3, 7, mode=mode, axes=(3, 2), keep_aspect_ratio_policy="not_larger")
        yield by_sizes(6, 7, mode=mode, axes=(-2, -1), keep_aspect_ratio_policy="not_smaller")
    for nearest_mode in NEAREST_MODES:
        for transform in ("asymmetric", "align_corners"):
            yield by_sizes(
                *(2, 3, 8, 3), nearest_mode=nearest_mode, coordinate_transformation_mode=transform
            )
    for mode in ("linear", "cubic"):
        yield by_scales(1, 1, 0.6, 0.45, mode=mode, antialias=True)
        yield by_sizes(2, 3, 2, 9, mode=mode, antialias=True, exclude_outside=True)
        yield by_sizes(2, 3, 7, 9, mode=mode, exclude_outside=True)
    yield by_sizes(2, 3, 9, 4, mode="cubic", cubic_coeff_a=-0.5)
    pixels = draw(rng, (1, 2, 3, 4), DType.uint8, 0, 255)
    yield Case(cls(mode="linear"), (pixels, None, np.array([1, 1, 2, 1.5], np.float32)), (2,))
    volume = draw(rng, (1, 2, 3, 4, 5))
    sizes = np.array([1, 2, 5, 3, 7])
    yield Case(cls(mode="linear"), (volume, None, None, sizes), (3,), "3-D")
    at_run_time = (draw(rng, (1, 2, 5)), None, np.array([1, 1, 1.5], np.float32))
    yield Case(cls(mode="linear"), at_run_time, (), "scales at run time")
