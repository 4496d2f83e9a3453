"""The elementary functions in multiple precision, and float64 errors against them."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

from verax.numerics.functions_meaning import erfinv

SMALLEST_NORMAL = mp.mpf(2) ** -1022


def _power_of_argument(f: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    """f, with as many more digits as a small or large argument needs."""

    def careful(x: mp.mpf) -> mp.mpf:
        binades = abs(int(mp.floor(mp.log(abs(x), 2)))) if x else 0
        with mp.workprec(200 + 3 * binades):
            return f(x)

    return careful


def _inverse_error(x: mp.mpf) -> mp.mpf:
    """By Newton's method, several times as fast as `mp.erfinv`."""
    if abs(x) < mp.mpf("1e-25"):
        return x * mp.sqrt(mp.pi) / 2
    if abs(x) == 1:
        return x * mp.inf
    y = mp.mpf(float(erfinv(float(x))))
    for _ in range(3):
        y -= (mp.erf(y) - x) * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
    return y


EXACT: dict[str, Callable[[mp.mpf], mp.mpf]] = {
    "exp": mp.exp,
    "expm1": mp.expm1,
    "log": mp.log,
    "log1p": _power_of_argument(mp.log1p),
    "log2": lambda x: mp.log(x, 2),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "tanh": _power_of_argument(mp.tanh),
    "erf": mp.erf,
    "erfinv": _inverse_error,
    "softplus": _power_of_argument(lambda x: mp.log1p(mp.exp(x))),
    "sin": _power_of_argument(mp.sin),
    "cos": _power_of_argument(mp.cos),
    "tan": _power_of_argument(mp.tan),
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": _power_of_argument(mp.sinh),
    "cosh": mp.cosh,
    "asinh": _power_of_argument(mp.asinh),
    "acosh": mp.acosh,
    "atanh": _power_of_argument(mp.atanh),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "mish": lambda x: x * mp.tanh(mp.log1p(mp.exp(x))),
    "gelu": lambda x: x / 2 * mp.erfc(-x / mp.sqrt(2)),
    "gelu_tanh": lambda x: x
    / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))),
}  # fmt: skip


def ulp_of(exact: mp.mpf) -> mp.mpf:
    """Distance of the float64 numbers around `exact`."""
    if abs(exact) < SMALLEST_NORMAL:
        return mp.mpf(2) ** -1074
    return mp.mpf(2) ** (int(mp.floor(mp.log(abs(exact), 2))) - 52)


def worst(
    name: str, x: np.ndarray, found: np.ndarray, per_argument: bool = False
) -> tuple[float, float]:
    """(largest error, its argument): in ulps, or in units of 2^-53 |x|. What overflows is 2^1024
    for the last purpose, rounded to infinity as it should be."""
    most: tuple[float, float] = (0.0, 0.0)
    for argument, value in zip(x.tolist(), found.tolist(), strict=True):
        with mp.workprec(300):
            exact = EXACT[name](mp.mpf(argument))
            near = mp.mpf(value) if np.isfinite(value) else mp.mpf(2) ** 1024 * np.sign(value)
            unit = ulp_of(min(exact, mp.mpf(2) ** 1023, key=abs))
            if per_argument:
                unit = abs(mp.mpf(argument)) * mp.mpf(2) ** -53 + mp.mpf(2) ** -1074
            if not np.isfinite(value) and abs(exact) > mp.mpf(2) ** 1024 - unit / 2:
                continue
            most = max(most, (float(abs(near - exact) / unit), argument))
    return most
