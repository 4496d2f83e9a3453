"""Fixed-point tanh and sigmoid on 16 bits by steps, as gemmlowp has them and LiteRT's optimized
kernels use them.

Source: gemmlowp's fixedpoint.h (tanh, logistic, exp_on_negative_values and what these use) on
std::int16_t. Constants are those of 32 bits, rounded to 16. tanh errs by up to 12 units of 2^-15.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ONE = 2**15 - 1
"""1 with 15 fraction bits, saturated."""
_EXP_FACTORS = (25520, 19875, 12055, 4435, 600, 11, 0)
"""exp(-2^k) with 15 fraction bits for k = -2 .. 4."""
Words = Any
"""int64 arrays that hold numbers of 16 bits."""


def stepped_tanh(x: Words, fraction: int = 12) -> Words:
    """tanh with 15 fraction bits of x with `fraction`, 9 to 15: (1 - e) / (1 + e),
    e = exp(-2 |x|)."""
    x = np.asarray(x, np.int64)
    size = np.minimum(np.abs(x), ONE + 1)
    magnitude = _one_minus_over_one_plus(_exp_of_negative(-size, fraction - 1))
    return np.where(x == 0, 0, np.where(x < 0, -magnitude, magnitude))


def stepped_sigmoid(x: Words) -> Words:
    """1 / (1 + exp(-x)) with 15 fraction bits of x with 12."""
    x = np.asarray(x, np.int64)
    size = np.minimum(np.abs(x), ONE + 1)
    magnitude = _one_over_one_plus(_exp_of_negative(-size, 12))
    return np.where(x == 0, 2**14, np.where(x < 0, ONE - magnitude, magnitude))


def _product(a: Words, b: Words) -> Words:
    """round(a b / 2^15), halves away from zero."""
    product = np.asarray(a, np.int64) * b
    high = product + np.where(product >= 0, 2**14, 1 - 2**14)
    return np.clip(np.where(high >= 0, high >> 15, -(-high >> 15)), -ONE - 1, ONE)


def _rounding_shift(x: Words, exponent: int) -> Words:
    """round(x / 2^exponent), halves away from zero."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


def _shifted(x: Words, exponent: int) -> Words:
    return np.clip(x << exponent, -ONE - 1, ONE)


def _exp_of_negative(a: Words, fraction: int) -> Words:
    """exp of numbers <= 0 with `fraction` fraction bits; the result has 15."""
    quarter = 1 << fraction - 2
    fraction_part = (a & (quarter - 1)) - quarter
    x = _shifted(fraction_part, 15 - fraction) + 2**12  # around -1/8
    square = _product(x, x)
    series = _rounding_shift(_product(square, square), 2) + _product(square, x)
    series = _rounding_shift(_product(series, 10923) + square, 1)
    result = np.clip(28918 + _product(28918, x + series), -ONE - 1, ONE)
    remainder = fraction_part - a
    for exponent, factor in enumerate(_EXP_FACTORS[: 17 - fraction], start=-2):
        bit = (remainder & (1 << fraction + exponent)) != 0
        result = np.where(bit, _product(result, factor), result)
    if fraction < 10:
        result = np.where(a < -(1 << fraction + 5), 0, result)
    return np.where(a == 0, ONE, result)


def _one_minus_over_one_plus(a: Words) -> Words:
    """(1 - a) / (1 + a) for a in [0, 1], 15 fraction bits."""
    return _shifted(_reciprocal_of_half_sum(a) - 2**13, 2)


def _one_over_one_plus(a: Words) -> Words:
    """1 / (1 + a) for a in [0, 1], 15 fraction bits."""
    return _shifted(_reciprocal_of_half_sum(a), 1)


def _reciprocal_of_half_sum(a: Words) -> Words:
    """2 / (1 + a) for a in [0, 1] with 15 fraction bits; the result has 13. Three Newton steps."""
    half = (a + ONE + 1) >> 1
    x = 23130 + _product(half, -15420)  # 48/17 - 32/17 d
    for _ in range(3):
        x = x + _shifted(_product(x, 2**13 - _product(half, x)), 2)
    return x
