"""Elements divided by a norm: of neighboring channels (LRN), of a whole axis (LpNormalization)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.gains import Gain, InputGain, is_guard
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import Rounding, U, relative
from verax.numerics.fma import ORDERED, fma
from verax.numerics.reductions import reduce
from verax.ops.common import constant, declared_units, draw, normalize_axis
from verax.ops.sums.normalization import check_epsilon
from verax.ops.windows.pooling import norm_error, root
from verax.ops.windows.windows import same_floats


@operator
class LRN(Operator):
    """x / (bias + alpha / size * sum of squares of the `size` nearest channels)^beta.

    x is [n, c, ...]; the neighbors of channel c are c - (size - 1) // 2 to c + size // 2, as far
    as they exist.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    @property
    def reach(self) -> tuple[int, int]:
        """Neighbors (before, after) a channel that are summed."""
        return (self.size - 1) // 2, self.size // 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_floats(ctx, 0)
        x = ctx.type(0)
        ctx.require(x.rank >= 2, f"the input needs batch and channels, and is {x}")
        ctx.require(self.size > 0, f"size must be positive, not {self.size}")
        return [x]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return InputGain(Gain.bounded if self.bias > 0 else Gain.unbounded)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        base = self._base(ev, neighbor_sums(x * x, *self.reach))
        return x / ev.arith.pow(base, np.asarray(constant(ev, self.beta), x.dtype))

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """Squares added to +0 by FMA in ascending channels; fma(alpha / size, sum, bias), then the
        canonical power and one division.
        """
        if x.dtype not in ORDERED:
            return super().canonical(ev, x)
        m, channels, scalar_type = NumpyArith(), x.shape[1], x.dtype.type
        total = np.zeros(x.shape, x.dtype)
        for here, there in _neighbors(channels, *self.reach):
            at, neighbor = (slice(None), here), (slice(None), there)
            total[at] = fma(x[neighbor], x[neighbor], total[at])
        share = scalar_type(self.alpha) / scalar_type(self.size)
        base = fma(share, total, scalar_type(self.bias))
        return x / m.pow(base, m.like(self.beta, base))

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """The base's relative error, beta times; then a power, whose own error grows with the
        logarithm of the base where it is made of exp and log, and a division. The bound allows for
        a running sum over the channels, which keeps the rounding of every sum before.
        """
        sums = neighbor_sums(inputs[0] ** 2, *self.reach)
        base = self._base(ev, sums)
        power = np.abs(self.beta * np.log(np.maximum(np.abs(base), U)))
        beta = abs(self.beta)
        terms = min(self.size, sums.shape[1])
        output_error = relative(outputs[0], 2.0 + beta, 24.0 + beta * (terms + 4))
        before = np.maximum.accumulate(sums, axis=1) * (sums.shape[1] + terms)
        running = U * np.abs(outputs[0]) * beta * abs(self.alpha) / self.size * before / base
        return [
            Rounding(
                output_error.sigma * (1 + power), output_error.bound * (1 + 8 * power) + 2 * running
            )
        ]

    def _base(self, ev: Evaluation, squares: Any) -> Any:
        return constant(ev, self.bias) + constant(ev, self.alpha) / self.size * squares

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for shape in ((2, 7, 3, 4), (3, 2, 5), (2, 6), (1, 4, 2, 3, 5)):
            for size in (1, 2, 3, 4, 5):
                yield Case(cls(size=size, alpha=0.7), (draw(rng, shape),), label=str(shape))
        yield Case(cls(size=3, alpha=0.5, beta=0.6, bias=2.5), (draw(rng, (2, 5, 3, 4)),))
        yield Case(cls(size=3, alpha=0.5, beta=1.0), (draw(rng, (2, 5, 3, 4), "float64"),))


