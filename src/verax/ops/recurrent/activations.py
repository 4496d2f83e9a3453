"""The activations inside recurrent operators, by name with up to two numbers, alpha and beta.

A name is ONNX's for recurrent layers or that of one of the house's elementwise operators of one
input. Not a family: no operator is declared here.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from verax.base.errors import GraphError
from verax.ir.operator import REGISTRY, Evaluation
from verax.numerics.arith import Arith
from verax.ops.common import FLOATS, constant
from verax.ops.pointwise import activation, activation_smooth, transcendental
from verax.ops.pointwise.elementwise import Elementwise

assert activation and activation_smooth and transcendental  # They register what curves are made of.
ONNX_CURVES = (
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh"),
    *("HardSigmoid", "Elu", "Softsign", "Softplus"),
)
"""What ONNX allows inside recurrent operators."""
UNSTATED = ("Affine", "ScaledTanh")
"""Those whose alpha and beta ONNX gives no defaults for."""
NUMBERS = ("alpha", "beta")


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Affine(Elementwise):
    """alpha X + beta; X itself with the defaults."""

    alpha: float = 1.0
    beta: float = 0.0
    dtypes = FLOATS
    sigma_units = 1.0
    bound_units = 2.01

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return x * constant(ev, self.alpha) + constant(ev, self.beta)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        """The product is rounded, then the sum; neither where it changes nothing."""
        y = xs[0]
        y = m.mul(y, m.like(self.alpha, y)) if self.alpha != 1 else y
        return m.add(y, m.like(self.beta, y)) if self.beta else y

    def magnitude(self, y: Any, *xs: Any) -> Any:
        if self.alpha == 1 and not self.beta:
            return np.zeros(np.shape(y))
        return np.maximum(np.abs(self.alpha * xs[0]), np.abs(y))


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ScaledTanh(Elementwise):
    """alpha tanh(beta X)."""

    alpha: float = 1.0
    beta: float = 1.0
    dtypes = FLOATS
    sigma_units = 3.0
    bound_units = 12.0
    floor = 2.0**-126

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return ev.arith.tanh(x * constant(ev, self.beta)) * constant(ev, self.alpha)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        return m.mul(m.tanh(m.mul(x, m.like(self.beta, x))), m.like(self.alpha, x))


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Clamped(Elementwise):
    """X held between alpha and beta; NaN stays NaN."""

    alpha: float = -1.0
    beta: float = 1.0
    dtypes = FLOATS
    exact = True

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.minimum(np.maximum(x, constant(ev, self.alpha)), constant(ev, self.beta))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        return m.min(m.max(x, m.like(self.alpha, x)), m.like(self.beta, x))


LOCAL: dict[str, type[Elementwise]] = {c.__name__: c for c in (Affine, ScaledTanh, Clamped)}


@cache
def takes(name: str) -> tuple[str, ...]:
    """Which of alpha and beta an activation has. Raises `GraphError` for an unknown one."""
    return tuple(f.name for f in dataclasses.fields(_class(name)) if f.name in NUMBERS)


@cache
def curve(name: str, alpha: float | None = None, beta: float | None = None) -> Elementwise:
    """The activation of that name; None: its own default; a number that it lacks is ignored.

    Raises `GraphError` for an unknown one.
    """
    coefficients = {"alpha": alpha, "beta": beta}
    activation: Any = _class(name)
    return activation(**{k: coefficients[k] for k in takes(name) if coefficients[k] is not None})


def _class(name: str) -> type[Elementwise]:
    operator = LOCAL.get(name) or REGISTRY.get(name)
    if operator is None or not issubclass(operator, Elementwise) or operator.max_inputs != 1:
        raise GraphError(f"unknown activation {name!r}; supported: {', '.join(ONNX_CURVES)}")
    if operator.result is not None:
        raise GraphError(f"{name} gives {operator.result}, so that it is no activation")
    return operator
