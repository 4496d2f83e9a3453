"""The criterion on numbers alone: honest sums pass, exact values must agree, NaN stands apart."""

import numpy as np
import pytest

from verax.judge.decide.coarse import Coarse
from verax.judge.decide.criterion import Decision, Tiers, decide
from verax.numerics import statistics as st
from verax.numerics.error_model import FLUSHED, Rounding, U, relative, sum_of_products
from verax.records.verdict import Kind


def product(random: np.random.Generator, n: int = 300) -> tuple[np.ndarray, ...]:
    """a [37, n], b [n, 23] in float32, with float64 result, magnitudes and squares."""
    a = random.standard_normal((37, n)).astype(np.float32)
    b = random.standard_normal((n, 23)).astype(np.float32)
    wide, high = a.astype(float), b.astype(float)
    return a, b, wide @ high, np.abs(wide) @ np.abs(high), wide**2 @ high**2


def model(random: np.random.Generator, n: int = 300) -> tuple[np.ndarray, np.ndarray, Rounding]:
    a, b, y, absolute, squares = product(random, n)
    return a @ b, y, sum_of_products(y, absolute, squares, n)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [3, 50, 700])
def test_numpy_matmul_is_rounding(seed: int, n: int) -> None:
    given, y, rounding = model(np.random.default_rng(seed), n)
    assert decide(given, y, rounding).kind in (Kind.rounding, Kind.identical)


@pytest.mark.parametrize("order", [1, -1])
def test_sequential_sums_are_rounding(order: int) -> None:
    a, b, y, absolute, squares = product(np.random.default_rng(1))
    acc = np.zeros(y.shape, np.float32)
    for k in range(a.shape[1])[::order]:
        acc += a[:, k : k + 1] * b[k]
    assert decide(acc, y, sum_of_products(y, absolute, squares, 300)).kind is Kind.rounding


