"""Quantization of data while a network runs, group by group: what hybrid networks (integer weights,
floating-point activations) do before each integer product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType
from verax.numerics.error_model import Quantity, U
from verax.numerics.fixed_point import nearest
from verax.ops.common import draw, same_dtype

LOW, HIGH = -128, 127
ROUNDINGS = 4
"""Steps of float32, each an error of one unit, from a number to the integer that stands for it: the
scale, its reciprocal, the product, and the end where that is not exact."""


@operator
class DynamicQuantizeGroups(Operator):
    """x as integers of 8 bits and one scale per group. The elements that share their indices in
    the first `axis` axes are a group.

    Outputs: q int16, the integers minus the group's zero point (so that x is about q scale), and
    scale float32, shaped as x with every axis from `axis` on being 1. symmetric: -127 .. 127 for
    -|x|max .. |x|max, zero point 0. Otherwise -128 .. 127 for min(x, 0) .. max(x, 0). Halves are
    rounded away from zero, each step in float32. A group of zeros has scale 1. Source: LiteRT's
    hybrid kernels.
    """

    axis: int = 1
    symmetric: bool = False

    exact = True
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"

    @property
    def output_count(self) -> int:
        return 2

    def infer(self, ctx: Inference) -> Sequence[Any]:
        same_dtype(ctx, (0,), (DType.float32,))
        x = ctx.type(0)
        ctx.require(0 <= self.axis <= x.rank, f"axis is {self.axis}, the tensor has rank {x.rank}")
        dims = (*x.dims[: self.axis], *(1,) * (x.rank - self.axis))
        return (x.with_dtype(DType.int16), x.with_dims(dims))

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return InputGain(Gain.normalized, tuple(range(self.axis, ctx.type(0).rank)))

    def decides(self, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
        """Symmetric integers only: runtimes round halves to even or away from zero, and divide by
        the scale or multiply by one of two reciprocals."""
        if not self.symmetric:
            return (None, None)
        x = np.asarray(inputs[0], np.float64)
        largest = np.abs(x).max(axis=tuple(range(self.axis, x.ndim)), keepdims=True, initial=0)
        real = np.nan_to_num(x * (HIGH / np.where(largest == 0, 1, largest)))
        return (Quantity(real, ROUNDINGS * U * np.abs(real), -HIGH, HIGH), None)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        groups = np.asarray(x, np.float32)
        axes = tuple(range(self.axis, groups.ndim))
        low = groups.min(axis=axes, keepdims=True, initial=0)
        high = groups.max(axis=axes, keepdims=True, initial=0)
        with np.errstate(all="ignore"):
            q, scale = (_symmetric if self.symmetric else _asymmetric)(groups, low, high)
        empty = low == high
        return (
            np.where(empty, 0, np.nan_to_num(q)).astype(np.int16),
            np.where(empty, np.float32(1), scale),
        )

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (3, 2, 5), low=-2, high=6)
        yield Case(cls(), (x,))
        yield Case(cls(symmetric=True), (x,))
        yield Case(cls(axis=2), (x,), label="one scale per row")
        yield Case(cls(axis=0, symmetric=True), (x,), label="one scale")
        yield Case(cls(), (draw(rng, (2, 7), low=1, high=3),), label="all positive")
        zeros = np.array([[0, 0, 0], [-1, -2, -3.5]], np.float32)
        yield Case(cls(), (zeros,), label="a group of zeros")
        ties = np.arange(-255, 256, dtype=np.float32)[None] / 2
        yield Case(cls(symmetric=True), (ties,), label="ties")


def _symmetric(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    largest = np.maximum(-low, high)
    q = nearest(x * (np.float32(HIGH) / largest))
    return np.clip(q, -HIGH, HIGH), largest / np.float32(HIGH)


def _asymmetric(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The zero point is counted from the end of the range that is nearer to zero."""
    step = (high - low).astype(np.float64) / (HIGH - LOW)
    below, above = low / step, high / step
    zero = np.where(-LOW + np.abs(below) < HIGH + np.abs(above), LOW - below, HIGH - above)
    zero = np.clip(nearest(zero), LOW, HIGH)
    scale = step.astype(np.float32)
    q = nearest(x * (np.float32(1) / scale)) + zero
    return np.clip(q, LOW, HIGH) - zero, scale
