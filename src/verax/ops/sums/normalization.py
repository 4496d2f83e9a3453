"""Normalization by mean and variance, over whatever axes: batch, instance, layer, group, RMS.

All are y = (x - mean) / sqrt(var + epsilon) * scale + bias, with population variance; they differ
in the axes of the statistics and in the shape of scale and bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import is_known
from verax.ir.gains import Gain, InputGain, normalization
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import Rounding, relative
from verax.numerics.fma import ORDERED
from verax.ops.common import (
    constant,
    declared_units,
    draw,
)
from verax.ops.sums.moments import (
    affine_error,
    mean_error,
    moments,
    normalized_error,
    promised_moments,
    root_of,
    variance_error,
)
from verax.ops.windows.windows import expect_dims, same_floats

EPSILON = 1e-5  # ONNX's default


def along_channels(x: np.ndarray, values: Any) -> Any:
    """values [c] shaped to broadcast over x [n, c, ...]."""
    return np.reshape(values, (1, -1, *(1,) * (x.ndim - 2)))


def check_epsilon(ctx: Inference, epsilon: float) -> None:
    ctx.require(epsilon >= 0, f"epsilon must not be negative, and is {epsilon}")


@operator
class BatchNormalization(Operator):
    """Normalizes each channel of x [n, c, ...] by given scale, bias, mean and variance, all [c].

    training_mode: normalizes by the batch's own mean and variance instead, and gives two more
    outputs, the running ones: mean * momentum + (batch's) * (1 - momentum).
    """

    gains = (Gain.proportional, Gain.bounded, Gain.bounded, Gain.bounded, Gain.unbounded)
    epsilon: float = EPSILON
    momentum: float = 0.9
    training_mode: bool = False

    min_inputs: ClassVar[int] = 5
    max_inputs: ClassVar[int | None] = 5

    @property
    def output_count(self) -> int:
        return 3 if self.training_mode else 1

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        same_floats(ctx, 0)
        check_epsilon(ctx, self.epsilon)
        ctx.require(x.rank >= 2, f"the input needs batch and channels, and is {x}")
        for i, name in enumerate(("scale", "bias", "mean", "variance"), 1):
            same_floats(ctx, i)
            expect_dims(ctx, i, x.dims[1:2], name)
        return [x, ctx.type(3), ctx.type(4)][: self.output_count]

    def compute(self, m: Arith[Any], x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
        """The promised bits of one element: fma(x - mean, scale / sqrt(var + eps), b)."""
        deviation = m.sqrt(m.add(var, m.like(self.epsilon, var)))
        return m.fma(m.sub(x, mean), m.div(scale, deviation), b)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index == 0 and self.training_mode:
            return normalization((0, *range(2, ctx.type(0).rank)), self.epsilon)
        return super().gain(ctx, index)

    def reference(self, ev: Evaluation, x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
        batch_mean, batch_var = mean, var
        if self.training_mode:
            axes = (0, *range(2, x.ndim))
            batch_mean = np.mean(x, axis=axes)
            batch_var = np.mean((x - along_channels(x, batch_mean)) ** 2, axis=axes)
        k = scale / root_of(batch_var + constant(ev, self.epsilon))
        y = (x - along_channels(x, batch_mean)) * along_channels(x, k) + along_channels(x, b)
        if not self.training_mode:
            return y
        keep = constant(ev, self.momentum)
        return y, mean * keep + batch_mean * (1 - keep), var * keep + batch_var * (1 - keep)

    def canonical(self, ev: Evaluation, x: Any, *statistics: Any) -> Any:
        """As `compute` says; in training mode the float64 meaning, rounded once."""
        mixed = any(a.dtype != x.dtype for a in statistics)
        if self.training_mode or mixed or x.dtype not in ORDERED:
            return super().canonical(ev, x, *statistics)
        return self.compute(NumpyArith(), x, *(along_channels(x, s) for s in statistics))

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        x, scale, b, mean, var = inputs
        s, c = along_channels(x, scale), along_channels(x, b)
        if not self.training_mode:
            k = np.abs(s) / np.sqrt(along_channels(x, var) + self.epsilon)
            return [affine_error(outputs[0], k * (np.abs(x) + np.abs(along_channels(x, mean))), c)]
        statistics = moments(x, (0, *range(2, x.ndim)))
        share = 1 - self.momentum
        running = []
        for previous, batch, y in (
            (mean, mean_error(statistics), outputs[1]),
            (var, variance_error(statistics), outputs[2]),
        ):
            own = relative(np.abs(previous) * self.momentum + np.abs(y), 2.0, 4.0)
            sigma, bound = (share * np.ravel(v) for v in (batch.sigma, batch.bound))
            running.append(Rounding(np.hypot(own.sigma, sigma), own.bound + bound))
        return [normalized_error(x, statistics, self.epsilon, s, c, outputs[0]), *running]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(shape: tuple[int, ...], dtype: str = "float32", **attributes: Any) -> Case:
            c = shape[1]
            scale, b, mean = draw(rng, (c,), dtype), draw(rng, (c,), dtype), draw(rng, (c,), dtype)
            var = draw(rng, (c,), dtype, 0.25, 3.0)
            return Case(cls(**attributes), (draw(rng, shape, dtype), scale, b, mean, var),
                        label=f"{dtype} {shape}")  # fmt: skip

        for shape in ((2, 3, 4, 5), (3, 4), (2, 5, 7), (2, 3, 2, 4, 5)):
            yield case(shape)
        yield case((2, 3, 4, 5), epsilon=1e-2)
        yield case((2, 3, 4, 5), "float64")
        yield case((3, 2, 4, 5), training_mode=True)
        yield case((3, 2, 4), training_mode=True, momentum=0.75, epsilon=1e-3)


@operator
class InstanceNormalization(Operator):
    """Normalizes each channel of each sample of x [n, c, *spatial]; scale and bias are [c]."""

    epsilon: float = EPSILON

    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        same_floats(ctx, 0, 1, 2)
        check_epsilon(ctx, self.epsilon)
        ctx.require(x.rank >= 3, f"the input needs batch, channel and spatial axes, and is {x}")
        expect_dims(ctx, 1, x.dims[1:2], "scale")
        expect_dims(ctx, 2, x.dims[1:2], "bias")
        return [x]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index:
            return InputGain(Gain.bounded)
        return normalization(tuple(range(2, ctx.type(0).rank)), self.epsilon)

    def reference(self, ev: Evaluation, x: Any, scale: Any, b: Any) -> Any:
        d, inverse = standardised(x, tuple(range(2, x.ndim)), constant(ev, self.epsilon))
        return d * inverse * along_channels(x, scale) + along_channels(x, b)

    def canonical(self, ev: Evaluation, x: Any, scale: Any, b: Any) -> Any:
        """`promised_moments`, normalized."""
        if x.dtype not in ORDERED:
            return super().canonical(ev, x, scale, b)
        statistics = promised_moments(x, tuple(range(2, x.ndim)))
        return statistics.normalized(self.epsilon, along_channels(x, scale), along_channels(x, b))

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        x, scale, b = inputs
        statistics = moments(x, tuple(range(2, x.ndim)))
        s, c = along_channels(x, scale), along_channels(x, b)
        return [normalized_error(x, statistics, self.epsilon, s, c, outputs[0])]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for shape, epsilon in (((2, 3, 4, 5), EPSILON), ((2, 4, 19), 1e-2), ((1, 2, 3, 4, 5), 0.5)):
            c = shape[1]
            inputs = draw(rng, shape), draw(rng, (c,)), draw(rng, (c,))
            yield Case(cls(epsilon=epsilon), inputs, label=str(shape))
            yield Case(cls(epsilon=epsilon), tuple(a.astype(np.float64) for a in inputs))


@operator
class GroupNormalization(Operator):
    """Normalizes each group of channels of each sample of x [n, c, ...]; scale and bias are [c].

    per_group: scale and bias are [num_groups] (ONNX before opset 21).
    """

    num_groups: int
    epsilon: float = EPSILON
    per_group: bool = False

    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        same_floats(ctx, 0, 1, 2)
        check_epsilon(ctx, self.epsilon)
        ctx.require(x.rank >= 2, f"the input needs batch and channels, and is {x}")
        channels = x.dims[1]
        if self.num_groups < 1 or (is_known(channels) and channels % self.num_groups):
            ctx.fail(f"{channels} channels cannot be split into {self.num_groups} groups")
        length = self.num_groups if self.per_group else channels
        expect_dims(ctx, 1, (length,), "scale")
        expect_dims(ctx, 2, (length,), "bias")
        return [x]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index:
            return InputGain(Gain.bounded)
        return normalization(tuple(range(1, ctx.type(0).rank)), self.epsilon)

    def reference(self, ev: Evaluation, x: Any, scale: Any, b: Any) -> Any:
        grouped, axes = self._grouped(x)
        d, inverse = standardised(grouped, axes, constant(ev, self.epsilon))
        s, c = self._per_channel(x, scale), self._per_channel(x, b)
        return (d * inverse).reshape(x.shape) * s + c

    def canonical(self, ev: Evaluation, x: Any, scale: Any, b: Any) -> Any:
        """`promised_moments` of each group, normalized."""
        if x.dtype not in ORDERED:
            return super().canonical(ev, x, scale, b)
        grouped, axes = self._grouped(x)
        statistics = promised_moments(grouped, axes)
        s, c = (
            np.broadcast_to(self._per_channel(x, v), x.shape).reshape(grouped.shape)
            for v in (scale, b)
        )
        return statistics.normalized(self.epsilon, s, c).reshape(x.shape)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        x, scale, b = inputs
        grouped, axes = self._grouped(x)
        s, c, y = (
            np.broadcast_to(v, x.shape).reshape(grouped.shape)
            for v in (self._per_channel(x, scale), self._per_channel(x, b), outputs[0])
        )
        grouped_error = normalized_error(grouped, moments(grouped, axes), self.epsilon, s, c, y)
        return [
            Rounding(grouped_error.sigma.reshape(x.shape), grouped_error.bound.reshape(x.shape))
        ]

    def _grouped(self, x: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
        """x as [n, groups, c / groups, ...] and the axes of a group."""
        n, channels, *spatial = x.shape
        grouped = x.reshape(n, self.num_groups, channels // self.num_groups, *spatial)
        return grouped, tuple(range(2, grouped.ndim))

    def _per_channel(self, x: np.ndarray, values: Any) -> Any:
        repeats = x.shape[1] // self.num_groups if self.per_group else 1
        return along_channels(x, np.repeat(values, repeats))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for shape, groups in (((2, 6, 4, 5), 3), ((3, 4, 7), 1), ((2, 4, 3, 5), 4), ((2, 6), 2)):
            c = shape[1]
            inputs = draw(rng, shape), draw(rng, (c,)), draw(rng, (c,))
            yield Case(cls(num_groups=groups), inputs, label=str(shape))
            inputs = draw(rng, shape), draw(rng, (groups,)), draw(rng, (groups,))
            yield Case(cls(num_groups=groups, per_group=True, epsilon=0.25), inputs)


def standardised(x: Any, axes: tuple[int, ...], epsilon: Any) -> tuple[Any, Any]:
    """x - mean, and 1 / sqrt(var + epsilon), over `axes`."""
    d = x - np.mean(x, axis=axes, keepdims=True)
    return d, 1 / root_of(np.mean(d * d, axis=axes, keepdims=True) + epsilon)