@pytest.mark.parametrize("relative_error", [3e-5, 1e-4, 1e-3], ids=["3e-05", "1e-04", "1e-03"])
def test_one_wrong_weight_is_a_mistake(relative_error: float) -> None:
    a, b, y, absolute, squares = product(np.random.default_rng(2), 200)
    wrong = b.copy()
    k = int(np.argsort(np.abs(b[:, 4]))[len(b) // 2])
    wrong[k, 4] *= np.float32(1 + relative_error)
    found = decide(a @ wrong, y, sum_of_products(y, absolute, squares, 200))
    assert found.kind is Kind.mistake
    assert found.group.startswith(("channel 4", "element"))


def test_rounded_once_is_identical_and_minus_zero_equals_zero() -> None:
    y = np.array([[1 / 3, 0.0, -2.5]])
    given = y.astype(np.float32)
    given[0, 1] = -0.0
    assert decide(given, y, relative(y)).kind is Kind.identical
    assert decide(given, y, None).kind is Kind.identical


def test_an_exact_operation_may_not_differ_by_one_ulp() -> None:
    y = np.array([1.0, 2.0, 3.0])
    given = np.nextafter(y.astype(np.float32), np.float32(9))
    assert decide(given, y, None).kind is Kind.mistake


def test_correlated_errors_of_constant_data_need_the_order_tier() -> None:
    n = 4000
    y = np.full((6, 5), n * float(np.float32(0.1)) ** 2)
    tenth = np.float32(0.1)
    total = np.float32(0)
    for _ in range(n):
        total += tenth * tenth
    given = np.full(y.shape, total)
    rounding = Rounding(np.full(y.shape, 40 * U * abs(y[0, 0])), np.full(y.shape, n * U * y[0, 0]))
    alone = decide(given, y, rounding)
    assert alone.kind is Kind.mistake
    helped = decide(given, y, rounding, Tiers(orders=lambda: [given]))
    assert helped.kind is Kind.rounding
    assert helped.test == "orders of summation"


def test_beyond_the_hard_bound_no_order_helps() -> None:
    given, y, rounding = model(np.random.default_rng(3))
    given = given.copy()
    given[2, 3] += np.float32(4 * rounding.bound[2, 3])
    found = decide(given, y, rounding, Tiers(orders=lambda: [given]))
    assert found.kind is Kind.mistake
    assert found.test == "hard bound"
    assert found.bound_ratio is not None and found.bound_ratio > st.BOUND_RATIO


def test_flushed_subnormals_are_named() -> None:
    y = np.array([FLUSHED / 3, 1.0, -FLUSHED / 7])
    given = np.array([0.0, 1.0, 0.0], np.float32)
    assert decide(given, y, None) == Decision(
        Kind.rounding,
        "2 of 3 elements were subnormal and were flushed to zero, nothing else differs",
        "exact, subnormals flushed",
        error=decide(given, y, None).error,
    )
    found = decide(given, y, relative(y))
    assert found.kind is Kind.rounding
    assert "flushes" in found.reason


@pytest.mark.parametrize("stray", [np.nan, np.inf, -np.inf])
def test_a_stray_non_finite_number_is_a_mistake_by_itself(stray: float) -> None:
    given, y, rounding = model(np.random.default_rng(4))
    given = given.copy()
    given[5, 6] = stray
    found = decide(given, y, rounding)
    assert (found.kind, found.test) == (Kind.mistake, "non-finite")


def test_nan_by_the_meaning_proves_nothing() -> None:
    y = np.array([np.nan, 1.0])
    assert decide(y.astype(np.float32), y, relative(y)).kind is Kind.undecided
    assert decide(np.array([3.0, 1.0], np.float32), y, relative(y)).kind is Kind.undecided
    assert decide(np.array([3.0, 1.0], np.float32), y, None).kind is Kind.undecided
    assert decide(y.astype(np.float32), y, None).kind is Kind.identical


def test_overflow_may_be_infinite_in_float32() -> None:
    y = np.array([1e39, -1e39, 2.0])
    given = np.array([np.inf, -np.inf, 2.0], np.float32)
    assert decide(given, y, relative(y)).kind in (Kind.identical, Kind.rounding)
    assert decide(-given, y, relative(y)).kind is not Kind.rounding


def test_another_shape_is_a_mistake() -> None:
    y = np.zeros((2, 3))
    assert decide(np.zeros((3, 2), np.float32), y, relative(y)).test == "shape"


def test_integers_may_be_off_only_at_an_edge() -> None:
    y = np.array([3, 4, 5], np.int8)
    edge = Rounding(np.full(3, 0.1), np.array([1.0, 0.1, 0.1]))
    assert decide(np.array([4, 4, 5], np.int8), y, edge).kind is Kind.rounding
    assert decide(np.array([3, 5, 5], np.int8), y, edge).kind is Kind.mistake
    assert decide(np.array([3, 4, 6], np.int8), y, None).kind is Kind.mistake


def test_every_grouping_sees_what_lies_along_it() -> None:
    shape = (2, 5, 7, 11)
    places = {
        "channel 3": (slice(None), 3),
        "row 4": (slice(None), slice(None), 4),
        "column 9": (..., 9),
        "pixel 4, 9": (..., 4, 9),
        "channel 3, row 4": (slice(None), 3, 4),
        "image 1": (1,),
    }
    for name, where in places.items():
        z = np.zeros(shape)
        z[where] = 4.0
        assert st.group_test(z).group == name
    z = np.zeros(shape)
    z[1, 2, 3, 4] = 40
    assert st.group_test(z) == st.GroupTest(40 / st.group_limit(1), "element 1, 2, 3, 4")


def dead_channels(n: int = 27) -> tuple[np.ndarray, np.ndarray, Rounding, np.ndarray]:
    """Sums in order of repeated terms, whose errors all point one way, [4, 6, 31]; the channels 1,
    2 and 5 are subnormal. With their meaning, error model, and an own run in that order."""
    random = np.random.default_rng(8)
    terms = random.uniform(0.1, 1, (4, 6, 31, 1)).repeat(n, axis=3).astype(np.float32)
    terms[:, [1, 2, 5]] *= np.float32(2.0**-130)
    wide = terms.astype(float)
    rounding = sum_of_products(wide.sum(3), np.abs(wide).sum(3), (wide**2).sum(3), n)
    run = np.add.accumulate(terms, axis=3)[..., -1]
    return run, wide.sum(3), Rounding(rounding.sigma / 8, rounding.bound), run


@pytest.mark.parametrize("scale", [1.0, 1.00002], ids=["honest", "wrong"])
def test_flushed_channels_do_not_count_against_the_rest(scale: float) -> None:
    """The others need the tests that follow sigma's: orders here."""
    given, y, rounding, run = dead_channels()
    assert decide(given, y, rounding).kind is Kind.mistake
    tiers = Tiers(orders=lambda: [run])
    given[:, [0, 3, 4]] *= np.float32(scale)
    expected = Kind.rounding if scale == 1 else Kind.mistake
    assert decide(given, y, rounding, tiers).kind is expected
    flushed = given.copy()
    flushed[:, [1, 2, 5]] = 0
    assert (flushed != given).sum() == 4 * 3 * 31
    found = decide(flushed, y, rounding, tiers)
    assert found.kind is expected
    assert scale > 1 or found.test == "orders of summation"


def test_flushed_channels_do_not_hide_a_coarser_arithmetic() -> None:
    _, y, rounding, _ = dead_channels()
    other = y * (1 + 1e-3 * np.cos(np.arange(31)))
    tiers = Tiers(precisions=lambda _: [Coarse("another", other, relative(other))])
    coarse = other.astype(np.float32)
    coarse[:, [1, 2, 5]] = 0
    found = decide(coarse, y, rounding, tiers)
    assert (found.kind, found.test) == (Kind.precision, "another")
    coarse[2, 3, 7] *= np.float32(1.001)
    assert decide(coarse, y, rounding, tiers).kind is Kind.mistake
