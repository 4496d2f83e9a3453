"""Winograd's transforms against exact rational arithmetic, and against their matrices."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from verax.numerics import winograd
from verax.numerics.arith_numpy import NumpyArith


class Exact:
    """The primitives that the transforms use, over the rationals."""

    add = staticmethod(lambda a, b: a + b)
    sub = staticmethod(lambda a, b: a - b)
    fma = staticmethod(lambda a, b, c: a * b + c)
    like = staticmethod(lambda value, x: Fraction(value))


def exact(matrix: Any) -> list[list[Fraction]]:
    """As fractions whose denominators are those of G: 1/6 in float64 is not 1/6."""
    return [[Fraction(v).limit_denominator(24) for v in row] for row in matrix]


def fractions(rng: np.random.Generator, *shape: int) -> Any:
    whole = rng.integers(-1000, 1000, shape)
    return np.vectorize(lambda n: Fraction(int(n), 97), otypes=[object])(whole)


@pytest.mark.parametrize("tile", winograd.TILES)
def test_a_tile_is_the_correlation_exactly(tile: int) -> None:
    rng = np.random.default_rng(2024 + tile)
    d, g = fractions(rng, tile + 2, tile + 2), fractions(rng, 3, 3)
    matrix = exact(winograd.FILTER[tile])

    def filters(column: Any) -> list[Any]:
        return [sum(a * b for a, b in zip(row, column, strict=True)) for row in matrix]

    u = winograd.both_ways(filters, g)
    v = winograd.both_ways(lambda x: winograd.input_transform(Exact(), tile, x), d)  # type: ignore[arg-type]
    products = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(u, v, strict=True)]
    y = winograd.both_ways(lambda x: winograd.output_transform(Exact(), tile, x), products)  # type: ignore[arg-type]
    for i in range(tile):
        for j in range(tile):
            assert y[i][j] == sum(d[i + a, j + b] * g[a, b] for a in range(3) for b in range(3))


@pytest.mark.parametrize("tile", winograd.TILES)
def test_the_matrices_are_those_of_the_transforms(tile: int) -> None:
    """The error model reads the matrices, kernels run the transforms."""
    size = tile + 2
    unit = [[Fraction(int(i == j)) for i in range(size)] for j in range(size)]
    for transform, matrix in (
        (winograd.input_transform, winograd.INPUT[tile]),
        (winograd.output_transform, winograd.OUTPUT[tile]),
    ):
        columns = [transform(Exact(), tile, column) for column in unit]  # type: ignore[arg-type]
        assert [list(row) for row in zip(*columns, strict=True)] == exact(matrix)


@pytest.mark.parametrize("tile", winograd.TILES)
def test_filters_are_rounded_once(tile: int) -> None:
    w = np.random.default_rng(5 + tile).standard_normal((2, 5, 3, 3)).astype(np.float32)
    found = winograd.transformed_filters(w, tile)
    matrix = exact(winograd.FILTER[tile])
    for o, c in np.ndindex(2, 5):
        g = [[Fraction(float(v)) for v in row] for row in w[o, c]]
        u = winograd.both_ways(
            lambda column: [sum(a * b for a, b in zip(row, column, strict=True)) for row in matrix],
            g,
        )
        for i, j in np.ndindex(tile + 2, tile + 2):
            ulp = np.spacing(np.float32(abs(float(u[i][j]))))
            away = abs(Fraction(float(found[i, j, o, c])) - u[i][j])
            assert away <= Fraction(float(ulp)) * 51 / 100
    assert np.abs(found).max() <= np.abs(w).max()


def test_a_float32_transform_rounds_as_numpy_does() -> None:
    """One case by hand: 4 d0 - 5 d2 + d4 by two multiply-adds, the inner one first."""
    d = [np.float32(v) for v in (0.1, 7.0, 0.3, -2.0, 1e-3, 5.0)]
    found = winograd.input_transform(NumpyArith(), 4, [np.asarray(v) for v in d])
    inner = np.float32(-5.0 * float(d[2]) + float(d[4]))
    assert found[0] == np.float32(4.0 * float(d[0]) + float(inner))
