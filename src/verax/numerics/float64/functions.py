"""The table of the canonical float64 functions, and how far each is from the exact result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.float64 import error_function, exponential, logarithm, trigonometric


def reciprocal(m: Arith[Any], x: Any) -> Any:
    """1 / x."""
    return m.div(m.const(1.0, "float64"), x)


def rsqrt(m: Arith[Any], x: Any) -> Any:
    """1 / sqrt(x)."""
    return m.div(m.const(1.0, "float64"), m.sqrt(x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(exponential.exp, exponential.expm1, exponential.sigmoid, exponential.tanh),
        *(exponential.sinh, exponential.cosh, exponential.silu, exponential.mish),
        *(error_function.erf, error_function.erfinv),
        *(exponential.gelu_tanh, error_function.gelu),
        *(logarithm.log, logarithm.log1p, logarithm.log2, logarithm.pow, logarithm.softplus),
        *(logarithm.asinh, logarithm.acosh, logarithm.atanh),
        *(trigonometric.sin, trigonometric.cos, trigonometric.tan),
        *(trigonometric.asin, trigonometric.acos, trigonometric.atan, reciprocal, rsqrt),
    )
}
"""By name: (m, *args) -> value, on float64."""

#: Largest error in ulps of the exact result, subnormal ones among them. Measured against mpmath on
#: 70,000 arguments of each function, of all binades and where it bends; the largest that were seen
#: are 0.03 to 0.15 less (benchmarks/function_errors.py --float64).
ULPS: dict[str, float] = {
    "exp": 0.65, "expm1": 0.65, "log": 0.65, "log1p": 0.7, "log2": 0.65, "pow": 0.85,
    "sigmoid": 0.75, "tanh": 0.65, "erf": 0.85, "softplus": 0.75, "sin": 0.8, "cos": 0.8,
    "tan": 0.95, "asin": 0.7, "acos": 0.7, "atan": 0.7, "sinh": 0.85, "cosh": 0.85, "asinh": 0.7,
    "acosh": 0.7, "atanh": 0.7, "erfinv": 2.5, "reciprocal": 0.5, "rsqrt": 1.5,
}  # fmt: skip

#: Largest error in units of 2**-53 |x| for functions of the form x g(x) with |g| about <= 1.
ERROR_PER_ARGUMENT: dict[str, float] = {"mish": 3.0, "gelu": 2.5, "gelu_tanh": 2.5, "silu": 2.0}
