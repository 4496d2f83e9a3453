"""Derives the polynomial coefficients of verax.numerics.float64 (run as a script: seconds).

Minimax fits by Remez exchange as in `remez`, of what is left of a function behind the first terms
of its series; the series themselves are summed, so that nothing cancels near 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from statistics import NormalDist

import mpmath as mp
from tests.numerics.remez import remez

Function = Callable[[mp.mpf], mp.mpf]


def series(terms: Callable[[int], mp.mpf], first: int) -> Function:
    """x -> sum of terms(first + k) x**k, to the working precision."""
    known: list[mp.mpf] = []

    def coefficients() -> Iterator[mp.mpf]:
        for k in count():
            if k == len(known):
                known.append(terms(first + k))
            yield known[k]

    def total(x: mp.mpf) -> mp.mpf:
        found, power = mp.mpf(0), mp.mpf(1)
        for c in coefficients():
            found += c * power
            if abs(c * power) <= mp.eps * abs(known[0]):
                return found
            power *= x
        raise AssertionError

    return total


def _arcsine(k: int) -> mp.mpf:
    return mp.binomial(2 * k, k) / mp.mpf(4) ** k / (2 * k + 1)


def _erf(k: int) -> mp.mpf:
    return mp.mpf(-1) ** k / mp.factorial(k) / (2 * k + 1) * 2 / mp.sqrt(mp.pi) - (k == 0)


def _slope_at_one(s: mp.mpf) -> mp.mpf:
    if abs(s) < mp.mpf("1e-20"):
        return 2 / mp.sqrt(mp.pi) * mp.exp(-1)
    with mp.extradps(30):
        return (mp.erf(1 + s) - mp.erf(1)) / s


def erfcx(x: mp.mpf) -> mp.mpf:
    """exp(x^2) erfc(x)."""
    return mp.exp(x * x) * mp.erfc(x)


def from_turned(t: mp.mpf) -> mp.mpf:
    """The x of t = (x - 3) / (x + 3)."""
    return 3 * (1 + t) / (1 - t)


def inverse_error(w: mp.mpf) -> mp.mpf:
    """erfinv(x) / x for w = -log(1 - x^2), by Newton's method on what is left to 1."""
    if w < mp.mpf("1e-20"):
        return mp.sqrt(mp.pi) / 2
    with mp.extradps(20):
        x = mp.sqrt(-mp.expm1(-w))
        rest = mp.exp(-w) / (1 + x)  # 1 - x
        y = -mp.mpf(NormalDist().inv_cdf(float(rest) / 2)) / mp.sqrt(2)
        for _ in range(3 if w > 1 else 5):
            y += (mp.erfc(y) - rest) * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        return y / x


def fits() -> dict[str, tuple[Function, Function, int, mp.mpf, mp.mpf]]:
    """name: function, weight, number of coefficients, and the interval."""
    half, quarter = mp.log(2) / 2, mp.pi / 4
    near_one = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
    edge = mp.mpf("1.0001")
    floor = mp.mpf("1e-4")

    def one(z: mp.mpf) -> mp.mpf:
        return abs(z) + floor

    return {
        # (e^r - 1 - r - r^2/2) / r^3
        "EXP": (series(lambda k: 1 / mp.factorial(k), 3), lambda r: r * r + floor, 10,
                -half * edge, half * edge),
        # (2 artanh(s) - 2 s) / s^3 in z = s^2
        "LOG": (series(lambda k: mp.mpf(2) / (2 * k + 1), 1), one, 8, mp.mpf(0),
                near_one**2 * edge),
        # (2 artanh(s) - 2 s - 2 s^3 / 3) / s^5 in z = s^2
        "LOG_OF_POW": (series(lambda k: mp.mpf(2) / (2 * k + 1), 2), lambda z: z * z + floor**2,
                       9, mp.mpf(0), near_one**2 * edge),
        # (sin r - r) / r^3, (cos r - 1 + r^2/2) / r^4 in z = r^2
        "SIN": (series(lambda k: mp.mpf(-1) ** k / mp.factorial(2 * k + 1), 1), one, 7,
                mp.mpf(0), quarter**2 * edge),
        "COS": (series(lambda k: mp.mpf(-1) ** k / mp.factorial(2 * k), 2), lambda z: z * z + floor,
                6, mp.mpf(0), quarter**2 * edge),
        # (arcsin r - r) / r^3, (arctan r - r) / r^3, (sinh r - r) / r^3
        "ASIN": (series(_arcsine, 1), one, 13, mp.mpf(0), mp.mpf(1) / 4),
        "ATAN": (series(lambda k: mp.mpf(-1) ** k / (2 * k + 1), 1), one, 12, mp.mpf(0),
                 mp.tan(mp.pi / 8) ** 2 * edge),
        "SINH": (series(lambda k: 1 / mp.factorial(2 * k + 1), 1), one, 8, mp.mpf(0), edge),
        # erf(r) / r - 1 in z = r^2, up to 3/4; (erf(1 + s) - erf(1)) / s, to 11/8; erfcx in t, to 6
        "ERF": (series(_erf, 0), lambda z: mp.mpf(1), 12, mp.mpf(0), mp.mpf("0.5626")),
        "ERF_AT_ONE": (_slope_at_one, lambda s: abs(s) + floor, 15, mp.mpf(-1) / 4, mp.mpf(3) / 8),
        "ERFCX": (lambda t: erfcx(from_turned(t)), lambda t: mp.exp(-from_turned(t) ** 2), 11,
                  mp.mpf(-13.01) / 35, mp.mpf(1) / 3),
        "ERFCX_RELATIVE": (lambda t: erfcx(from_turned(t)), lambda t: 1 / erfcx(from_turned(t)), 15,
                           mp.mpf(-13.01) / 35, mp.mpf(1) / 3),
        # erfinv(x) / x by w = -log(1 - x^2): in w - 3, in sqrt(w) - 13/4, in sqrt(w) - 5
        "MIDDLE": (lambda u: inverse_error(u + 3), lambda u: mp.mpf(1), 18, mp.mpf(-3),
                   mp.mpf("3.001")),
        "TAIL": (lambda s: inverse_error((s + 3.25) ** 2), lambda s: mp.mpf(1), 14,
                 mp.sqrt(mp.mpf("5.999")) - 3.25, mp.sqrt(mp.mpf("16.76")) - 3.25),
        "FAR": (lambda s: inverse_error((s + 5) ** 2), lambda s: mp.mpf(1), 12,
                mp.sqrt(mp.mpf("16.74")) - 5, mp.sqrt(37) - 5),
    }  # fmt: skip


def fitted(name: str) -> tuple[float, ...]:
    """The coefficients of that name, each rounded once."""
    with mp.workdps(60):
        f, weight, terms, low, high = fits()[name]
        exact, _ = remez(f, weight, list(range(terms)), low, high)
        return tuple(float(c) for c in exact)


if __name__ == "__main__":
    mp.mp.dps = 60
    for name, (f, weight, _, low, high) in fits().items():
        coefficients = fitted(name)
        grid = [low + (high - low) * i / 1000 for i in range(1001)]
        worst = max(abs(weight(x) * (f(x) - mp.polyval(coefficients[::-1], x))) for x in grid)
        bits = mp.nstr(mp.log(worst, 2), 4)
        print(f"_{name} = (\n    {', '.join(map(repr, coefficients))},\n)  # 2^{bits}")
