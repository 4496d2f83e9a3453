"""The canonical float64 functions: errors against mpmath, special cases, and their constants."""

from __future__ import annotations

import math
from types import ModuleType

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.numerics import remez_float64
from tests.numerics.exact import EXACT, ulp_of, worst

from verax.numerics import inverse_error
from verax.numerics.arith_meaning import MeaningArith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.float64 import (
    constants,
    error_function,
    exponential,
    logarithm,
    trigonometric,
)
from verax.numerics.float64.angle import _TABLE, NEAR
from verax.numerics.float64.functions import ERROR_PER_ARGUMENT, FUNCTIONS, ULPS
from verax.numerics.fma import BLOCK
from verax.numerics.functions_meaning import FUNCTIONS as MEANT

M, MEANING = NumpyArith(), MeaningArith()
INF, NAN = math.inf, math.nan
TINY, SMALLEST, LARGEST = 5e-324, 2.0**-1022, np.finfo(np.float64).max
SPECIAL = np.array([
    *(0.0, TINY, 2.0**-1030, SMALLEST, 1e-300, 1e-20, 2.0**-54, 2.0**-28, 0.5, 1.0, 2.0, 6.0),
    *(np.nextafter(1, 0), np.nextafter(1, 2), 44.0, 709.782712893384, 709.7827128933841),
    *(710.4758600739439, 710.475860073944, 745.1332191019411, 745.1332191019412, 746.0, NEAR),
    *(np.nextafter(NEAR, INF), 1e22, 1e300, LARGEST, INF),
])  # fmt: skip
SPECIAL = np.concatenate([SPECIAL, -SPECIAL, [NAN]])
POSITIVE = ("log", "log2", "rsqrt")
WITHIN_ONE = ("asin", "acos", "atanh", "erfinv")
PERIODIC = ("sin", "cos", "tan")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def all_binades(rng: np.random.Generator, n: int) -> np.ndarray:
    """Every exponent alike, of both signs."""
    x = rng.integers(0, 2**64, n, dtype=np.uint64).view(np.float64)
    return x[np.isfinite(x)]


def samples(name: str, n: int, seed: int = 3) -> np.ndarray:
    """Arguments in the domain of a function: all binades, and where it bends."""
    rng = np.random.default_rng(seed)
    near_one = np.exp2(rng.uniform(-52, -2, n)) * rng.choice([-1, 1], n)
    parts = [all_binades(rng, n), 1 + near_one, near_one]
    parts += [rng.uniform(a, b, n) for a, b in ((-1, 1), (-6.5, 6.5), (-40, 40), (-745, 710))]
    if name == "erf":  # where its ways meet
        parts.append(rng.uniform(0.6, 1.5, 8 * n))
    if name == "erfinv":
        parts += [rng.uniform(0.4, 1, 4 * n), 1 - np.exp2(rng.uniform(-53, -9, 4 * n))]
    if name in PERIODIC:
        quarters = [
            *rng.integers(1, 40, n),
            *rng.integers(40, 2**21, n),
            *rng.integers(1, 2**51, n),
        ]
        with mp.workprec(200):
            turns = np.array([float(int(q) * mp.pi / 2) for q in quarters])
        parts += [turns, np.nextafter(turns, 0), rng.uniform(-(2**22), 2**22, n)]
    x = np.concatenate(parts)
    x = np.abs(x) if name in POSITIVE else x
    x = x[np.abs(x) <= 1] if name in WITHIN_ONE else x
    x = x[x > -1] if name == "log1p" else np.abs(x) + 1 if name == "acosh" else x
    return x[(x != 0) if name in (*POSITIVE, "reciprocal") else x == x]


def test_there_is_one_for_every_function_and_each_states_its_error() -> None:
    assert set(FUNCTIONS) == set(MEANT) == set(ULPS) | set(ERROR_PER_ARGUMENT)
    assert set(EXACT) == set(FUNCTIONS) - {"pow"}


@pytest.mark.parametrize("name", sorted(set(ULPS) - {"pow"}))
def test_stays_within_the_stated_ulps_of_the_exact_result(name: str) -> None:
    x = samples(name, 250)
    error, place = worst(name, x, M.call(name, x))
    assert error <= ULPS[name], f"{name}({place!r}) errs by {error:.3f} ulps"


