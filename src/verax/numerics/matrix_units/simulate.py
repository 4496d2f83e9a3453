"""Exact simulation of matrix units: steps, chains of steps, and chains of float32 FMAs.

All arrays here have K as their first axis; the others broadcast: (K, M, 1) by (K, 1, N) is a
product of matrices, (K, n) by (K, n) are n sums of products. float64 holds every number of a step
exactly: a product of two factors has at most 48 bits, a cut term and the sum of a group less
than 40.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.numerics.fma import fma32
from verax.numerics.formats import FLOAT32
from verax.numerics.matrix_units.units import EXACT, FUSED, PAIRWISE, MatrixUnit

_ZERO = np.int16(-8192)
"""Exponent of zero: below that of any product."""
_ACCUMULATOR_BITS = 31
"""Bits that staged units keep of the sum of products, below the greatest exponent."""


def chain(unit: MatrixUnit, a: Any, b: Any, c: Any = 0.0) -> np.ndarray:
    """c plus the products of a and b, one step of the unit after another from the first of K.

    a, b: (K, ...) that broadcast, of any type that holds the unit's factors. c: the accumulator. A
    last group that is not full is filled with zeros. Returns the accumulator, float64, of the shape
    that a[0], b[0] and c broadcast to (int32 sums of an EXACT unit: wrapped around).
    """
    a, b = (unit.conversion(x).astype(np.float64) for x in (a, b))
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:], np.shape(c))
    if not shape:  # one sum: steps work on arrays
        return np.asarray(chain(unit, a[:, None], b[:, None], c)[0])
    total = np.array(np.broadcast_to(np.asarray(c, np.float64), shape))
    if unit.scheme == EXACT:
        exact = total + (a * b).sum(axis=0)
        return exact.astype(np.int64).astype(np.int32).astype(np.float64)
    step = {FUSED: _fused, PAIRWISE: _pairwise}.get(unit.scheme, _staged)
    group = unit.products_per_step
    with np.errstate(all="ignore"):
        if unit.flushes:
            smallest = unit.formats[0].smallest_normal
            a, b = (np.where(np.abs(x) < smallest, 0.0, x) for x in (a, b))
            total = np.where(np.abs(total) < FLOAT32.smallest_normal, 0.0, total)
        finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
        left, right = (
            _exponents(x, f.min_exponent) for x, f in zip((a, b), unit.formats, strict=True)
        )
        for k in range(0, len(a), group):
            at = slice(k, k + group)
            before = total
            total = step(unit, a[at], b[at], left[at], right[at], before)
            if not finite:
                total = _ieee_where_special(a[at], b[at], before, total)
    return total


def fma_chain(a: Any, b: Any, c: Any = 0.0) -> np.ndarray:
    """c plus the products of a and b by float32 fused multiply-adds from the first of K, each
    rounded to nearest even; shapes as for `chain`, float32."""
    a, b = (np.asarray(x).astype(np.float32) for x in (a, b))
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:], np.shape(c))
    total: np.ndarray = np.array(np.broadcast_to(np.asarray(c, np.float32), shape))
    for x, y in zip(a, b, strict=True):
        total = fma32(x, y, total)
    return total


def _exponents(x: np.ndarray, smallest: int) -> np.ndarray:
    """Of float64 x: e of 1.m * 2**e, not below `smallest`; int16, far below all else for zeros."""
    bits = np.ascontiguousarray(x).view(np.int64).reshape(x.shape)
    e = ((bits >> 52) & 0x7FF).astype(np.int16) - np.int16(1023)
    return np.where(x == 0, _ZERO, np.maximum(e, np.int16(smallest)))


def _power(e: np.ndarray) -> np.ndarray:
    """2**e in float64; e is clipped to what float64 holds (beyond it is nothing but zeros)."""
    bits = np.clip(e, -1022, 1023).astype(np.int64)
    bits += 1023
    bits <<= 52
    return bits.view(np.float64)


def _greatest_exponent(
    left: np.ndarray, right: np.ndarray, shape: tuple[int, ...], start: np.ndarray | None
) -> np.ndarray:
    """Of a group of products and, if given, of `start`; that of zero where all are zero."""
    top = np.full(shape, _ZERO) if start is None else start
    for e, f in zip(left, right, strict=True):
        np.maximum(top, e + f, out=top)
    return top


def _cut_products(a: np.ndarray, b: np.ndarray, scale: np.ndarray, into: np.ndarray) -> None:
    """Adds to `into` the products in units of 1 / scale, each cut towards zero."""
    term = np.empty(into.shape)
    for x, y in zip(a, b, strict=True):
        np.multiply(x, y, out=term)
        np.multiply(term, scale, out=term)
        np.trunc(term, out=term)
        np.add(into, term, out=into)


def _fused(
    unit: MatrixUnit, a: np.ndarray, b: np.ndarray, left: np.ndarray, right: np.ndarray,
    c: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """One step: accumulator and products cut below their greatest exponent, added, written back."""
    top = _greatest_exponent(left, right, c.shape, _exponents(c, FLOAT32.min_exponent))
    scale = _power(unit.kept_bits - top)
    total = np.trunc(c * scale)
    _cut_products(a, b, scale, total)
    total *= _power(top - unit.kept_bits)
    return unit.write_back(total)


def _pairwise(
    unit: MatrixUnit, a: np.ndarray, b: np.ndarray, left: np.ndarray, right: np.ndarray,
    c: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """One step: products added by halves of the group in float32, then the accumulator."""

    def rounded(y: np.ndarray) -> np.ndarray:
        y = unit.write_back(y)
        return np.where(np.abs(y) < FLOAT32.smallest_normal, 0.0, y) if unit.flushes else y

    def added(low: int, high: int) -> np.ndarray:
        if high - low == 1:
            return rounded(a[low] * b[low]) if low < len(a) else np.zeros(())
        middle = (low + high) // 2
        return rounded(added(low, middle) + added(middle, high))

    return rounded(c + added(0, unit.products_per_step))


def _staged(
    unit: MatrixUnit, a: np.ndarray, b: np.ndarray, left: np.ndarray, right: np.ndarray,
    c: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """One step: products cut below their own greatest exponent and added; then that sum and the
    accumulator are cut to minus infinity below the greater of the two exponents."""
    kept = unit.kept_bits
    sums = []
    for index in (slice(0, None, 2), slice(1, None, 2)) if unit.interleaved else (slice(None),):
        top = _greatest_exponent(left[index], right[index], c.shape, None)
        total = np.zeros(c.shape)
        _cut_products(a[index], b[index], _power(kept - top), total)
        sums.append((total * _power(top - kept), top))
    total, top = sums[0]
    if len(sums) > 1:
        top = np.maximum(top, sums[1][1])
        total = _floored(total, kept - top) + _floored(sums[1][0], kept - top)
    exponent = _exponents(c, FLOAT32.min_exponent)
    top = np.maximum(top, exponent)
    total = _floored(total, _ACCUMULATOR_BITS - top)
    kept_c = _floored(c, kept - top)
    if unit.interleaved:
        kept_c = np.where(exponent < top - kept - 1, 0.0, kept_c)
    return unit.write_back(total + kept_c)


def _floored(x: np.ndarray, bits: np.ndarray) -> np.ndarray:
    return np.floor(x * _power(bits)) * _power(-bits)


def _ieee_where_special(
    a: np.ndarray, b: np.ndarray, before: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """`after`, but what IEEE 754 gives where a term is infinite or NaN."""
    direct = before.copy()
    is_special = ~np.isfinite(before)
    for x, y in zip(a, b, strict=True):
        term = x * y
        is_special |= ~np.isfinite(term)
        direct += term
    return np.where(is_special, direct, after)
