"""The elementary functions of the meaning, in float64, by NumPy and the C library.

This is the yardstick, and what is judged is measured against it: float32 results and canonical
functions alike. Each takes and returns float64 arrays; errors are a few float64 ulps and bits
differ between machines, so that nothing which is promised may come from here. `MeaningArith` is the
arithmetic that does; the canonical float64 functions (`numerics.float64`) share no line with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np


def _elementwise(function: Callable[[float], float]) -> Callable[[Any], np.ndarray]:
    """A function of one number, of every element: twice as fast as `np.vectorize`, which makes an
    object of each number and tells apart what never occurs here."""

    def apply(x: Any) -> np.ndarray:
        x = np.asarray(x, np.float64)
        return np.fromiter(map(function, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)

    return apply


erf = _elementwise(math.erf)
erfc = _elementwise(math.erfc)


def _erfinv(x: float) -> float:
    """By the quantiles of the normal distribution; below 1/2 by Newton's method, which keeps the
    digits of a small x."""
    size = abs(x)
    if not size < 1.0:
        return math.copysign(math.inf, x) if size == 1.0 else math.nan
    if size >= 0.5:
        return math.copysign(NormalDist().inv_cdf((1.0 - size) / 2.0) / math.sqrt(2.0), x)
    y = size * math.sqrt(math.pi) / 2.0
    for _ in range(6):
        y -= (math.erf(y) - size) * math.exp(y * y) * math.sqrt(math.pi) / 2.0
    return math.copysign(y, x)


erfinv = _elementwise(_erfinv)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(softplus(x))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * erfc(-x * math.sqrt(0.5))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2,
    "pow": np.power, "sigmoid": sigmoid, "tanh": np.tanh, "erf": erf, "softplus": softplus,
    "mish": mish, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu,
    "reciprocal": lambda x: 1.0 / x, "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erfinv": erfinv,
}  # fmt: skip
