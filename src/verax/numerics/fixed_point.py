"""Fixed-point arithmetic of quantized networks: real factors as 32-bit integers and shifts.

A factor is multiplier x 2^(shift - 31), the multiplier being in [2^30, 2^31). The roundings are
those that LiteRT's reference kernels use, each in its own places. Most are gemmlowp's: the high
half of a doubled product, halves away from zero, then a division by a power of two, likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from verax.numerics.arith_numpy import NumpyArith

INT16, INT32 = np.iinfo(np.int16), np.iinfo(np.int32)
Ints = Any
"""int64 arrays that hold numbers of 32 bits."""


def quantized_factor(factor: float) -> tuple[int, int]:
    """(multiplier, shift) nearest to a factor >= 0; (0, 0) for one below 2^-32.

    Source: QuantizeMultiplier of TFLite's quantization_util.
    """
    if factor == 0:
        return 0, 0
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, shift = multiplier // 2, shift + 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def nearest(x: Any) -> np.ndarray:
    """Real numbers rounded to whole ones, halves away from zero; float64, exact below 2^52."""
    wide = np.asarray(x, np.float64)
    return np.trunc(wide + np.copysign(0.5, wide))


def wrap32(x: Ints) -> Ints:
    """int64 numbers as 32 bits hold them."""
    return np.asarray(x, np.int64).astype(np.int32).astype(np.int64)


def doubling_high_product(a: Ints, b: Ints) -> Ints:
    """round(a b / 2^31), halves away from zero; the one product that does not fit saturates."""
    a, b = np.asarray(a, np.int64), np.asarray(b, np.int64)
    product = a * b
    high = np.where(product >= 0, product + 2**30, product + 1 - 2**30)
    high = np.where(high >= 0, high >> 31, -(-high >> 31))
    return np.where((a == INT32.min) & (b == INT32.min), INT32.max, high)


def rounded_shift(x: Ints, exponent: Ints) -> Ints:
    """round(x / 2^exponent), halves away from zero, exponent in 0 .. 31."""
    x, exponent = np.asarray(x, np.int64), np.asarray(exponent, np.int64)
    mask = (np.int64(1) << exponent) - 1
    above = (x & mask) > (mask >> 1) + (x < 0)
    return (x >> exponent) + above


def scaled(x: Ints, multiplier: Ints, shift: Ints) -> Ints:
    """x multiplier 2^(shift - 31) on 32 bits, rounded twice."""
    shift = np.asarray(shift, np.int64)
    widened = wrap32(np.asarray(x, np.int64) << np.maximum(shift, 0))
    return rounded_shift(doubling_high_product(widened, multiplier), np.maximum(-shift, 0))


def scaled_wide(x: Ints, multiplier: Ints, shift: Ints) -> Ints:
    """As `scaled` for sums of up to 48 bits: the multiplier keeps 16 bits, one rounding, halves up.

    Source: the int64 form of MultiplyByQuantizedMultiplier.
    """
    multiplier = np.asarray(multiplier, np.int64)
    short = np.where(multiplier < 0x7FFF0000, (multiplier + 2**15) >> 16, 0x7FFF)
    total = 15 - np.asarray(shift, np.int64)
    return wrap32((np.asarray(x, np.int64) * short + (np.int64(1) << (total - 1))) >> total)


def scaled_once(x: Ints, multiplier: Ints, shift: Ints) -> Ints:
    """As `scaled` for sums of up to 47 bits, with the whole multiplier; one rounding, halves away
    from zero; shift at most 14.

    LiteRT does this in float64 with the factor unrounded: results differ where the product is
    nearer to a half than 2^-31 of itself.
    """
    x, multiplier = np.asarray(x, np.int64), np.asarray(multiplier, np.int64)
    high, low = np.abs(x) >> 16, np.abs(x) & 0xFFFF
    product = high * multiplier + (low * multiplier >> 16)  # without its lowest 16 bits
    total = 15 - np.asarray(shift, np.int64)
    return wrap32(np.sign(x) * ((product + (np.int64(1) << total >> 1)) >> total))


def exp_of_negative(a: Ints, integer_bits: int) -> Ints:
    """exp of numbers in (-2^integer_bits, 0] with 31 - integer_bits fraction bits; the result has
    31 fraction bits. Source: gemmlowp's exp_on_negative_values."""
    a = np.asarray(a, np.int64)
    fraction = 31 - integer_bits
    quarter = np.int64(1) << (fraction - 2)
    fraction_part = (a & (quarter - 1)) - quarter
    result = _exp_between_quarters(_saturating_shift(fraction_part, integer_bits))
    remainder = fraction_part - a
    for exponent, factor in enumerate(EXP_FACTORS, start=-2):
        if integer_bits > exponent:
            bit = (remainder & (np.int64(1) << (fraction + exponent))) != 0
            result = np.where(bit, doubling_high_product(result, factor), result)
    if integer_bits > 5:
        result = np.where(a < -(np.int64(1) << (fraction + 5)), 0, result)
    return np.where(a == 0, INT32.max, result)


