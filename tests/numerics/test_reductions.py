"""Reductions keep the stated order, hold for every dtype, and are accurate."""

from fractions import Fraction

import numpy as np
import pytest

from verax.numerics.formats import numpy_dtype
from verax.numerics.reductions import BLOCK, SUMS, identity, reduce

F = np.float32


def rounded(exact: Fraction) -> np.float32:
    """To nearest, ties to even."""
    near = F(float(exact))
    found = (near, np.nextafter(near, F(-np.inf)), np.nextafter(near, F(np.inf)))
    return min(found, key=lambda f: (abs(Fraction(float(f)) - exact), f.view(np.uint32) % 2))


def block_by_the_book(values: np.ndarray, kind: str = "sum") -> np.float32:
    parts = [F(0)] * 32
    for k, v in enumerate(values):
        term = Fraction(float(v)) ** (2 if kind == "squares" else 1)
        parts[k % 32] = rounded(Fraction(float(parts[k % 32])) + term)
    for distance in (16, 8, 4, 2, 1):
        for j in range(distance):
            parts[j] = F(parts[j] + parts[j + distance])
    return parts[0]


def by_the_book(values: np.ndarray, kind: str = "sum") -> np.float32:
    """A total in float32, and beside it what each of its roundings lost."""
    total = lost = F(0)
    for start in range(0, len(values), 1024):
        block = block_by_the_book(values[start : start + 1024], kind)
        found = F(total + block)
        missing = Fraction(float(total)) + Fraction(float(block)) - Fraction(float(found))
        total, lost = found, F(lost + F(float(missing)))
    return F(total + lost)


@pytest.mark.parametrize("kind", ["sum", "squares"])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 31, 33, 100, 257, 1024, 1025, 3500])
def test_sum_follows_the_order_of_the_docstring(n: int, kind: str) -> None:
    x = (np.random.default_rng(n).normal(size=(2, n)) + 3).astype(F)
    assert reduce(x, [1], kind).tolist() == [by_the_book(row, kind) for row in x]


def test_a_long_sum_is_as_exact_as_its_blocks() -> None:
    """However long: the bound of a block, one rounding of the total, and nearly none besides."""
    rng = np.random.default_rng(5)
    for x in (40 + 0.1 * rng.standard_normal(700_000), rng.standard_normal(700_000)):
        x = x.astype(F)
        size, exact = np.abs(x).astype(np.float64).sum(), x.astype(np.float64).sum()
        error = abs(float(reduce(x, None)) - exact)
        of_blocks = 37 * 2.0**-24 * size / np.sqrt(x.size / BLOCK)
        assert error <= 2.0**-24 * abs(exact) + of_blocks
        at_once = 0.1 * 2.0**-24 * size
        assert error <= max(at_once, 1.01 * 2.0**-24 * abs(exact))


@pytest.mark.parametrize("kind", ["sum", "squares"])
def test_long_sums_of_numbers_that_are_none(kind: str) -> None:
    """An infinity stays one, though the two-sum of it is no number; so does what overflows."""
    x = np.ones((6, 3 * BLOCK + 7), F)
    x[0, 5], x[1, 2 * BLOCK] = np.inf, np.nan
    x[2, [3, 1500]] = np.inf, -np.inf
    x[3], x[4], x[5] = 2e38, -0.0, 0.0
    got = reduce(x, [1], kind)
    assert got[0] == got[3] == np.inf and np.isnan(got[1])
    assert got[2] == np.inf if kind == "squares" else np.isnan(got[2])
    assert got[4:].tolist() == [0, 0] and not np.signbit(got[4:]).any()


def test_several_axes_are_flattened_in_row_major_order() -> None:
    x = np.random.default_rng(1).normal(size=(2, 5, 3, 7)).astype(F)
    got = reduce(x, [3, 1], keepdims=True)
    assert got.shape == (2, 1, 3, 1)
    for i in range(2):
        for j in range(3):
            assert got[i, 0, j, 0] == by_the_book(x[i, :, j, :].ravel())


def test_the_sum_is_within_a_few_roundings_of_the_exact_one() -> None:
    x = np.random.default_rng(2).normal(size=1000).astype(F)
    exact = sum((Fraction(float(v)) for v in x), Fraction(0))
    depth = 1000 // SUMS + 1 + 5
    bound = depth * 2.0**-24 * float(np.abs(x).astype(np.float64).sum())
    assert abs(float(reduce(x, None)) - float(exact)) <= bound


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_let_nan_win_and_order_zeros(kind: str) -> None:
    x = np.array([[1, np.nan, 2], [0.0, -0.0, 0.0], [-0.0, -0.0, -0.0]], F)
    got = reduce(x, [1], kind)
    assert np.isnan(got[0])
    assert np.signbit(got[1:]).tolist() == [kind == "min", True]
    assert reduce(np.zeros((2, 0), F), [1], kind).tolist() == [identity(kind, "float32")] * 2


def test_integers_and_short_floats() -> None:
    x = np.arange(-20, 40, dtype=np.int8).reshape(3, 20)
    np.testing.assert_array_equal(reduce(x, [1]), x.sum(1, dtype=np.int8))
    np.testing.assert_array_equal(reduce(x, [0], "max"), x.max(0))
    np.testing.assert_array_equal(reduce(x, [1], "prod"), x.prod(1, dtype=np.int8))
    for dtype in ("float16", "bfloat16"):
        y = np.linspace(0, 1, 300).astype(numpy_dtype(dtype))
        got = reduce(y, None)
        assert got.dtype == y.dtype and got == reduce(y.astype(F), None).astype(y.dtype)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="median"):
        reduce(np.zeros(3, F), None, "median")
