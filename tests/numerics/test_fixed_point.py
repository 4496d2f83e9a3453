"""Fixed-point arithmetic against exact fractions and against the functions it stands for."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from verax.numerics.fixed_point import (
    INT32,
    doubling_high_product,
    exp_of_negative,
    quantized_factor,
    reciprocal_of_one_plus,
    rounded_shift,
    scaled,
    scaled_once,
    scaled_wide,
)

int32 = st.integers(int(INT32.min), int(INT32.max))
QUANTUM = 2.0**-31
"""Of a number with 31 fraction bits."""


def away(x: Fraction) -> int:
    """The nearest integer, halves away from zero."""
    return int(x + Fraction(1, 2)) if x >= 0 else -int(-x + Fraction(1, 2))


def up(x: Fraction) -> int:
    """The nearest integer, halves up."""
    return math.floor(x + Fraction(1, 2))


@given(st.floats(2.0**-31, 2.0**20, exclude_min=True))
def test_a_factor_is_represented_to_31_bits(factor: float) -> None:
    multiplier, shift = quantized_factor(factor)
    assert 2**30 <= multiplier < 2**31
    found = Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert abs(found - Fraction(factor)) <= Fraction(factor) / 2**31


def test_factors_at_the_ends() -> None:
    assert quantized_factor(0.0) == (0, 0)
    assert quantized_factor(2.0**-33) == (0, 0)
    assert quantized_factor(1.0) == (2**30, 1)
    assert quantized_factor(math.nextafter(1.0, 0.0)) == (2**30, 1)


@given(int32, int32)
def test_the_high_product_rounds_once_and_saturates_once(a: int, b: int) -> None:
    exact = Fraction(a * b, 2**31)
    # A negative half goes towards zero: gemmlowp nudges by one less there.
    want = up(exact)
    if a == b == INT32.min:
        want = int(INT32.max)
    assert int(doubling_high_product(a, b)) == want


@given(int32, st.integers(0, 31))
def test_a_rounded_shift_divides_halves_away_from_zero(x: int, exponent: int) -> None:
    assert int(rounded_shift(x, exponent)) == away(Fraction(x, 2**exponent))


@given(st.integers(-(2**24), 2**24), st.floats(1e-6, 100))
def test_scaling_rounds_within_one_of_the_product(x: int, factor: float) -> None:
    multiplier, shift = quantized_factor(factor)
    assume(
        abs(x) << max(shift, 0) < 2**31
    )  # LiteRT shifts in 32 bits, and what overflows is undefined
    exact = Fraction(x) * Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert abs(int(scaled(x, multiplier, shift)) - exact) <= 1
    assert int(scaled_once(x, multiplier, shift)) == away(exact)


@given(st.integers(-(2**46), 2**46), st.floats(1e-9, 1e-5))
def test_wide_sums_are_rounded_once(x: int, factor: float) -> None:
    multiplier, shift = quantized_factor(factor)
    exact = Fraction(x) * Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert int(scaled_once(x, multiplier, shift)) == away(exact)


@given(st.integers(-(2**40), 2**40), st.floats(1e-9, 1e-4))
def test_wide_scaling_rounds_with_16_bits_of_the_factor(x: int, factor: float) -> None:
    multiplier, shift = quantized_factor(factor)
    short = min((multiplier + 2**15) >> 16, 0x7FFF)
    exact = Fraction(x) * short * Fraction(2) ** (shift - 15)
    if abs(exact) < 2**31 - 1:
        assert int(scaled_wide(x, multiplier, shift)) == up(exact)


@pytest.mark.parametrize("bits", [0, 3, 5])
def test_the_exponential_is_that_of_a_negative_number(bits: int) -> None:
    step = 2.0 ** (bits - 31)
    raw = -np.unique(np.geomspace(1, 2**31 - 1, 4000).astype(np.int64))
    found = exp_of_negative(raw, bits) * QUANTUM
    assert np.abs(found - np.exp(raw * step)).max() < 64 * QUANTUM * 2**3
    assert exp_of_negative(np.int64(0), bits) == INT32.max


def test_the_reciprocal_is_that_of_one_plus_a() -> None:
    raw = np.linspace(0, 2**31 - 1, 4001).astype(np.int64)
    found = reciprocal_of_one_plus(raw) * QUANTUM
    assert np.abs(found - 1 / (1 + raw * QUANTUM)).max() < 16 * QUANTUM