EXP_FACTORS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-2^k) with 31 fraction bits for k = -2 .. 4."""


def _exp_between_quarters(a: Ints) -> Ints:
    """exp of numbers in [-1/4, 0), 31 fraction bits: a Taylor series around -1/8."""
    x = a + 2**28
    square = doubling_high_product(x, x)
    cube = doubling_high_product(square, x)
    fourth = doubling_high_product(square, square)
    series = doubling_high_product(rounded_shift(fourth, 2) + cube, 715827883)
    series = rounded_shift(series + square, 1)
    return 1895147668 + doubling_high_product(1895147668, x + series)


def _saturating_shift(x: Ints, exponent: int) -> Ints:
    """x 2^exponent, saturated to 32 bits."""
    return np.clip(np.asarray(x, np.int64) << exponent, INT32.min, INT32.max)


def reciprocal_of_one_plus(a: Ints) -> Ints:
    """1 / (1 + a) for a in [0, 1], all with 31 fraction bits: three Newton steps.

    Source: gemmlowp's one_over_one_plus_x_for_x_in_0_1.
    """
    a = np.asarray(a, np.int64)
    half = _rounding_half_sum(a, np.int64(INT32.max))
    x = 1515870810 + doubling_high_product(half, -1010580540)  # 48/17 - 32/17 d, 29 bits
    for _ in range(3):
        residual = 2**29 - doubling_high_product(half, x)
        x = x + _saturating_shift(doubling_high_product(x, residual), 2)
    return _saturating_shift(x, 1)


def _rounding_half_sum(a: Ints, b: Ints) -> Ints:
    """(a + b) / 2, halves away from zero."""
    total = a + b
    biased = total + np.where(total >= 0, 1, -1)
    return np.where(biased >= 0, biased >> 1, -(-biased >> 1))


def inverse_root(x: Ints) -> tuple[Ints, Ints]:
    """(multiplier, shift) of 1 / sqrt(x) for whole x >= 1; 0 counts as 1. Five Newton steps from 1.

    Source: GetInvSqrtQuantizedMultiplierExp of TFLite's internal/common.
    """
    x = np.asarray(x, np.int64)
    down = np.maximum(-(-(np.frexp(np.maximum(x, 1))[1] - 29) // 2), 0)
    scaled_down = x >> (2 * down)  # below 2^29
    bit_pairs = (31 - np.frexp(np.maximum(scaled_down, 1))[1]) // 2 - 1
    value = (scaled_down << (2 * bit_pairs)) >> 1  # 3 integer bits
    half = rounded_shift(value, 1)
    root = np.full(x.shape, 2**28, np.int64)
    for _ in range(5):
        cube = doubling_high_product(doubling_high_product(root, root), root)  # 9 integer bits
        correction = doubling_high_product(np.int64(3 * 2**27), root)
        correction = correction - doubling_high_product(half, _saturating_shift(cube, 6))
        root = _saturating_shift(correction, 3)  # 6 integer bits to 3
    root = doubling_high_product(root, 1518500250)  # sqrt(1/2)
    right = 11 + down - bit_pairs
    root = np.where(right < 0, root << np.maximum(-right, 0), root)
    is_one = x <= 1
    return np.where(is_one, INT32.max, root), np.where(is_one, 0, -np.maximum(right, 0))


# 16-bit functions by tables and linear interpolation, as LiteRT's kernels compute them. Entries are
# moved by half of the interpolation's error in the middle of their interval, so that the error is
# spread evenly over both signs.

STEPS = 512
Function = Callable[[np.ndarray], np.ndarray]
Ends = tuple[float | np.floating, float | np.floating]


def interpolation_table(
    function: Function,
    ends: Ends,
    output_ends: Ends,
    work: type,
    error: Callable[[np.ndarray], np.ndarray] | None = None,
    signs: tuple[int, int, int] = (0, 0, 0),
) -> np.ndarray:
    """Table [513], int64: `function` at even steps over `ends`, in units of the output.

    ends: what -2^15 and 2^15 - 1 mean. output_ends: likewise of the result. work: float32 or
    float64, the arithmetic that every step is rounded to. error: how far rounding may move the
    function at x, in units of the output; signs: which way it does at each interval's start, middle
    and end. Source: LUTPopulate of TFLite's internal/common.
    """
    low, high, out_low, out_high = (work(v) for v in (*ends, *output_ends))
    step = (high - low) / work(STEPS)
    unit = work(2**16) / (out_high - out_low)

    def at(x: np.ndarray, sign: int) -> np.ndarray:
        y = function(x) * unit
        return y if error is None or not sign else y.astype(np.float64) + sign * error(x)

    starts = low + np.arange(STEPS, dtype=work) * step
    following = low + np.arange(1, STEPS + 1, dtype=work) * step
    at_start, at_next = nearest(at(starts, signs[0])), at(following, signs[2])
    middle = nearest(at(starts + step / work(2), signs[1]))
    between = nearest((at_next + at_start.astype(work)) / work(2))
    entries = at_start - nearest((between - middle) / 2)
    last = nearest(at(np.asarray(high)[None], signs[2]))
    return np.clip(np.concatenate([entries, last]), INT16.min, INT16.max).astype(np.int64)


def interpolated(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Results for 16-bit x: the upper 9 bits say where, the lower 7 how far to the next entry."""
    index = 256 + (x >> 7)
    base = table[index]
    return base + (((table[index + 1] - base) * (x & 0x7F) + 64) >> 7)


