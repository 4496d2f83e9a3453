"""fma32 is held against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.numerics.fma import fma32
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
