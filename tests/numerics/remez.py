"""Derives the float32 polynomial coefficients of verax.numerics.functions32 (run as a script).

Minimax fit by Remez exchange in 50 digits, then coefficients are rounded to float32 one by one
from the lowest order, refitting the rest each time.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 50


def remez(f: Callable, weight: Callable, powers: list[int], low: float, high: float):
    """Coefficients of sum c_k x**powers[k] that minimise max |weight (f - sum)|, and that max."""
    n = len(powers)
    grid = [mp.mpf(low) + (mp.mpf(high) - low) * (1 - mp.cos(mp.pi * i / 600)) / 2
            for i in range(601)]  # fmt: skip
    values, weights = [f(x) for x in grid], [weight(x) for x in grid]
    monomials = [[x**p for p in powers] for x in grid]
    pick = [round(600 * i / n) for i in range(n + 1)]
    for _ in range(40):
        a = mp.matrix(n + 1, n + 1)
        b = mp.matrix(n + 1, 1)
        for row, i in enumerate(pick):
            for k in range(n):
                a[row, k] = monomials[i][k]
            a[row, n] = (-1) ** row / weights[i]
            b[row] = values[i]
        c = mp.lu_solve(a, b)
        error = [w * (v - sum(c[k] * t[k] for k in range(n)))
                 for v, w, t in zip(values, weights, monomials)]  # fmt: skip
        extremes: list[int] = []
        for i, e in enumerate(error):
            if extremes and (error[extremes[-1]] > 0) == (e > 0):
                if abs(e) > abs(error[extremes[-1]]):
                    extremes[-1] = i
            else:
                extremes.append(i)
        while len(extremes) > n + 1:
            extremes.pop(0 if abs(error[extremes[0]]) < abs(error[extremes[-1]]) else -1)
        if len(extremes) < n + 1 or extremes == pick:
            break
        pick = extremes
    return [c[k] for k in range(n)], max(abs(e) for e in error)


def rounded_fit(f: Callable, weight: Callable, powers: list[int], low: float, high: float):
    """Float32 coefficients of the minimax fit and the largest weighted error they leave."""
    fixed: list[float] = []
    for k in range(len(powers)):
        rest = powers[k:]

        def left(x, done=tuple(fixed)):
            return f(x) - sum(mp.mpf(c) * x**p for c, p in zip(done, powers))

        c, _ = remez(left, weight, rest, low, high)
        fixed.append(float(np.float32(float(c[0]))))
    grid = [low + (high - low) * i / 1000 for i in range(1001)]
    worst = max(
        abs(weight(x) * (f(x) - sum(mp.mpf(c) * x**p for c, p in zip(fixed, powers))))
        for x in map(mp.mpf, grid)
    )
    return fixed, worst


def _fits() -> dict[str, tuple]:
    ln2, tiny = float(mp.log(2)) / 2, mp.mpf("1e-9")

    def safe(x):
        return x if abs(x) > tiny else tiny

    def exp_tail(x):
        x = safe(x)
        return (mp.expm1(x) - x) / x**2

    def log_tail(x):
        x = safe(x)
        return (mp.log1p(x) - x + x * x / 2) / x**3

    def tanh_tail(z):
        x = mp.sqrt(max(z, tiny))
        return (mp.tanh(x) - x) / x**3

    def exp2_tail(x):
        x = safe(x)
        return (mp.power(2, x) - 1 - x * mp.log(2)) / x**2

    def normal(x):
        return mp.erfc(x / mp.sqrt(2)) / 2  # Phi(-x)

    def log2_normal_tail(x):
        x = safe(x)
        return (mp.log(normal(x), 2) + 1) / x

    def erf_tail(z):
        x = mp.sqrt(max(z, tiny))
        return mp.erf(x) / x - 1

    return {
        "EXP": (exp_tail, lambda x: x * x + mp.mpf("0.005"), range(5), -ln2, ln2),
        "EXPM1": (exp_tail, lambda x: abs(x) + mp.mpf("0.03"), range(5), -ln2, ln2),
        "LOG": (log_tail, lambda x: x * x + mp.mpf("0.005"), range(8), -0.2929, 0.4143),
        "TANH": (tanh_tail, lambda z: z + tiny, range(5), 0.0, 0.3907),
        "ERF": (erf_tail, lambda z: mp.mpf(1), range(7), 0.0, 0.8611),
        "EXP2": (exp2_tail, lambda x: x * x + mp.mpf("0.005"), range(5), -0.5, 0.5),
        "LOG2_NORMAL": (log2_normal_tail, lambda x: x * normal(x) + tiny, range(8), 0.0, 5.6),
        "LOG_ERFC": (lambda x: mp.log(mp.erfc(x)), mp.erfc, range(8), 0.92, 4.0),
    }


if __name__ == "__main__":
    for name, (f, weight, powers, low, high) in _fits().items():
        coefficients, worst = rounded_fit(f, weight, list(powers), low, high)
        print(f"{name} = (\n    {', '.join(map(repr, coefficients))},\n)  # {mp.nstr(worst, 3)}")