def neighbor_sums(values: Any, before: int, after: int, axis: int = 1) -> Any:
    """Sums over the `before` and `after` nearest along `axis`, as far as they exist, ascending."""
    total = np.zeros_like(values)
    lead = (slice(None),) * axis
    for here, there in _neighbors(values.shape[axis], before, after):
        total[(*lead, here)] += values[(*lead, there)]
    return total


def _neighbors(n: int, before: int, after: int) -> Iterator[tuple[slice, slice]]:
    """Per offset that two of n places have, ascending: those that have it, and their neighbors."""
    for by in range(-min(before, n - 1), min(after, n - 1) + 1):
        low, high = max(0, -by), min(n, n - by)
        yield slice(low, high), slice(low + by, high + by)


@operator
class LpNormalization(Operator):
    """x divided by the p-norm (p = 1 or 2) along `axis`; 0 where the norm is 0.

    epsilon is added to the sum of powers, before the root; the norm is taken for `floor` at least.
    """

    axis: int = -1
    p: int = 2
    epsilon: float = 0.0
    floor: float = 0.0

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_floats(ctx, 0)
        normalize_axis(ctx, self.axis, ctx.type(0).rank)
        ctx.require(self.p in (1, 2), f"p must be 1 or 2, not {self.p}")
        check_epsilon(ctx, self.epsilon)
        ctx.require(self.floor >= 0, f"floor must not be negative, and is {self.floor}")
        return [ctx.type(0)]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        guarded = is_guard(max(self.epsilon ** (2 / self.p), self.floor**2))
        return InputGain(Gain.normalized, (self.axis % ctx.type(0).rank,), guarded)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        powers = np.abs(x) if self.p == 1 else x * x
        total = np.sum(powers, axis=self.axis, keepdims=True)
        return self._divided(ev, x, total + constant(ev, self.epsilon))

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """The canonical sum of |x| or x * x, plus epsilon, its square root for p = 2, the larger of
        that and the floor, and one division."""
        if x.dtype not in ORDERED:
            return super().canonical(ev, x)
        powers = np.abs(x) if self.p == 1 else x * x
        total = reduce(powers, (self.axis,), "sum", keepdims=True) + x.dtype.type(self.epsilon)
        return self._divided(ev, x, total)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        powers, n = np.abs(inputs[0]) ** self.p, inputs[0].shape[self.axis] + 1
        total = np.sum(powers, axis=self.axis, keepdims=True) + self.epsilon
        squares = np.sum(powers**2, axis=self.axis, keepdims=True) + self.epsilon**2
        norm = root(total, self.p)
        inner, own = norm_error(norm, total, squares, n, self.p), relative(outputs[0], 1.0, 2.0)
        divisor = np.maximum(norm, self.floor)
        share = np.abs(outputs[0]) / np.where(divisor > 0, divisor, 1)
        return [Rounding(np.hypot(inner.sigma * share, own.sigma), inner.bound * share + own.bound)]

    def _divided(self, ev: Evaluation, x: Any, total: Any) -> Any:
        norm = np.maximum(root(total, self.p), np.asarray(constant(ev, self.floor), x.dtype))
        return np.where(norm == 0, np.zeros((), x.dtype), x / np.where(norm == 0, 1, norm))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for p in (1, 2):
            for shape, axis in (((2, 3, 5), -1), ((2, 19, 3), 1), ((4, 3, 2, 5), -4)):
                yield Case(cls(p=p, axis=axis), (draw(rng, shape),), label=str(shape))
            for guard in ({"epsilon": 0.5}, {"floor": 6.5}, {"epsilon": 0.25, "floor": 3.5}):
                yield Case(cls(p=p, axis=1, **guard), (draw(rng, (2, 7, 3)),), label=str(guard))
            zeros = draw(rng, (3, 4))
            zeros[1] = 0
            yield Case(cls(p=p), (zeros,), label="zeros")
            yield Case(cls(p=p), (draw(rng, (2, 3, 5), "float64"),), label="float64")