@cache
def sigmoid_table() -> np.ndarray:
    """sigmoid(i / 24) with 16 fraction bits, [256]; the last entry saturates."""
    at = np.arange(512) / 48
    exact = 2.0**16 / (1 + NumpyArith().exp(-at))
    start, middle = exact[:-2:2], exact[1:-1:2]
    entries = np.floor(start + (middle - (start + exact[2::2]) / 2) / 2 + 0.5)
    return np.append(entries, 2**16 - 1).astype(np.int64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Sigmoid with 15 fraction bits of x, in which 24 2^9 is 1."""
    return (_sigmoid_sum(x, 9, 0x7FFF << 10, 1 << 25) + (1 << 9)) >> 10


def tanh(x: np.ndarray) -> np.ndarray:
    """Tanh with 15 fraction bits of x, in which 12 2^10 is 1: 2 sigmoid(2 x) - 1."""
    return (_sigmoid_sum(x, 8, 0xFFFF << 8, 1 << 24) - (1 << 23) + (1 << 7)) >> 8


def _sigmoid_sum(x: np.ndarray, bits: int, largest: int, one: int) -> np.ndarray:
    """Interpolated sigmoid with 16 + `bits` fraction bits; negative x by one - sigmoid(-x) - 1."""
    size = np.abs(x)
    table, index = sigmoid_table(), np.minimum(size >> bits, 254)
    base = table[index]
    interpolated = (base << bits) + (size & ((1 << bits) - 1)) * (table[index + 1] - base)
    interpolated = np.where(size >> bits >= 255, largest, interpolated)
    return np.where(x >= 0, interpolated, one - interpolated - 1)