@pytest.mark.parametrize("name", sorted(ERROR_PER_ARGUMENT))
def test_error_stays_in_proportion_to_the_argument(name: str) -> None:
    x = samples(name, 250)
    x = x[np.abs(x) < 1e100]
    error, place = worst(name, x, M.call(name, x), per_argument=True)
    assert error <= ERROR_PER_ARGUMENT[name], f"{name}({place!r}) errs by {error:.3f}"


def powers(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Bases of all binades and around 1, with exponents for results in all binades."""
    rng = np.random.default_rng(5)
    around = 1 + np.exp2(rng.uniform(-52, -1, n)) * rng.choice([-1, 1], n)
    x = np.concatenate([np.exp2(rng.uniform(-1074, 1023.9, n)), rng.uniform(0.5, 2, n), around])
    y = rng.uniform(-1074, 1023.9, len(x)) / np.log2(x)
    x, y = np.append(x, rng.uniform(0, 9, n)), np.append(y, rng.uniform(-9, 9, n))
    return x, y


def test_pow_stays_within_its_ulps_over_its_whole_range() -> None:
    x, y = powers(700)
    for base, exponent, value in zip(x.tolist(), y.tolist(), M.pow(x, y).tolist(), strict=True):
        with mp.workprec(300):
            exact = mp.mpf(base) ** mp.mpf(exponent)
            if exact < mp.mpf(2) ** 1023:
                error = abs(mp.mpf(value) - exact) / ulp_of(exact)
                assert error <= ULPS["pow"], f"{base!r} ** {exponent!r}"


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"pow"}))
def test_special_cases_are_those_of_the_c_library(name: str) -> None:
    found, meant = M.call(name, SPECIAL), MEANING.call(name, SPECIAL)
    for x, y, wanted in zip(SPECIAL, found, meant, strict=True):
        case = f"{name}({x!r}) = {y!r}, not {wanted!r}"
        if not np.isfinite(wanted) or wanted == 0:
            assert np.array_equal(y, wanted, equal_nan=True), case
            assert np.isnan(y) or np.signbit(y) == np.signbit(wanted), case
        else:
            size = abs(x) if name in ERROR_PER_ARGUMENT else abs(wanted)
            assert abs(y - wanted) <= 4 * np.spacing(size), case


def test_special_cases_of_pow_are_those_of_the_c_library() -> None:
    more = [1 / 3, 3.0, 4.0, 1e18, 2.0**53 + 2, 2.0**53 - 1]
    numbers = np.concatenate([SPECIAL, more, np.negative(more)])
    x, y = (v.ravel() for v in np.meshgrid(numbers, numbers))
    found = M.pow(x, y)
    for a, b, value in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
        turned = math.copysign(1, a) < 0 and b.is_integer() and b % 2 == 1
        try:
            wanted = math.pow(a, b)
        except OverflowError:
            wanted = -INF if turned else INF
        except ValueError:  # Python's name for two of C's results
            wanted = NAN if a else -INF if turned else INF
        case = f"{a!r} ** {b!r} = {value!r}, not {wanted!r}"
        if wanted in (0, INF, -INF) or wanted != wanted:
            assert np.array_equal(value, wanted, equal_nan=True), case
            assert value != value or np.signbit(value) == np.signbit(wanted), case
        else:
            assert abs(value - wanted) <= 2 * np.spacing(abs(wanted)), case


def test_what_is_exact_comes_out_exactly() -> None:
    whole = np.arange(-1074, 1024)
    assert (M.call("log2", np.ldexp(1.0, whole)) == whole).all()
    n = np.arange(1.0, 1000.0)
    assert (M.pow(n, np.full_like(n, 2.0)) == n * n).all()
    assert (M.pow(n * n, np.full_like(n, 0.5)) == n).all()
    x = samples("log", 300)
    assert (M.pow(x, np.ones_like(x)) == x).all()
    assert M.exp(np.zeros(1)) == M.call("cosh", np.zeros(1)) == M.call("cos", np.zeros(1)) == 1
    assert M.log(np.ones(1)) == M.call("acosh", np.ones(1)) == M.call("acos", np.ones(1)) == 0


def test_results_below_the_normal_numbers_are_rounded_once() -> None:
    x = np.linspace(-745.2, -708.3, 700)
    for name in ("exp", "sigmoid", "softplus"):
        error, place = worst(name, x, M.call(name, x))
        assert error <= 0.75, f"{name}({place!r})"


@given(st.floats(2.0**-1074, LARGEST), st.integers(-3, 3))
@example(6381956970095103 * 2.0**797, 0)  # nearest to a multiple of pi/2 of all float64 numbers
@example(5319372648326541 * 2.0**-52, 0)
def test_angles_are_reduced_exactly(x: float, steps: int) -> None:
    moved = np.array([x + steps * np.spacing(x)])
    if np.isfinite(moved).all():
        for name in PERIODIC:
            error, place = worst(name, moved, M.call(name, moved))
            assert error <= ULPS[name], f"{name}({place!r})"


@given(st.floats(allow_nan=False), st.sampled_from(sorted(set(FUNCTIONS) - {"pow"})))
def test_the_meaning_is_a_witness_of_its_own(x: float, name: str) -> None:
    """NumPy and the C library stay within a few ulps of what is promised, or of its argument."""
    given_, unit = np.array([x]), np.abs(x) if name in ERROR_PER_ARGUMENT else 0.0
    meant, found = MEANING.call(name, given_), M.call(name, given_)
    both = np.isfinite(meant) & np.isfinite(found)
    assert (np.isfinite(meant) == np.isfinite(found)).all() or abs(meant[0]) > LARGEST / 2
    size = np.abs(meant[both]) + unit
    assert (np.abs(meant[both] - found[both]) <= 16 * 2.0**-53 * size + 2.0**-1074).all()


@pytest.mark.parametrize("name", ["exp", "pow", "sin", "log"])
def test_long_arrays_are_computed_block_by_block(name: str) -> None:
    rng = np.random.default_rng(1)
    args = [rng.uniform(0.1, 9, (3, BLOCK + 7))] * 2 if name == "pow" else [
        np.exp2(rng.uniform(-30, 90, (3, BLOCK + 7)))
    ]  # fmt: skip
    whole = M.call(name, *args)
    for row in range(3):
        for part in (slice(0, 100), slice(BLOCK - 3, BLOCK + 7)):
            assert (whole[row, part] == M.call(name, *(a[row, part] for a in args))).all()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (module, name)
        for module in (error_function, exponential, inverse_error, logarithm, trigonometric)
        for name in vars(module)
        if isinstance(vars(module)[name], tuple)
        and name.lstrip("_").isupper()
        and not hasattr(constants, name)
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_coefficients_are_those_that_the_script_derives(module: ModuleType, name: str) -> None:
    assert vars(module)[name] == remez_float64.fitted(name.removeprefix("_"))


def test_constants_are_the_nearest_of_their_kind() -> None:
    def parts(x: mp.mpf, *bits: int) -> list[float]:
        """x cut after so many bits, what is left after so many, ..., and the rest rounded."""
        found = []
        for count in bits:
            unit = mp.mpf(2) ** (int(mp.floor(mp.log(x, 2))) - count + 1)
            found.append(mp.floor(x / unit) * unit if count < 53 else mp.mpf(float(x)))
            x = x - found[-1]
        return [*map(float, found), float(x)]

    with mp.workprec(400):
        ln2, half_pi = mp.log(2), mp.pi / 2
        assert parts(ln2, 42) == list(constants.LN2)
        assert parts(1 / ln2, 53) == list(constants.LOG2E)
        assert parts(half_pi, 53) == list(constants.HALF_PI)
        assert parts(half_pi, 33, 33, 33) == list(constants.HALF_PI_PARTS)
        assert parts(mp.erf(1), 53) == list(constants.ERF_OF_ONE)
        assert parts(mp.mpf(2) / 3, 53) == list(constants.TWO_THIRDS)
    with mp.workprec(1400):
        digits = int(mp.floor(2 / mp.pi * mp.mpf(2) ** 1216))
    assert sum(w << (64 * i) for i, w in enumerate(reversed(_TABLE))) == digits
