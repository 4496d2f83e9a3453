"""Normalization over the trailing axes (layer, RMS), and over chosen axes without parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import DimLike, is_known
from verax.ir.dim_forms import broadcasts
from verax.ir.gains import Gain, InputGain, is_guard, normalization
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import KAPPA, Rounding, U
from verax.numerics.fma import ORDERED
from verax.ops.common import (
    as_dtype,
    constant,
    declared_units,
    draw,
    normalize_axes,
    normalize_axis,
)
from verax.ops.sums.moments import (
    Axes,
    guarded_inverse_of,
    inverse_error,
    mean_error,
    moments,
    normalized_error,
    promised_inverse,
    promised_moments,
    root_of,
    second_error,
    variance_error,
)
from verax.ops.sums.normalization import EPSILON, check_epsilon, standardised
from verax.ops.windows.windows import same_floats

MVN_EPSILON = 1e-9  # ONNX's function body adds it to the standard deviation


def trailing_axes(ctx: Inference, axis: int) -> Axes:
    """Axes from `axis` on, checked against input 0."""
    rank = ctx.type(0).rank
    return tuple(range(normalize_axis(ctx, axis, rank), rank))


def expect_broadcast(ctx: Inference, index: int, dims: Sequence[DimLike], name: str) -> None:
    """Fail when optional input `index` is there and certainly does not broadcast to `dims`."""
    if not ctx.has(index):
        return
    type_ = ctx.type(index)
    fits = type_.rank <= len(dims) and all(
        broadcasts(d, want) or not (is_known(d) and is_known(want))
        for d, want in zip(type_.dims[::-1], tuple(dims)[::-1])
    )
    ctx.require(fits, f"{name} is {type_}, and does not broadcast to {', '.join(map(str, dims))}")


@operator
class LayerNormalization(Operator):
    """Normalizes over the axes from `axis` on; scale and the optional bias broadcast to x.

    with_statistics: two more outputs, mean and 1 / sqrt(variance + epsilon), of element type
    `stash_type`, with the normalized axes of size 1.
    """

    axis: int = -1
    epsilon: float = EPSILON
    stash_type: DType = DType.float32
    with_statistics: bool = False

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "stash_type", as_dtype(self.stash_type))

    @property
    def output_count(self) -> int:
        return 3 if self.with_statistics else 1

    def keeps_type(self, dtype: str) -> bool:
        """Whether all that is computed and given of inputs of `dtype` has that type."""
        return str(self.stash_type) == dtype or (dtype == "float64" and not self.with_statistics)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, axes = ctx.type(0), trailing_axes(ctx, self.axis)
        same_floats(ctx, 0, 1, 2)
        check_epsilon(ctx, self.epsilon)
        expect_broadcast(ctx, 1, x.dims, "scale")
        expect_broadcast(ctx, 2, x.dims, "bias")
        statistics_dims = [1 if a in axes else d for a, d in enumerate(x.dims)]
        statistics = TensorType(self.stash_type, tuple(statistics_dims))
        return [x, statistics, statistics][: self.output_count]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index:
            return InputGain(Gain.bounded)
        return normalization(trailing_axes(ctx, self.axis), self.epsilon)

    def reference(self, ev: Evaluation, x: Any, scale: Any, b: Any = None) -> Any:
        axes = self._axes(x)
        d, inverse = standardised(x, axes, constant(ev, self.epsilon))
        y = d * inverse * scale
        y = y if b is None else y + b
        return (y, np.mean(x, axis=axes, keepdims=True), inverse) if self.with_statistics else y

    def canonical(self, ev: Evaluation, x: Any, scale: Any, b: Any = None) -> Any:
        """`promised_moments`, normalized."""
        if x.dtype not in ORDERED or not self.keeps_type(str(x.dtype)):
            return super().canonical(ev, x, scale, b)
        statistics = promised_moments(x, self._axes(x))
        y = statistics.normalized(self.epsilon, scale, b)
        return (y, statistics.mean, statistics.inverse(self.epsilon)) if self.with_statistics else y

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        x, scale, b = (*inputs, None)[:3]
        statistics = moments(x, self._axes(x))
        y = normalized_error(
            x, statistics, self.epsilon, scale, 0.0 if b is None else b, outputs[0]
        )
        if not self.with_statistics:
            return [y]
        inverse = inverse_error(statistics.variance, variance_error(statistics), self.epsilon)
        return [
            y,
            mean_error(statistics),
            Rounding(inverse.sigma * outputs[2], inverse.bound * outputs[2]),
        ]

    def _axes(self, x: np.ndarray) -> Axes:
        return tuple(range(self.axis % x.ndim, x.ndim))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(
            shape: Axes, scale: Axes, bias: Axes | None, dtype: str = "float32", **attributes: Any
        ) -> Case:
            arrays = [draw(rng, s, dtype) for s in (shape, scale, bias) if s is not None]
            return Case(cls(**attributes), tuple(arrays), label=f"{dtype} {shape}")

        yield case((2, 3, 5), (5,), (5,))
        yield case((2, 3, 37), (37,), None, epsilon=0.5)
        yield case((2, 3, 4, 5), (3, 4, 5), (3, 4, 5), axis=1, with_statistics=True)
        yield case((2, 3, 4, 5), (4, 1), (5,), axis=-2)
        yield case((3, 4), (3, 4), (4,), axis=0, with_statistics=True)
        yield case((2, 3, 5), (5,), (5,), "float64", stash_type="float64", with_statistics=True)


@operator
class RMSNormalization(Operator):
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on."""

    axis: int = -1
    epsilon: float = EPSILON

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        trailing_axes(ctx, self.axis)
        same_floats(ctx, 0)
        same_floats(ctx, 1)
        check_epsilon(ctx, self.epsilon)
        expect_broadcast(ctx, 1, ctx.type(0).dims, "scale")
        return [ctx.type(0).with_dtype(ctx.type(1).dtype)]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index:
            return InputGain(Gain.bounded)
        return InputGain(Gain.normalized, trailing_axes(ctx, self.axis), is_guard(self.epsilon))

    def reference(self, ev: Evaluation, x: Any, scale: Any) -> Any:
        second = np.mean(x * x, axis=self._axes(x), keepdims=True)
        return x / root_of(second + constant(ev, self.epsilon)) * scale

    def canonical(self, ev: Evaluation, x: Any, scale: Any) -> Any:
        """`promised_inverse`, then (x * inverse) * scale."""
        if x.dtype not in ORDERED or scale.dtype != x.dtype:
            return super().canonical(ev, x, scale)
        return x * promised_inverse(x, self._axes(x), self.epsilon) * scale

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        statistics = moments(inputs[0], self._axes(inputs[0]))
        inverse = inverse_error(statistics.second, second_error(statistics), self.epsilon)
        size = np.abs(outputs[0])
        sigma = size * np.hypot(inverse.sigma, 2 * KAPPA * U)
        return [Rounding(sigma, size * (inverse.bound + 3 * U) + 2.0**-148)]

    def _axes(self, x: np.ndarray) -> Axes:
        return tuple(range(self.axis % x.ndim, x.ndim))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for shape, scale, axis, epsilon in (
            ((2, 3, 5), (5,), -1, EPSILON),
            ((2, 3, 37), (37,), -1, 0.5),
            ((2, 3, 4, 5), (3, 1, 5), 1, EPSILON),
        ):
            for dtype in ("float32", "float64"):
                inputs = draw(rng, shape, dtype), draw(rng, scale, dtype)
                yield Case(cls(axis=axis, epsilon=epsilon), inputs, label=f"{dtype} {shape}")


