"""Activations without an exponential, element by element: Relu Clip LeakyRelu PRelu
ThresholdedRelu HardSigmoid HardSwish Softsign Shrink. NaN passes through Relu and Clip.

Those with an exponential are in `activation_smooth`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.dim import is_known
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics import functions
from verax.numerics.arith import Arith
from verax.numerics.error_model import KAPPA, Rounding
from verax.ops.common import FLOATS, SIGNED, constant, draw, rounding, unit_roundoff
from verax.ops.pointwise.elementwise import NUMERIC, Elementwise


@operator
class Relu(Elementwise):
    """max(X, 0); NaN stays NaN."""

    gains = (Gain.bounded,)
    exact = True
    dtypes = FLOATS + SIGNED
    case_dtypes = ("float32", "float16", "int8")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.maximum(x, 0)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return functions.relu(m, xs[0])


@operator
class Clip(Elementwise):
    """min(max(X, low), high) with optional scalar inputs low and high; NaN stays NaN.

    Where low > high, the result is high.
    """

    gains = (Gain.bounded,)
    min_inputs = 1
    max_inputs = 3
    exact = True

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        (type_,) = super().infer(ctx)
        for i, name in ((1, "min"), (2, "max")):
            if ctx.has(i):
                bound = ctx.type(i)
                is_scalar = all(d == 1 for d in bound.dims) and bound.rank <= ctx.type(0).rank
                ctx.require(is_scalar, f"{name} is not a scalar: {bound}")
        return (type_.with_dims(ctx.type(0).dims),)

    def reference(self, ev: Evaluation, x: Any, low: Any = None, high: Any = None) -> Any:
        y = x if low is None else np.maximum(x, np.reshape(low, ()))
        return y if high is None else np.minimum(y, np.reshape(high, ()))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        y, low, high = (*xs, None, None)[:3]
        y = y if low is None else m.max(y, low)
        return y if high is None else m.min(y, high)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for dtype in ("float32", "float16", "int32", "uint8"):
            x = draw(rng, (2, 3, 5), dtype)
            low, high = (np.array(v).astype(x.dtype) for v in (1, 3))
            for bounds in ((), (low,), (None, high), (low, high), (high, low)):
                yield Case(cls(), (x, *bounds), label=dtype)


@operator
class LeakyRelu(Elementwise):
    """X where X >= 0, alpha X elsewhere."""

    gains = (Gain.bounded,)
    alpha: float = 0.01
    dtypes = FLOATS
    case_dtypes = ("float32", "float16")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.where(x < 0, x * constant(ev, self.alpha), x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        return m.select(m.lt(x, m.like(0, x)), m.mul(x, m.like(self.alpha, x)), x)

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.where(xs[0] < 0, np.abs(y), 0)

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(alpha=-0.5), cls(alpha=1.5))


@operator
class PRelu(Elementwise):
    """X where X >= 0, slope X elsewhere; slope broadcasts to the shape of X."""

    gains = (Gain.bounded,)
    min_inputs = 2
    max_inputs = 2
    case_dtypes = ("float32", "int32")

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        (type_,) = super().infer(ctx)
        x = ctx.type(0)
        if type_.rank != x.rank or any(
            is_known(a) and is_known(b) and a != b for a, b in zip(type_.dims, x.dims)
        ):
            ctx.fail(f"slope {ctx.type(1)} does not broadcast to {x}")
        return (x,)

    def reference(self, ev: Evaluation, x: Any, slope: Any) -> Any:
        return np.where(x < 0, x * slope, x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x, slope = xs
        return m.select(m.lt(x, m.like(0, x)), m.mul(x, slope), x)

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.where(xs[0] < 0, np.abs(y), 0)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for dtype in cls.case_dtypes:
            for shape in ((2, 3, 5), (3, 1), (5,), ()):
                xs = (draw(rng, (2, 3, 5), dtype), draw(rng, shape, dtype, -2, 2))
                yield Case(cls(), xs, label=dtype)


@operator
class ThresholdedRelu(Elementwise):
    """X where X > alpha, 0 elsewhere."""

    alpha: float = 1.0
    exact = True
    dtypes = FLOATS
    jumps = True

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return InputGain(Gain.unbounded if self.alpha else Gain.bounded)  # else it jumps at alpha

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.where(x > constant(ev, self.alpha), x, constant(ev, 0.0))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        return m.select(m.gt(x, m.like(self.alpha, x)), x, m.like(0, x))

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(alpha=-0.5))


def _clamp01(m: Arith[Any], x: Any) -> Any:
    return m.min(m.max(x, m.like(0, x)), m.like(1, x))


def _hard_sigmoid_magnitude(x: Any, alpha: float, beta: float, dtype: DType) -> Any:
    """Size of alpha x + beta's terms where rounding can show: not where it is clamped for sure."""
    size = np.abs(alpha * x) + abs(beta)
    line, margin = alpha * x + beta, 8 * unit_roundoff(dtype) * size
    return np.where((line > -margin) & (line < 1 + margin), size, 0)


