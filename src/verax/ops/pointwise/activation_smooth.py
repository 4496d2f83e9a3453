"""Activations with an exponential, element by element: Elu Selu Celu Gelu Mish Softplus Swish.

Implementations differ in how they treat the side where the result is small: exp(x) - 1 and
log(1 + exp(x)) computed as written have an absolute error there, which `magnitude` allows for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.base.errors import GraphError
from verax.ir.gains import Gain
from verax.ir.operator import Evaluation, Operator, operator
from verax.numerics.arith import Arith
from verax.ops.common import FLOATS, constant
from verax.ops.pointwise.elementwise import Elementwise


class Smooth(Elementwise):
    """One float input; a function of exp(x)."""

    gains = (Gain.bounded,)
    dtypes = FLOATS
    case_dtypes = ("float32", "float16")
    case_range = (-6.0, 6.0)
    sigma_units = 2.0
    bound_units = 8.0
    floor = 2.0**-126


def _meant_expm1(ev: Evaluation, x: Any) -> Any:
    """exp(min(x, 0)) - 1 by meaning."""
    return ev.arith.call("expm1", np.minimum(x, 0))


def _expm1_of_negative(m: Arith[Any], x: Any) -> Any:
    """exp(min(x, 0)) - 1, never overflowing."""
    zero = m.like(0, x)
    return m.call("expm1", m.select(m.gt(x, zero), zero, x))


@operator
class Elu(Smooth):
    """X where X > 0, alpha (exp(X) - 1) elsewhere."""

    alpha: float = 1.0

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.where(x > 0, x, constant(ev, self.alpha) * _meant_expm1(ev, x))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        negative = m.mul(m.like(self.alpha, x), _expm1_of_negative(m, x))
        return m.select(m.gt(x, m.like(0, x)), x, negative)

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.where(xs[0] > 0, 0, np.abs(y) + 0.5 * abs(self.alpha))

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(alpha=0.5))


@operator
class Selu(Smooth):
    """gamma X where X > 0, gamma alpha (exp(X) - 1) elsewhere."""

    alpha: float = 1.6732631921768188
    gamma: float = 1.0507010221481323

    def reference(self, ev: Evaluation, x: Any) -> Any:
        alpha, gamma = constant(ev, self.alpha), constant(ev, self.gamma)
        return gamma * np.where(x > 0, x, alpha * _meant_expm1(ev, x))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        negative = m.mul(m.like(self.alpha, x), _expm1_of_negative(m, x))
        return m.mul(m.like(self.gamma, x), m.select(m.gt(x, m.like(0, x)), x, negative))

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.abs(y) + np.where(xs[0] > 0, 0, 0.5 * abs(self.alpha * self.gamma))

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(alpha=0.5, gamma=2.5))


@operator
class Celu(Smooth):
    """max(0, X) + min(0, alpha (exp(X / alpha) - 1))."""

    alpha: float = 1.0

    def reference(self, ev: Evaluation, x: Any) -> Any:
        alpha = constant(ev, self.alpha)
        return np.maximum(x, 0) + np.minimum(0, alpha * ev.arith.call("expm1", x / alpha))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        zero, alpha = m.like(0, x), m.like(self.alpha, x)
        bent = m.mul(alpha, m.call("expm1", m.div(x, alpha)))
        return m.add(m.max(x, zero), m.min(bent, zero))

    def magnitude(self, y: Any, *xs: Any) -> Any:
        x = xs[0]
        # The quotient's rounding moves exp's argument.
        inner = np.where(x < 0, np.abs(x) * np.exp(-np.abs(x / self.alpha)), 0)
        return np.abs(y) + np.where(x < 0, inner + 0.5 * abs(self.alpha), 0)

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(alpha=0.5), cls(alpha=2.5))


class Gated(Smooth):
    """X g(X) with a gate g that goes from 0 to 1; small results have an error in units of |X|."""

    bound_units = 16.0

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.abs(y) + np.where(xs[0] < 0, 0.5 * np.abs(xs[0]), 0)


@operator
class Gelu(Gated):
    """X Phi(X) with the normal distribution Phi, or with approximate="tanh" the tanh formula
    X/2 (1 + tanh(sqrt(2/pi) (X + 0.044715 X^3)))."""

    approximate: str = "none"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise GraphError(f"Gelu: approximate is {self.approximate!r}, not none or tanh")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return ev.arith.call("gelu" if self.approximate == "none" else "gelu_tanh", x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.call("gelu" if self.approximate == "none" else "gelu_tanh", xs[0])

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(approximate="tanh"))


@operator
class Mish(Gated):
    """X tanh(log(1 + exp(X)))."""

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return ev.arith.call("mish", x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.call("mish", xs[0])


@operator
class Swish(Gated):
    """X sigmoid(alpha X)."""

    alpha: float = 1.0

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return x * ev.arith.sigmoid(constant(ev, self.alpha) * x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        if self.alpha == 1:
            return m.call("silu", x)
        return m.mul(x, m.sigmoid(m.mul(m.like(self.alpha, x), x)))

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """The rounding of alpha X moves the sigmoid's argument."""
        argument = np.where(self.alpha == 1, 0, np.abs(self.alpha * xs[0]))
        return np.abs(y) * (1 + argument / 8) + np.where(
            self.alpha * xs[0] < 0, 0.5 * np.abs(xs[0]), 0
        )

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield from (cls(), cls(alpha=-1.5), cls(alpha=0.75))


@operator
class Softplus(Smooth):
    """log(1 + exp(X)).

    OpenVINO 2026.4 is off by up to 32 units of 2^-24 where X is far below 0.
    """

    sigma_units = 4.0
    bound_units = 40.0

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return ev.arith.call("softplus", x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.call("softplus", xs[0])

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.abs(y) + np.where(xs[0] < 0, 1.0, 0)
