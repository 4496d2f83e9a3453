"""Reductions keep the stated order, hold for every dtype, and are accurate."""

from fractions import Fraction

import numpy as np
import pytest

from verax.numerics.formats import numpy_dtype
from verax.numerics.reductions import LANES, identity, reduce

F = np.float32


def by_the_book(values: np.ndarray) -> np.float32:
    lanes = [F(0)] * LANES
    for k, v in enumerate(values):
        lanes[k % LANES] = F(lanes[k % LANES] + v)
    for distance in (8, 4, 2, 1):
        for j in range(distance):
            lanes[j] = F(lanes[j] + lanes[j + distance])
    return lanes[0]


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100, 257])
def test_sum_follows_the_order_of_the_docstring(n: int) -> None:
    x = np.random.default_rng(n).normal(size=(3, n)).astype(F)
    got = reduce(x, [1])
    assert got.tolist() == [by_the_book(row) for row in x]


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
    depth = 1000 // LANES + 1 + 4
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