@operator
class HardSigmoid(Elementwise):
    """max(0, min(1, alpha X + beta)); the product is rounded, then the sum."""

    gains = (Gain.bounded,)
    alpha: float = 0.2
    beta: float = 0.5
    dtypes = FLOATS
    case_dtypes = ("float32", "float16")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        line = x * constant(ev, self.alpha) + constant(ev, self.beta)
        return np.minimum(np.maximum(line, 0), 1)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        return _clamp01(m, m.add(m.mul(x, m.like(self.alpha, x)), m.like(self.beta, x)))

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        dtype = ev.outputs[0].dtype
        size = _hard_sigmoid_magnitude(inputs[0], self.alpha, self.beta, dtype)
        return (rounding(dtype, size + np.where(size > 0, np.abs(outputs[0]), 0), 1.0, 3.0),)

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(alpha=0.5, beta=0.25), cls(alpha=-0.25))


@operator
class HardSwish(Elementwise):
    """X max(0, min(1, X / 6 + 1/2))."""

    gains = (Gain.bounded,)
    dtypes = FLOATS
    case_dtypes = ("float32", "float16")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return x * np.minimum(np.maximum(x / 6 + 0.5, 0), 1)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        line = m.add(m.mul(x, m.like(1 / 6, x)), m.like(0.5, x))
        return m.mul(x, _clamp01(m, line))

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        dtype = ev.outputs[0].dtype
        gate = _hard_sigmoid_magnitude(inputs[0], 1 / 6, 0.5, dtype)
        # Beyond 3 some libraries still multiply by 6 and divide by 6.
        size = np.abs(inputs[0]) * gate + np.abs(outputs[0])
        return (rounding(dtype, size, 1.0, 4.0),)


@operator
class Softsign(Elementwise):
    """X / (1 + |X|)."""

    gains = (Gain.bounded,)
    dtypes = FLOATS
    sigma_units = 2 * KAPPA
    bound_units = 3.01

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return x / (1 + np.abs(x))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        return m.div(x, m.add(m.like(1, x), m.abs(x)))


@operator
class Shrink(Elementwise):
    """X + bias where X < -lambd, X - bias where X > lambd, 0 elsewhere, of NaN too.

    On integers X +- bias is taken over the reals and truncated toward zero.
    """

    bias: float = 0.0
    lambd: float = 0.5
    dtypes = NUMERIC
    case_dtypes = ("float32", "int32", "uint8")
    jumps = True

    def gain(self, ctx: Inference, index: int) -> InputGain:
        steady = self.bias == self.lambd  # else it jumps at lambd
        return InputGain(Gain.bounded if steady else Gain.unbounded)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        bias, lambd = constant(ev, self.bias), constant(ev, self.lambd)
        if not ev.outputs[0].dtype.is_float:
            low, high = x + float(bias), x - float(bias)
            return np.where(x < -lambd, low, np.where(x > lambd, high, 0)).astype(x.dtype)
        inside = constant(ev, 0.0)
        return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, inside))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        if m.dtype(x) not in FLOATS:
            raise TypeError("Shrink on integers is evaluated by the reference")
        bias, lambd, zero = m.like(self.bias, x), m.like(self.lambd, x), m.like(0, x)
        y = m.select(m.gt(x, lambd), m.sub(x, bias), zero)
        return m.select(m.lt(x, m.neg(lambd)), m.add(x, bias), y)

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(bias=1.25, lambd=1.5))