@operator
class MeanVarianceNormalization(Operator):
    """(x - mean) / (sqrt(variance) + 1e-9) over `axes`."""

    axes: Axes = (0, 2, 3)
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_floats(ctx, 0)
        normalize_axes(ctx, self.axes, ctx.type(0).rank)
        return [ctx.type(0)]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return normalization(normalize_axes(ctx, self.axes, ctx.type(0).rank), MVN_EPSILON**2)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        axes = self._axes(x)
        d = x - np.mean(x, axis=axes, keepdims=True)
        variance = np.mean(d * d, axis=axes, keepdims=True)
        return d / (root_of(variance) + constant(ev, MVN_EPSILON))

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """`promised_moments`; then (deviation - mean_deviation) * inverse, both factors, with
        inverse = 1 / (sqrt(variance) + 1e-9), of float64 rounded once."""
        if x.dtype not in ORDERED:
            return super().canonical(ev, x)
        statistics = promised_moments(x, self._axes(x))
        inverse = guarded_inverse_of(NumpyArith(), statistics.variance, MVN_EPSILON)
        return (statistics.deviation - statistics.mean_deviation.astype(x.dtype)) * inverse.astype(
            x.dtype
        )

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        (x,) = inputs
        statistics = moments(x, self._axes(x))
        return [normalized_error(x, statistics, MVN_EPSILON**2, 1.0, 0.0, outputs[0])]

    def _axes(self, x: np.ndarray) -> Axes:
        return tuple(sorted(a % x.ndim for a in self.axes))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for shape, axes in (((2, 3, 4, 5), (0, 2, 3)), ((2, 3, 19), (-1,)), ((3, 4), (1, 0))):
            for dtype in ("float32", "float64"):
                yield Case(cls(axes=axes), (draw(rng, shape, dtype),), label=f"{dtype} {shape}")
