"""How far a route's sums of products are from the exact ones: ceiling, bias and standard deviation.

Per output, with products w x of a sum over K: total y = sum w x, magnitudes T = sum |w x|, root R =
sqrt(sum (w x)^2), all float64 and of converted factors (of the factors as given for routes of three
products, whose dropped terms are counted in). `bound` holds for all finite data. `bias` and `sigma`
are expectations for terms in random order, which need not have one sign. An error is distributed as
bias + sigma times noise.

Cutting is a bias towards zero. The write-back takes from the running sum c a fixed part of |c| on
average, whatever the signs of the terms, and a running sum of terms in random order is y s/n on
average after s of n steps: so the bias is proportional to y and to the number of steps. How far the
running sum strays from that straight line is proportional to R and adds to sigma, again in
proportion to the number of steps. A cut product loses up to a unit in the last kept place of the
running sum, towards zero: where signs are mixed these losses cancel (they count as noise), and in
proportion to y / T they add up to a bias.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.numerics.error_model import KAPPA, U
from verax.numerics.formats import FLOAT16, FLOAT32, FloatFormat
from verax.numerics.matrix_units.conversions import CUT, FactorConversion
from verax.numerics.matrix_units.routes import LANES, Route
from verax.numerics.matrix_units.units import EXACT, FUSED, PAIRWISE, STAGED, MatrixUnit

SCALE = 1 / (2 * math.log(2))
"""Mean of 2**e / |x| over x of exponent e with log-uniform significand."""
SCALE_SQUARE = 3 / (8 * math.log(2))
"""Mean of its square."""
BIAS_UNCERTAINTY = 0.15, 0.35
"""How much of the bias may be otherwise on data whose sizes are spread in another way: always, and
besides where products have few bits, so that their spread decides how many are cut."""
_FULL_PRODUCT = 20
_PEAK = 2.5
"""Largest product of a group over the root mean square."""


def bound(route: Route, magnitudes: Any, k: int, largest: Any = 0.0) -> np.ndarray:
    """What the error cannot exceed for finite sums over k; float64, of the shape of T = magnitudes.

    A step loses less than 2^-kept of its greatest exponent for each of its terms and at most one
    rounding at write-back; the running sum is at most T. largest: greatest magnitude of a factor
    (broadcasts), wanted where factors may be subnormal numbers of their format, because those count
    with the least normal exponent.
    """
    t = np.abs(np.asarray(magnitudes, np.float64))
    if route.unit is not None and route.unit.scheme == EXACT:
        return np.zeros_like(t)
    length, parts = _chains(route, k)
    per_step, absolute = _per_step(route.unit)
    steps = _steps(route.unit, length) + (1 if route.head else 0)
    growth = (1 + per_step) ** steps if _rounds_to_nearest(route.unit) else 1.0
    if route.low is not None:
        r = route.conversion.relative_error
        remainder = 2 * r * (1 + r)  # of the two products with a low part
        first = (1 + r) ** 2 * (1 + remainder) + 2 * remainder
        dropped = r * r + 2 * r * (1 + r) * route.low.relative_error
        result = t * (steps * per_step * growth * first + dropped)
        steps *= 3
    else:
        result = t * (steps * per_step * growth)
    depth = _additions(route, parts)
    unit_roundoff = _sum_format(route).unit_roundoff
    result = result + depth * unit_roundoff * (1 + unit_roundoff) ** depth * (t + result)
    if route.unit is not None and np.any(largest):
        subnormal = _of_subnormal_factors(route.unit) * np.asarray(largest, np.float64)
        result = result + steps * parts * subnormal
    return np.asarray(result + steps * parts * absolute)


def bias(route: Route, total: Any, magnitudes: Any, root: Any, k: int) -> np.ndarray:
    """Mean of the error over data of that y = total, T = magnitudes and R = root: of the sign
    opposite to y (towards zero), 0 where the route rounds to nearest. Where all terms have one sign
    this is the whole loss; where signs are mixed it is the mean given y, and what depends on how
    the running sum came there is in `sigma`. float64, of the shape that the arrays broadcast to."""
    y, t, r = (np.asarray(x, np.float64) for x in (total, magnitudes, root))
    length, parts = _chains(route, k)
    c = _chain_moments(route.unit, length)
    part_y, part_r = _of_a_part(y, r, parts)
    one_sign, ratio = _signs(y, t, r, k)
    cut = np.sqrt((c.cut_coherent * part_y) ** 2 + (c.cut_mixed * part_r) ** 2)
    write = c.write_mixed_bias + (c.write_coherent_bias - c.write_mixed_bias) * ratio**2
    return np.asarray(-write * y - one_sign * parts * cut)


def sigma(route: Route, total: Any, magnitudes: Any, root: Any, k: int) -> np.ndarray:
    """Standard deviation of the error about `bias`; same arguments."""
    y, t, r = (np.asarray(x, np.float64) for x in (total, magnitudes, root))
    length, parts = _chains(route, k)
    c = _chain_moments(route.unit, length)
    part_y, part_r = _of_a_part(y, r, parts)
    _, ratio = _signs(y, t, r, k)
    spread = 4 / 3 - ratio**2
    variance = parts * (
        c.write_coherent * part_y**2
        + c.write_mixed * part_r**2
        + spread * (c.noise_coherent * part_y**2 + c.noise_mixed * part_r**2)
    )
    unit_roundoff = _sum_format(route).unit_roundoff
    of_y, of_r = _addition_moments(route.addition, parts)
    variance = variance + (KAPPA * unit_roundoff) ** 2 * (of_y * y**2 + of_r * r**2)
    if route.low is not None:
        variance = variance + (dropped(route.conversion, route.low) * r) ** 2
    variance = variance + (_bias_uncertainty(route.unit) * bias(route, y, t, r, k)) ** 2
    variance = variance + (KAPPA * U) ** 2 * (y**2 + r**2)  # also where sums are exact by luck
    return np.asarray(np.sqrt(variance))


def conversion_bound(conversion: FactorConversion, magnitudes: Any) -> np.ndarray:
    """What converting both factors changes a sum by at most, T = magnitudes; normal factors."""
    r = conversion.relative_error
    return np.asarray(np.asarray(magnitudes, np.float64) * (2 * r + r * r))


def conversion_bias(conversion: FactorConversion, total: Any) -> np.ndarray:
    """Mean of that change: a cut makes every product smaller, and so y = total in proportion."""
    if conversion.format is None or conversion.rounding != CUT:
        return np.zeros_like(np.asarray(total, np.float64))
    return np.asarray(-2 * SCALE * conversion.format.unit_roundoff * np.asarray(total, np.float64))


def conversion_sigma(conversion: FactorConversion, root: Any) -> np.ndarray:
    """Standard deviation of that change about its bias, R = root."""
    r = np.asarray(root, np.float64)
    if conversion.format is None:
        return np.zeros_like(r)
    u = conversion.format.unit_roundoff
    relative = KAPPA * u
    if conversion.rounding == CUT:  # uniform in one unit in the last place
        relative = 2 * u * math.sqrt(SCALE_SQUARE / 3 - SCALE**2 / 4)
    return np.asarray(math.sqrt(2) * relative * r)


def _chains(route: Route, k: int) -> tuple[int, int]:
    """Products of the longest chain, and how many chains there are."""
    if route.part is None:
        return k, 1
    return min(route.part, k), max(1, -(-k // route.part))


def _bias_uncertainty(unit: MatrixUnit | None) -> float:
    always, more = BIAS_UNCERTAINTY
    bits = _FULL_PRODUCT if unit is None else unit.product_bits
    return always + more * max(0.0, 1 - bits / _FULL_PRODUCT)


def _signs(y: np.ndarray, t: np.ndarray, r: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positive less negative terms, as a part of all, and y / T. For terms of one sign both are 1;
    for mixed signs the regression of a term's sign on y gives T y / (K R^2)."""
    shape = np.broadcast_shapes(y.shape, t.shape, r.shape)
    ratio = np.divide(y, t, out=np.zeros(shape), where=t > 0)
    evenness = np.divide(t * t, k * r * r, out=np.ones(shape), where=r > 0)
    return ratio * (evenness + (1 - evenness) * ratio**2), ratio


