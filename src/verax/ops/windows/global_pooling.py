"""Pooling over all spatial axes at once: the largest element, the mean, the p-norm per channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.error_model import Rounding, sum_of_products
from verax.numerics.fma import ORDERED
from verax.numerics.reductions import reduce
from verax.ops.common import declared_units, draw
from verax.ops.sums.moments import promised_mean
from verax.ops.windows.pooling import norm_error, powers_of, root
from verax.ops.windows.windows import spatial_input

SHAPES = ((2, 3, 5, 7), (2, 3, 19), (1, 2, 3, 4, 5), (2, 1, 1, 1))


class GlobalPool(Operator):
    """What global pools share: spatial axes become 1."""

    gains = (Gain.bounded,)
    integers: ClassVar[bool] = False

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = spatial_input(ctx, integers=self.integers)
        return [x.with_dims((*x.dims[:2], *(1,) * (x.rank - 2)))]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return InputGain(self.gains[0], tuple(range(2, ctx.type(0).rank)))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for shape in SHAPES:
            yield Case(cls(), (draw(rng, shape),), label=str(shape))
        yield Case(cls(), (draw(rng, SHAPES[0], "float64"),), label="float64")


@operator
class GlobalMaxPool(GlobalPool):
    """The largest element of each channel; NaN wins."""

    exact: ClassVar[bool] = True

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        ctx.require(0 not in x.dims[2:], f"X {x} has an empty spatial axis: nothing is the largest")
        return super().infer(ctx)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.max(x, axis=spatial_axes(x), keepdims=True)

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """The canonical maximum; of two zeros the positive one is larger."""
        return reduce(x, spatial_axes(x), "max", keepdims=True)


@operator
class GlobalAveragePool(GlobalPool):
    """The mean of each channel."""

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.mean(x, axis=spatial_axes(x), keepdims=True)

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """The canonical sum, divided once."""
        if x.dtype not in ORDERED:
            return super().canonical(ev, x)
        return promised_mean(x, spatial_axes(x))

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        (x,) = inputs
        axes, n = spatial_axes(x), int(np.prod(x.shape[2:]))
        absolute = np.mean(np.abs(x), axis=axes, keepdims=True)
        squares = np.mean(x * x, axis=axes, keepdims=True) / n
        return [sum_of_products(outputs[0], absolute, squares, n)]


@operator
class GlobalLpPool(GlobalPool):
    """The p-norm of each channel, (sum |x|^p)^(1/p)."""

    gains = (Gain.summed,)
    p: int = 2
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        ctx.require(self.p > 0, f"p must be positive, not {self.p}")
        return super().infer(ctx)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return root(
            np.sum(powers_of(ev, x, self.p), axis=spatial_axes(x), keepdims=True), self.p, ev.arith
        )

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """The canonical sum of |x| for p = 1; for p = 2 that of x * x, and a square root. Other p:
        the float64 meaning, rounded once.
        """
        if x.dtype not in ORDERED or self.p > 2:
            return super().canonical(ev, x)
        powers = np.abs(x) if self.p == 1 else x * x
        return root(reduce(powers, spatial_axes(x), "sum", keepdims=True), self.p)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        (x,) = inputs
        axes, powers = spatial_axes(x), np.abs(x) ** self.p
        total = np.sum(powers, axis=axes, keepdims=True)
        squares = np.sum(powers**2, axis=axes, keepdims=True)
        return [norm_error(outputs[0], total, squares, int(np.prod(x.shape[2:])), self.p)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        for p in (1, 3):
            yield Case(cls(p=p), (draw(rng, SHAPES[0]),), label=f"p = {p}")


def spatial_axes(x: np.ndarray) -> tuple[int, ...]:
    """The axes after batch and channels."""
    return tuple(range(2, x.ndim))
