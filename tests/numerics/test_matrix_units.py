"""A step of a matrix unit cuts its terms towards zero and adds them exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.numerics.formats import FloatFormat
from verax.numerics.matrix_units import units
from verax.numerics.matrix_units.conversions import (
    BF16_EVEN,
    TF32_AWAY,
    TF32_CUT,
    TF32_EVEN,
    FactorConversion,
)
from verax.numerics.matrix_units.simulate import chain, fma_chain
from verax.numerics.matrix_units.units import (
    BF16,
    E4M3,
    E5M2,
    FP16,
    FP16_ACCUMULATION,
    FUSED,
    TF32,
    MatrixUnit,
    published,
)

DTYPES: dict[str, Any] = {
    "tf32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
FUSED_UNITS = [u for u in (*units.MEASURED, *units.PUBLISHED) if u.scheme == FUSED]


def one(unit: MatrixUnit, terms: list[float], c: float = 0.0, factor: float = 1.0) -> float:
    """A chain over products of `terms` with one factor."""
    a = np.array(terms)
    return float(chain(unit, a / factor, np.full(len(a), factor), c))


def name_of(unit: MatrixUnit) -> str:
    return f"{unit.generation} {unit.name}"


# ------------------------------------------------------------------ an independent witness
def exponent(x: Fraction, smallest: int) -> int:
    """Of a number that is not zero."""
    e = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    return max(e if abs(x) >= Fraction(2) ** e else e - 1, smallest)


def cut(x: Fraction, last: int) -> Fraction:
    """To a multiple of 2**last, towards zero."""
    step = Fraction(2) ** last
    return step * int(x / step)


def stored(x: Fraction, unit: MatrixUnit) -> Fraction:
    """The write-back of a finite sum."""
    fmt: FloatFormat = unit.write_back.format
    if not x:
        return x
    e = exponent(x, fmt.min_exponent)
    if not unit.write_back.is_cut:
        step = Fraction(2) ** (e - unit.write_back.fraction_bits)
        return step * round(x / step)
    if abs(x) < fmt.smallest_normal:  # fewer bits than those that are kept of normal numbers
        fraction = exponent(x, -10000) - unit.write_back.fraction_bits
        return cut(x, max(fraction, fmt.min_exponent - fmt.precision + 1))
    return cut(x, e - unit.write_back.fraction_bits)


def witness(unit: MatrixUnit, a: list[float], b: list[float], c: float) -> Fraction:
    """The same chain in fractions, term by term."""
    total = Fraction(c)
    left, right = (f.min_exponent for f in unit.formats)
    for k in range(0, len(a), unit.products_per_step):
        at = slice(k, k + unit.products_per_step)
        x, y = [Fraction(v) for v in a[at]], [Fraction(v) for v in b[at]]
        tops = [exponent(p, left) + exponent(q, right) for p, q in zip(x, y, strict=True) if p * q]
        tops += [exponent(total, -126)] if total else []
        if not tops:
            continue
        last = max(tops) - unit.kept_bits
        products = sum((cut(p * q, last) for p, q in zip(x, y, strict=True)), Fraction(0))
        total = stored(cut(total, last) + products, unit)
    return total


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(FUSED_UNITS), st.integers(0, 2**32 - 1), st.booleans())
def test_a_chain_is_what_fractions_give(unit: MatrixUnit, seed: int, wide: bool) -> None:
    rng = np.random.default_rng(seed)
    k, n, span = 2 * unit.products_per_step + 3, 5, 6 if wide else 2
    dtype = DTYPES[unit.factors[0]]
    a, b = (
        unit.conversion(
            (rng.standard_normal((k, n)) * 2.0 ** rng.integers(-span, span, (k, n))).astype(dtype)
        ).astype(float)
        for _ in range(2)
    )
    a[rng.random((k, n)) < 0.2] = 0
    a[-1], b[-1] = -a[0], b[0]
    start = unit.write_back(rng.standard_normal(n))
    found = chain(unit, a, b, start)
    expected = [witness(unit, list(a[:, i]), list(b[:, i]), start[i]) for i in range(n)]
    assert [Fraction(y) for y in found] == expected


@pytest.mark.parametrize("unit", [FP16, E5M2], ids=name_of)
def test_a_subnormal_factor_counts_with_the_least_normal_exponent(unit: MatrixUnit) -> None:
    """2^-16 times 1 alone sets the exponent -14: what is below 2^(-14 - kept) is gone."""
    dtype = DTYPES[unit.factors[0]]
    tiny = 2.0 ** (-14 - unit.kept_bits - 1)
    halves = [2.0 ** (np.floor(np.log2(tiny) / 2)), 2.0 ** np.ceil(np.log2(tiny) / 2)]
    a = np.array([2.0**-16, halves[0], -(2.0**-16)]).astype(dtype).astype(float)
    b = np.array([1.0, halves[1], 1.0]).astype(dtype).astype(float)
    assert a[1] * b[1] == tiny
    assert chain(unit, a, b) == 0
    assert witness(unit, list(a), list(b), 0.0) == 0
    normal = replace(unit, factors=("bfloat16", "bfloat16"))
    assert chain(normal, a, b) == tiny


# ------------------------------------------------------------------ probes written by hand
@pytest.mark.parametrize(
    ("unit", "kept"), [(TF32, 25), (BF16, 25), (FP16, 25), (E4M3, 13), (published("Volta")[0], 23)]
)
def test_bits_below_the_greatest_exponent_are_cut_towards_zero(unit: MatrixUnit, kept: int) -> None:
    last = 2.0**-kept
    for sign in (1, -1):
        assert one(unit, [1, sign * last, -1], factor=2.0**-6) == sign * last
        assert one(unit, [1, sign * last / 2, -1], factor=2.0**-6) == 0
        assert one(unit, [1, sign * 1.5 * last, -1], factor=2.0**-6) == sign * last
    # each is cut before they are added, not their sum
    assert one(unit, [1, last / 2, last / 2, -1], factor=2.0**-6) == 0


def test_the_accumulator_is_one_of_the_terms() -> None:
    assert one(TF32, [2.0**-25], c=1.0) == 1.0
    assert one(TF32, [2.0**-25, -1.0], c=1.0) == 2.0**-25
    assert one(TF32, [1.0, -1.0], c=2.0**-25) == 2.0**-25
    assert one(TF32, [1.0, -1.0], c=2.0**-26) == 0


def test_a_group_has_no_order_but_steps_do() -> None:
    rng = np.random.default_rng(31)
    a, b = (rng.standard_normal((16, 7)).astype(np.float16) for _ in range(2))
    order = rng.permutation(16)
    np.testing.assert_array_equal(chain(FP16, a, b), chain(FP16, a[order], b[order]))
    long = [1.0, 2.0**-24, *[0.0] * 6, -1.0]
    assert one(TF32, long) == 0  # the write-back of the first step loses it
    assert one(BF16, long) == 2.0**-24  # all of it is one step


def test_the_write_back_cuts_and_a_carry_costs_a_bit() -> None:
    assert one(TF32, [1.0, 1 - 2.0**-11, 2.0**-11, 2.0**-23]) == 2.0
    assert one(TF32, [1.0, 2.0**-24, 2.0**-24]) == 1 + 2.0**-23
    assert one(TF32, [-1.0, -(2.0**-24)]) == -1.0
    assert one(TF32, [1.0, 1.5 * 2.0**-23]) == 1 + 2.0**-23
    assert one(E4M3, [1.0, 1.0, 2.0**-13], factor=0.5) == 2.0
    assert one(E4M3, [1.0, 2.0**-13], factor=2.0**-6) == 1 + 2.0**-13


def test_fp16_accumulation_rounds_every_step_to_nearest_even() -> None:
    half = 2.0**-11
    assert one(FP16_ACCUMULATION, [1.0, half]) == 1.0
    assert one(FP16_ACCUMULATION, [1.0, 2.0**-10, half]) == 1 + 2 * 2.0**-10
    assert one(FP16_ACCUMULATION, [1.0, half, 2.0**-24], factor=2.0**-10) == 1 + 2.0**-10
    rising = [1.0, *[0.0] * 15, half, *[0.0] * 15, half]
    assert one(FP16_ACCUMULATION, rising) == 1.0 and one(FP16, rising) == 1 + 2 * half
    assert one(FP16_ACCUMULATION, [32768.0, 32768.0]) == np.inf


def test_zeros_are_positive_and_subnormal_results_stay() -> None:
    zero = one(TF32, [-1.0, 1.0])
    assert zero == 0 and not np.signbit(zero)
    assert not np.signbit(one(BF16, [-0.0], c=-0.0))
    assert chain(TF32, np.array([2.0**-100]), np.array([2.0**-49]), 0.0) == 2.0**-149
    assert chain(TF32, np.array([-(2.0**-100)]), np.array([1.5 * 2.0**-49]), 0.0) == -(2.0**-149)
    assert chain(TF32, np.array([2.0**-75]), np.array([2.0**-75]), 0.0) == 0


@np.errstate(all="raise")
def test_special_values_are_those_of_ieee_and_touch_no_other_output() -> None:
    inf, nan, large = np.inf, np.nan, 2.0**127
    a = np.array([[inf, 1.0, inf, large, large, 2.0], [1.0, 1.0, inf, large, large, 3.0]], "f")
    b = np.array([[0.0, nan, 1.0, 4.0, 1.0, 5.0], [1.0, 1.0, -1.0, -4.0, 1.0, 7.0]], "f")
    y = chain(TF32, a, b)
    np.testing.assert_array_equal(y, [nan, nan, nan, 0.0, inf, 31.0])
    y = chain(TF32, np.full((9, 3), 1, "f"), np.full((9, 1), 1, "f"), [-inf, nan, 0.5])
    np.testing.assert_array_equal(y, [-inf, nan, 9.5])
    # a sum beyond float32 is infinite in the next step too, not the greatest number
    top = np.full((9, 1), large, "f")
    assert chain(TF32, top, np.ones((9, 1), "f"))[0] == inf


@pytest.mark.parametrize(
    ("conversion", "ties", "above"),
    [(TF32_CUT, (0, 1), 0), (TF32_EVEN, (0, 2), 1), (TF32_AWAY, (1, 2), 1), (BF16_EVEN, (0, 0), 0)],
    ids=lambda v: getattr(v, "name", None),
)
def test_conversions_differ_at_ties(
    conversion: FactorConversion, ties: tuple[int, int], above: int
) -> None:
    ulp = 2.0**-10
    x = np.array([1 + ulp / 2, 1 + 1.5 * ulp, 1 + ulp / 2 + 2.0**-23], np.float32)
    expected = 1 + ulp * np.array([*ties, above])
    np.testing.assert_array_equal(conversion(x), expected.astype(np.float32))
    np.testing.assert_array_equal(conversion(-x), -expected.astype(np.float32))
    special = np.array([[np.inf, -np.inf, np.nan, -0.0, 3.4028235e38]], np.float32)
    converted = conversion(special)
    np.testing.assert_array_equal(converted[:, :4], special[:, :4])
    is_cut = conversion is TF32_CUT
    assert np.isfinite(converted[0, 4]) == is_cut and np.signbit(converted[0, 3])


def test_a_unit_converts_what_nobody_has_converted() -> None:
    x = np.array([1 + 2.0**-11, 1 + 2.0**-10 - 2.0**-23])
    np.testing.assert_array_equal(chain(TF32, x[:, None], np.ones((2, 1))), [2.0])


def test_integers_are_exact_and_wrap_around() -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-128, 128, (70, n), np.int8) for n in (5, 5))
    expected = (a.astype(int) * b).sum(axis=0)
    np.testing.assert_array_equal(chain(units.INT8, a, b), expected)


def test_a_chain_of_fmas_rounds_once_a_product() -> None:
    a = np.array([1.0, 2.0**-12 + 2.0**-35, -1.0], np.float32)
    b = np.array([1.0, 2.0**-12, 1.0], np.float32)
    assert fma_chain(a, b) == 2.0**-23  # just above the half: rounded up, by the last bit of a
    assert fma_chain(a[::-1], b[::-1], 1.0) == np.float32(1 + 2.0**-23)


# ------------------------------------------------------------------ units that were not measured
def test_published_units_say_that_they_were_not_measured() -> None:
    assert all(unit.is_measured for unit in units.MEASURED)
    assert not any(unit.is_measured for unit in units.PUBLISHED)
    assert all(unit.source for unit in units.PUBLISHED)
    names = [name_of(u) for u in units.PUBLISHED]
    assert len(set(names)) == len(names)
    with pytest.raises(KeyError, match="no published units of 'Maxwell'; known: Volta"):
        published("Maxwell")


def test_cdna_1_adds_products_by_pairs_before_the_accumulator() -> None:
    unit = published("CDNA1")[0]
    assert unit.products_per_step == 4
    large, small = 2.0**12, 2.0**-6
    a, b = np.array([large, small, -large, small]), np.array([large, small, large, small])
    # 2^24 + 2^-12 and -2^24 + 2^-12 lose the small ones, whatever the accumulator
    assert chain(unit, a, b) == 0
    assert chain(unit, a[[0, 2, 1, 3]], b[[0, 2, 1, 3]], 1.0) == 1 + 2.0**-11
    assert chain(unit, a[:1], b[:1]) == 2.0**24


def test_cdna_2_flushes_subnormal_numbers() -> None:
    first, second = published("CDNA1")[0], published("CDNA2")[0]
    x, y = np.array([2.0**-20]), np.array([1.0])
    assert chain(first, x, y) == 2.0**-20 and chain(second, x, y) == 0
    assert chain(second, y, y, 2.0**-130) == 1 and chain(second, 0 * y, y, 2.0**-130) == 0


def test_cdna_3_cuts_the_accumulator_downwards() -> None:
    """Data of the opposite sign give another magnitude, as published of this generation."""
    unit = next(u for u in published("CDNA3") if u.factors[0] == "float16")
    c, four, two = 1 + 2.0**-23, np.array([4.0]), np.array([1.0])
    assert chain(unit, four, two, -c) == 3 - 2.0**-22
    assert chain(unit, -four, two, c) == -3


def test_cdna_3_sums_even_and_odd_products_of_fp8_apart() -> None:
    unit = next(u for u in published("CDNA3") if u.interleaved)
    a = np.array([128.0, -(2.0**-7), -128.0, -(2.0**-7)])
    b = np.array([128.0, 2.0**-7, 128.0, 2.0**-7])
    # -2^-13 is cut downwards below 2^14, after its own sum was exact
    assert chain(unit, a, b) == -(2.0**-10)
    assert chain(replace(unit, interleaved=False), a, b) == 0
    # a sum without products has no exponent
    assert chain(unit, a[1:2], b[1:2]) == -(2.0**-14)