def _steps(unit: MatrixUnit | None, length: int) -> int:
    return max(1, length if unit is None else -(-length // unit.products_per_step))


def _rounds_to_nearest(unit: MatrixUnit | None) -> bool:
    return unit is None or not unit.write_back.is_cut


def _per_step(unit: MatrixUnit | None) -> tuple[float, float]:
    """What a step loses at most: as a part of the magnitudes so far, and besides."""
    if unit is None:
        return U, FLOAT32.smallest_subnormal / 2
    group, kept = unit.products_per_step, 2.0**-unit.kept_bits
    last = unit.write_back.relative_error
    smallest = unit.write_back.smallest_error
    if unit.scheme == PAIRWISE:
        levels = math.ceil(math.log2(group))
        if unit.flushes:
            return (levels + 1) * last, 2 * (group + 1) * FLOAT32.smallest_normal
        return (levels + 1) * last, smallest
    # STAGED cuts each product once or twice (interleaved), and the accumulator once.
    cut = (2 * group + 4 if unit.scheme == STAGED else group + 1) * kept
    # A subnormal accumulator counts with the least normal exponent.
    return last + cut, smallest + cut * FLOAT32.smallest_normal


def _of_subnormal_factors(unit: MatrixUnit) -> float:
    """What a step may lose more if some factors are subnormal, over the greatest other factor."""
    terms = unit.products_per_step + 1
    if unit.flushes:
        share = 2.0 * terms
    else:
        share = (2 * terms + 2 if unit.scheme == STAGED else terms) * 2.0**-unit.kept_bits
    return share * max(f.smallest_normal for f in unit.formats)


def _sum_format(route: Route) -> FloatFormat:
    return FLOAT16 if route.sums == "float16" else FLOAT32


def _additions(route: Route, parts: int) -> int:
    """Additions that a part goes through at most, and rounding to the type of sums."""
    if parts == 1:
        return 0
    if route.addition != LANES:
        return parts - 1
    return -(-parts // 32) - 1 + math.ceil(math.log2(min(parts, 32)))


def _of_a_part(y: np.ndarray, r: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square of a part's total, and a part's R, where terms come in random order."""
    part_r = r / math.sqrt(parts)
    return np.sqrt((y / parts) ** 2 + part_r**2 * (1 - 1 / parts)), part_r


@dataclass(frozen=True)
class _Moments:
    """Of a chain, for terms of one sign (coherent) and for mixed signs. write_*_bias: part of y
    lost at write-backs. cut_*: loss by cut products, in y and in R. write_*, noise_*: variances of
    both, in y^2 and in R^2."""

    write_coherent_bias: float = 0.0
    write_mixed_bias: float = 0.0
    cut_coherent: float = 0.0
    cut_mixed: float = 0.0
    write_coherent: float = 0.0
    write_mixed: float = 0.0
    noise_coherent: float = 0.0
    noise_mixed: float = 0.0


@functools.lru_cache(maxsize=512)
def _chain_moments(unit: MatrixUnit | None, length: int) -> _Moments:
    """Sums over the steps of a chain of that many products."""
    if unit is not None and unit.scheme == EXACT:
        return _Moments()
    n = _steps(unit, length)
    at = np.arange(1, n + 1) / n
    coherent, mixed = at**2, at * (1 - at)
    if _rounds_to_nearest(unit):
        roundoff = U if unit is None else unit.write_back.relative_error
        if unit is not None and unit.scheme == PAIRWISE:
            mixed = mixed + math.log2(unit.products_per_step) / n
        noise = (KAPPA * roundoff) ** 2
        writes = _Moments(
            write_coherent=noise * float(coherent.sum()),
            write_mixed=noise * float(mixed.sum() + 1 / n),
        )
        if unit is None or unit.scheme != FUSED:
            return writes
    else:
        assert unit is not None
        writes = _cut_writes(unit, n)
    assert unit is not None
    return _with_cut_products(unit, n, writes)


_SPREAD = np.array([-2.86, -1.67, -1.02, -0.51, 0.0, 0.51, 1.02, 1.67, 2.86]) * 0.75
_SIZES = -2.8 + 2.3 * _SPREAD
"""Exponents of products over the root mean square product, nine equally likely ones: of two factors
of normal data the logarithm has mean -1.8 and deviation 2.3, and the sum of the factors' exponents
is one less on average."""
_FINEST = _SIZES[::2] - 1.3 * 2.3
"""Exponents of the smallest product of a group: it decides which low bits of a sum are in use."""


def _running(group: int, n: int, power: float) -> tuple[np.ndarray, np.ndarray]:
    """After each of n steps the running sum, and before it the greatest term, in root mean square
    products; power: 1 for terms of one sign, 1/2 for mixed signs."""
    s = np.arange(n + 1) * float(group)
    running = s**power
    return running[1:], np.sqrt(running[:-1] ** 2 + _PEAK**2)


def _cut_writes(unit: MatrixUnit, n: int) -> _Moments:
    """Write-backs that cut: the bits between kept and written ones, as far as products reach down
    to them, and those that a carry pushes out."""
    ulp = unit.write_back.relative_error
    spare = unit.kept_bits - unit.write_back.fraction_bits
    at = np.arange(1, n + 1) / n
    means, noises = {}, {}
    for name, power in (("coherent", 1.0), ("mixed", 0.5)):
        running, top = _running(unit.products_per_step, n, power)
        carry = np.maximum(0.0, np.log2(running / top))
        if power < 1:  # up and down by turns
            carry += 0.4 / np.sqrt(np.arange(1, n + 1))
        reach = unit.product_bits - unit.write_back.fraction_bits + np.log2(running)
        lost = np.clip(reach[:, None] - _FINEST, 0.0, (spare + carry)[:, None])
        means[name] = SCALE * ulp * (1 - 2.0**-lost).mean(axis=1) / 2
        noises[name] = (KAPPA * ulp / 2) ** 2 * (1 - 4.0**-lost).mean(axis=1)
    mixed = at * (1 - at)
    return _Moments(
        write_coherent_bias=float((means["coherent"] * at).sum()),
        write_mixed_bias=float((means["mixed"] * at).sum()),
        write_coherent=float((noises["coherent"] * at**2).sum()),
        write_mixed=float((noises["mixed"] * (mixed + 1 / n)).sum())
        + float(means["mixed"].mean()) ** 2 * n * n / 12,
    )


def _with_cut_products(unit: MatrixUnit, n: int, writes: _Moments) -> _Moments:
    """Adds what the cut of products gives."""
    group, kept = unit.products_per_step, unit.kept_bits
    result = {}
    for name, power in (("coherent", 1.0), ("mixed", 0.5)):
        running, top = _running(group, n, power)
        unit_in_last_place = SCALE * 2.0**-kept * top[:, None]
        lost = unit.product_bits - kept + np.log2(top)[:, None] - _SIZES
        # A product of random significands is a multiple of 2^d with probability (d + 2) / 2^(d+1).
        lost = np.maximum(0.0, lost)
        loss = unit_in_last_place * (1 - (lost + 2) * 2.0 ** -(lost + 1)) / 2
        loss = np.minimum(loss, 2.0 * 2.0**_SIZES)
        result[f"cut_{name}"] = float(group * loss.mean(axis=1).sum() / running[-1])
        result[f"noise_{name}"] = float(group * (loss**2).mean(axis=1).sum() / running[-1] ** 2)
    return replace(writes, **result)


def _addition_moments(addition: str, parts: int) -> tuple[float, float]:
    """Sums of squares of what is rounded when parts are added, in y^2 and in R^2."""
    if parts == 1:
        return 0.0, 0.0
    lanes = min(32, parts) if addition == LANES else 1
    per_step = parts / lanes
    at = np.arange(2, math.ceil(per_step) + 1) / per_step
    y, r = float((at**2).sum()), float((at * np.maximum(1 - at, 0)).sum())
    # E[(lane's total)^2] = y^2 / lanes^2 + R^2 / lanes (1 - 1 / lanes), for so many lanes
    of_y, of_r = y / lanes, r + y * (1 - 1 / lanes)
    while lanes > 1:
        lanes = (lanes + 1) // 2
        of_y, of_r = of_y + 1 / lanes, of_r + 1 - 1 / lanes
    return of_y, of_r


def dropped(high: FactorConversion, low: FactorConversion) -> float:
    """Standard deviation, as a part of R, of what three products leave out: low by low, and the
    bits of the low parts that their conversion loses."""
    assert high.format is not None and low.format is not None
    p = high.format.precision
    part = KAPPA * 2.0**-p  # of a factor that its low part is
    spare = FLOAT32.precision - p - 1 - low.format.precision
    again = KAPPA * 2.0**-p if spare > 1 else 0.35 * 2.0**-p if spare == 1 else 0.0
    return part * math.sqrt(part**2 + 2 * again**2)
