"""Fused multiply-add in float32 and float64, on NumPy, with the single rounding of hardware.

The compiler's kernels accumulate by FMA; this is the same operation for the NumPy side, so that
both give the same bits. The product of two float32 numbers is exact in float64; the sum with
the third is rounded to odd in float64, which makes the final rounding to float32 the only one. In
float64 the product is split into two numbers, and their sum with the third is rounded to odd before
the last addition (Boldo and Melquiond); what may leave the range of exponents, in fractions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

_HALF_MASK = np.uint64((1 << 29) - 1)  # float64 bits that a normal float32 does not have
_HALF = np.uint64(1 << 28)  # ... and their value exactly half-way between two float32
_TINY = np.float32(2.0**-126)
BLOCK = 1 << 13  # elements worked on at once: the temporaries stay in the cache


class _Scratch(threading.local):
    """Temporaries of one block, kept by each thread: fresh memory costs more than the sums."""

    def __init__(self) -> None:
        self.product, self.total = np.empty(BLOCK), np.empty(BLOCK)
        self.bits, self.flags = np.empty(BLOCK, np.uint64), np.empty(BLOCK, bool)
        self.magnitude = np.empty(BLOCK, np.float32)


_scratch = _Scratch()


def fma32(a: Any, b: Any, c: Any) -> np.ndarray:
    """round(a * b + c) to float32 with one rounding, ties to even; broadcasting.

    a, b, c: float32 arrays. Infinities, NaN, subnormals and signed zeros follow IEEE 754
    (payload and sign of a NaN are not specified).
    """
    arrays = [np.asarray(x, np.float32) for x in (a, b, c)]
    out = np.empty(np.broadcast_shapes(*(x.shape for x in arrays)), np.float32)
    # What is repeated is widened once, ahead of the blocks.
    arrays = [x.astype(np.float64) if 4 * x.size <= out.size else x for x in arrays]
    p, q, r = (np.broadcast_to(x, out.shape) for x in arrays)
    with np.errstate(all="ignore"):
        for block in blocks(out.shape):
            _fma_block(p[block], q[block], r[block], out[block])
    return out


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Slices that cut an array of `shape` into blocks of about BLOCK elements."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= BLOCK:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield (...,)
        return
    step = max(1, BLOCK // max(inner, 1))
    for outer in np.ndindex(*shape[: axis - 1]):
        for start in range(0, shape[axis - 1], step):
            yield (*outer, slice(start, start + step), ...)


def _fma_block(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    """out = fma(a, b, c) on at most BLOCK elements, all of one shape; out is a view."""

    def temporary(buffer: np.ndarray) -> np.ndarray:
        return buffer[: out.size].reshape(out.shape)

    p = np.multiply(a, b, out=temporary(_scratch.product), dtype=np.float64)
    s = np.add(p, c, out=temporary(_scratch.total))
    out[...] = s
    # Only a sum that looks like a tie (or is subnormal in float32) can be rounded wrongly.
    bits = np.bitwise_and(s.view(np.uint64), _HALF_MASK, out=temporary(_scratch.bits))
    flags = temporary(_scratch.flags)
    if np.equal(bits, _HALF, out=flags).any():
        out[flags] = _add_to_odd(p[flags], c[flags].astype(np.float64))
    np.less(np.abs(out, out=temporary(_scratch.magnitude)), _TINY, out=flags)
    if flags.any() and (flags := flags & (s != 0)).any():
        out[flags] = _add_to_odd(p[flags], c[flags].astype(np.float64))


def _add_to_odd(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c in float64, rounded to odd: an inexact sum gets an odd last bit."""
    s = p + c
    pp = s - c
    error = (p - pp) + (c - (s - pp))
    bits = s.view(np.int64)
    inexact = np.isfinite(s) & (error != 0) & ((bits & 1) == 0)
    step = np.where((error > 0) == (s > 0), 1, -1)
    return (bits + np.where(inexact, step, 0)).view(np.float64)


ORDERED = (np.dtype(np.float32), np.dtype(np.float64))
"""Types in which sums of products have a promised order."""
_SPLIT = 2.0**27 + 1
_FAR = 900
"""Exponents that stay below it in size can neither overflow nor become subnormal on the way."""


def fma(a: Any, b: Any, c: Any) -> np.ndarray:
    """`fma32` or `fma64`, by the type of `a`."""
    return fma64(a, b, c) if np.asarray(a).dtype == np.float64 else fma32(a, b, c)


def fma64(a: Any, b: Any, c: Any) -> np.ndarray:
    """round(a * b + c) to float64 with one rounding, ties to even; broadcasting. As `fma32`."""
    arrays = [np.asarray(v, np.float64) for v in (a, b, c)]
    out = np.empty(np.broadcast_shapes(*(v.shape for v in arrays)))
    x, y, z = (np.broadcast_to(v, out.shape) for v in arrays)
    with np.errstate(all="ignore"):
        for block in blocks(out.shape):
            p, q, r = x[block], y[block], z[block]
            if _near(p, 400) and _near(q, 400) and _near(r, _FAR):
                product = p * q
                out[block] = np.where(product == 0, product + r, _fma_near(p, q, r))
            else:
                out[block] = _fma_scaled(p, q, r)
    return out


def _near(x: np.ndarray, exponent: int) -> bool:
    """Whether all are 0 or between 2^-exponent and 2^exponent in size."""
    size = np.abs(x)
    return bool(((size == 0) | ((size > 2.0**-exponent) & (size < 2.0**exponent))).all())


def _fma_scaled(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """`fma64` of any numbers, by their fractions, or exactly where that is not enough."""
    (p, i), (q, j), (_, k) = np.frexp(x), np.frexp(y), np.frexp(z)
    scale = i.astype(np.int64) + j
    result = np.ldexp(_fma_near(p, q, np.ldexp(z, np.clip(-scale, -2000, 2000))), scale)
    plain = ~(np.isfinite(x) & np.isfinite(y)) | (x == 0) | (y == 0)
    far = (np.abs(scale) >= _FAR) | ((z != 0) & (np.abs(k - scale) >= _FAR))
    far |= (result != 0) & (np.abs(result) < 2.0**-1000) | (np.abs(k) >= _FAR) & (z != 0)
    result = np.asarray(np.where(plain, x * y + z, np.where(np.isfinite(z), result, z)))
    for at in map(tuple, np.argwhere(far & ~plain & np.isfinite(z))):
        result[at] = _fma_exact(float(x[at]), float(y[at]), float(z[at]))
    return result


def _fma_near(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """fma of numbers whose products and sums stay inside of the range of exponents."""
    product = a * b
    (ah, al), (bh, bl) = _split_mantissa(a), _split_mantissa(b)
    error = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    low, residual = _two_sum(c, error)
    high, more = _two_sum(product, low)
    return np.asarray(high + _add_to_odd(residual, more))


def _split_mantissa(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a as the sum of two numbers of 26 bits."""
    scaled = _SPLIT * a
    high = scaled - (scaled - a)
    return high, a - high


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a + b rounded, and what that left."""
    total = a + b
    rounded_b = total - a
    return total, (a - (total - rounded_b)) + (b - rounded_b)


def _fma_exact(a: float, b: float, c: float) -> float:
    """By fractions, of finite numbers of which a and b are not 0."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return a * b + c if c == 0 else 0.0
    sign = 1.0 if exact > 0 else -1.0
    try:
        return math.copysign(float(exact), sign)
    except OverflowError:
        return math.copysign(math.inf, sign)
