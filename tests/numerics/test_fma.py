"""fma32 is held against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.numerics.fma import fma, fma32, fma64
from verax.numerics.formats import FLOAT32

F = np.float32
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
# Few significant bits make ties and cancellation likely.
short = st.builds(
    lambda m, e: float(F(np.ldexp(float(m), e))), st.integers(-4200, 4200), st.integers(-150, 60)
)


def nearest_float32(q: Fraction) -> float:
    """Round a rational to the nearest float32, ties to even, by exact comparison."""
    if q == 0:
        return 0.0
    exponent = FLOAT32.min_exponent
    while abs(q) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    spacing = Fraction(2) ** (exponent - FLOAT32.precision + 1)
    steps = round(q / spacing)  # Fraction rounds half to even
    value = steps * spacing
    return float(value) if abs(value) < Fraction(2) ** 128 else float("inf") * (1 if q > 0 else -1)


@settings(max_examples=400, deadline=None)
@given(st.one_of(floats, short), st.one_of(floats, short), st.one_of(floats, short))
def test_rounds_the_exact_value_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert float(fma32(F(a), F(b), F(c))) == nearest_float32(exact)


def test_double_rounding_case_that_float64_gets_wrong() -> None:
    # The exact sum is 2**24 + 3 - 2**-40, just below a tie; float64 rounds it onto the tie.
    a, b, c = F(1 + 2**-20), F(1 - 2**-20), F(2.0**24 + 2)
    assert float(F(np.float64(a) * np.float64(b) + np.float64(c))) == 2.0**24 + 4
    assert float(fma32(a, b, c)) == 2.0**24 + 2


def test_special_values_follow_ieee() -> None:
    inf, nan = F(np.inf), F(np.nan)
    a = np.array([inf, inf, nan, F(0), F(-0.0), F(3e38), F(1e-45), F(-1)], F)
    b = np.array([F(1), F(0), F(1), F(5), F(5), F(10), F(0.5), F(0)], F)
    c = np.array([F(1), F(1), F(1), F(-0.0), F(-0.0), F(1), F(0), F(-0.0)], F)
    got = fma32(a, b, c)
    assert got[0] == inf and np.isnan(got[1]) and np.isnan(got[2]) and got[5] == inf
    assert np.signbit(got[[3, 4, 6, 7]]).tolist() == [False, True, False, True]
    assert (got[[3, 4, 6, 7]] == 0).all()


def test_broadcasts() -> None:
    a = np.arange(6, dtype=F).reshape(2, 3, 1)
    c = np.arange(5, dtype=F)
    got = fma32(a, F(2), c)
    assert got.shape == (2, 3, 5)
    np.testing.assert_array_equal(got, a * F(2) + c)
    assert fma32(F(1), F(2), F(3)).shape == ()


doubles = st.floats(allow_nan=False, allow_infinity=False)
sparse = st.builds(lambda m, e: float(np.ldexp(float(m), e)), st.integers(-(2**54), 2**54),
                   st.integers(-1130, 960))  # fmt: skip


def nearest_float64(q: Fraction) -> float:
    """Python divides integers with one rounding."""
    try:
        return float(q)
    except OverflowError:
        return float("inf") * (1 if q > 0 else -1)


@settings(max_examples=400, deadline=None)
@given(*[st.one_of(doubles, sparse, st.integers(-99, 99).map(float))] * 3)
def test_float64_rounds_the_exact_value_once(a: float, b: float, c: float) -> None:
    wanted = nearest_float64(Fraction(a) * Fraction(b) + Fraction(c))
    assert float(fma64(a, b, c)) == wanted
    assert float(fma64(-a, b, -c)) == -wanted


@settings(max_examples=200, deadline=None)
@given(doubles, doubles, st.integers(-3, 3))
def test_float64_keeps_what_a_cancelled_product_left(a: float, b: float, ulps: int) -> None:
    with np.errstate(all="ignore"):
        c = np.float64(-(np.float64(a) * b))
        c = c + ulps * np.spacing(c)
    if np.isfinite(c):
        wanted = nearest_float64(Fraction(a) * Fraction(b) + Fraction(float(c)))
        assert float(fma64(a, b, c)) == wanted


def test_float64_special_values_follow_ieee() -> None:
    inf = np.inf
    a = np.array([inf, inf, np.nan, 0.0, -0.0, 1e300, 5e-324, -1, 1e300, -1e300])
    b = np.array([1, 0, 1, 5, 5, 1e300, 0.5, 0, 1e300, 5e-324])
    c = np.array([1, 1, 1, -0.0, -0.0, 1, 0, -0.0, -inf, 0])
    got = fma64(a, b, c)
    assert got[0] == got[5] == inf and np.isnan(got[1:3]).all() and got[8] == -inf
    assert np.signbit(got[[3, 4, 6, 7]]).tolist() == [False, True, False, True]
    assert (got[[3, 4, 6, 7]] == 0).all() and got[9] == -1e300 * 5e-324


def test_the_type_of_the_first_factor_decides() -> None:
    x = np.float32(1 + 2**-12)
    assert fma(x, x, np.float32(-1)).dtype == F
    got = fma(np.float64(x), np.arange(3.0)[:, None], np.zeros(2))
    assert got.dtype == np.float64 and got.shape == (3, 2)
