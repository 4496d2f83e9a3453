"""Every canonical function keeps the error it states, on all binades and special values."""

import math

import mpmath as mp
import numpy as np
import pytest

from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.formats import FLOAT32, numpy_dtype, ulp, ulp_error
from verax.numerics.functions import ERROR_PER_ARGUMENT, FUNCTIONS, ULPS, exp_normal
from verax.numerics.functions_meaning import FUNCTIONS as WIDE

M = NumpyArith()
F = np.float32
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 2**-126, 3.4e38, -3.4e38], F
)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def samples(seed: int = 3, n: int = 60_000) -> np.ndarray:
    """Every binade, the ranges where functions bend, and special values."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(F)
    ranges = [(-2, 2), (-20, 20), (-105, 90), (0.5, 2), (-1000, 1000)]
    parts = [rng.uniform(a, b, n).astype(F) for a, b in ranges]
    return np.concatenate([bits, *parts, SPECIAL])


def test_each_function_states_its_error() -> None:
    assert set(FUNCTIONS) == set(ULPS) | set(ERROR_PER_ARGUMENT) == set(WIDE)


@pytest.mark.parametrize("name", sorted(set(ULPS) - {"pow"}))
def test_stays_within_the_stated_ulps(name: str) -> None:
    x = samples()
    error = ulp_error(M.call(name, x), WIDE[name](x.astype(np.float64)))
    worst = int(np.argmax(error))
    assert error[worst] <= ULPS[name], f"{name}({x[worst]!r})"


@pytest.mark.parametrize("name", sorted(ERROR_PER_ARGUMENT))
def test_error_stays_in_proportion_to_the_argument(name: str) -> None:
    x = samples()
    x = x[np.isfinite(x)]
    exact = WIDE[name](x.astype(np.float64))
    error = np.abs(M.call(name, x).astype(np.float64) - exact)
    unit = np.abs(x.astype(np.float64)) * FLOAT32.unit_roundoff + FLOAT32.smallest_subnormal
    assert (error / unit).max() <= ERROR_PER_ARGUMENT[name]
    positive = x > 0
    assert (error / ulp(exact, FLOAT32))[positive].max() <= ERROR_PER_ARGUMENT[name]


def test_pow_stays_within_its_ulps_and_follows_c_on_special_cases() -> None:
    x = samples(5)
    rng = np.random.default_rng(6)
    y = np.where(rng.random(len(x)) < 0.6, rng.uniform(-9, 9, len(x)), rng.permutation(x))
    y = np.where(rng.random(len(x)) < 0.2, np.rint(y), y).astype(F)
    assert (
        ulp_error(M.call("pow", x, y), WIDE["pow"](x.astype(float), y.astype(float))).max()
        <= (ULPS["pow"])
    )
    a, b = (v.ravel() for v in np.meshgrid(np.append(SPECIAL, [2, -2, 0.5]), np.append(SPECIAL, 3)))
    a, b = a.astype(F), b.astype(F)
    np.testing.assert_array_equal(M.call("pow", a, b), np.power(a.astype(float), b).astype(F))


@pytest.mark.parametrize(
    "name", ["sin", "cos", "tan", "exp", "log", "erf", "erfinv", "tanh", "atanh"]
)
def test_agrees_with_mpmath_so_the_yardstick_itself_is_right(name: str) -> None:
    x = samples(9, 40)
    x = x[np.isfinite(x)]
    if name == "log":
        x = x[x > 0]
    if name in ("atanh", "erfinv"):
        x = x[np.abs(x) < 1]
    if name in ("exp",):
        x = x[np.abs(x) < 80]
    with mp.workdps(60):
        exact = np.array([float(getattr(mp, name)(mp.mpf(float(v)))) for v in x])
    assert ulp_error(M.call(name, x), exact).max() <= ULPS[name]


def test_sine_is_accurate_next_to_multiples_of_pi() -> None:
    # The float32 argument nearest to a multiple of pi/2 among all (found by continued fractions).
    x = F(16367173.0 * 2.0**72)
    with mp.workdps(80):
        exact = float(mp.cos(mp.mpf(float(x))))
    assert ulp_error(M.call("cos", np.array([x])), exact).max() <= ULPS["cos"]
    assert abs(exact) < 1e-7


def test_the_short_way_to_exp_has_its_bits() -> None:
    spread = np.random.default_rng(87).uniform(-87, 88, 200_003).astype(np.float32)
    ends = np.array([-87, 88, 0.0, -0.0, -1e-45, 1e-30, -86.99999], np.float32)
    for x in (spread, ends):
        assert exp_normal(M, x).tobytes() == M.exp(x).tobytes()


def test_odd_functions_keep_the_sign_of_zero() -> None:
    for name in ("tanh", "erf", "expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "asinh"):
        assert math.copysign(1, float(M.call(name, F(-0.0)))) == -1, name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_formats_are_rounded_from_float32(dtype: str) -> None:
    x = np.linspace(-5, 5, 301).astype(numpy_dtype(dtype))
    expected = M.call("tanh", x.astype(F)).astype(numpy_dtype(dtype))
    got = M.call("tanh", x)
    assert got.dtype == numpy_dtype(dtype)
    np.testing.assert_array_equal(got, expected)


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="int32"):
        M.call("exp", np.int32(1).reshape(1))
