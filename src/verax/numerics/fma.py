"""Fused multiply-add in float32, on NumPy, with the single rounding that hardware gives.

The compiler's kernels accumulate by FMA; this is the same operation for the NumPy side, so that
both give the same bits. The product of two float32 numbers is exact in float64; the sum with
the third is rounded to odd in float64, which makes the final rounding to float32 the only one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_HALF_MASK = np.uint64((1 << 29) - 1)  # float64 bits that a normal float32 does not have
_HALF = np.uint64(1 << 28)  # ... and their value exactly half-way between two float32
_TINY = 2.0**-126


def fma32(a: Any, b: Any, c: Any) -> np.ndarray:
    """round(a * b + c) to float32 with one rounding, ties to even; broadcasting.

    a, b, c: float32 arrays. Infinities, NaN, subnormals and signed zeros follow IEEE 754
    (payload and sign of a NaN are not specified).
    """
    a64 = np.asarray(a, np.float32).astype(np.float64)
    b64 = np.asarray(b, np.float32).astype(np.float64)
    c64 = np.asarray(c, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        p = a64 * b64
        s = np.atleast_1d(p + c64)
        # Only a sum that looks like a tie (or is subnormal in float32) can round wrongly.
        risky = (s.view(np.uint64) & _HALF_MASK) == _HALF
        risky |= (np.abs(s) < _TINY) & (s != 0)
        if risky.any():
            shape = s.shape
            pr = np.broadcast_to(p, shape)[risky]
            cr = np.broadcast_to(c64, shape)[risky]
            s[risky] = _add_to_odd(pr, cr)
        result = s.astype(np.float32)
    return result.reshape(np.broadcast_shapes(a64.shape, b64.shape, c64.shape))


def _add_to_odd(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c in float64, rounded to odd: an inexact sum gets an odd last bit."""
    s = p + c
    pp = s - c
    error = (p - pp) + (c - (s - pp))
    bits = s.view(np.int64)
    inexact = np.isfinite(s) & (error != 0) & ((bits & 1) == 0)
    step = np.where((error > 0) == (s > 0), 1, -1)
    return (bits + np.where(inexact, step, 0)).view(np.float64)
