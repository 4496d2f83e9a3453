"""Winograd's filtering of integers is exact as far as `fits` says, and not far beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.numerics import winograd, winograd_integers
from verax.numerics.arith_numpy import NumpyArith


def direct(d: np.ndarray, w: np.ndarray, tile: int) -> np.ndarray:
    """Sums over channels of a tile: d [c, tile + 2, tile + 2], w [c, 3, 3], in int64."""
    y = np.zeros((tile, tile), np.int64)
    for i, j in np.ndindex(3, 3):
        seen = d[:, i : i + tile, j : j + tile].astype(np.int64)
        y += (seen * w[:, i, j, None, None].astype(np.int64)).sum(axis=0)
    return y


def filtered(d: np.ndarray, w: np.ndarray, tile: int) -> np.ndarray:
    """The same by the transforms: 16 bits are multiplied, all else wraps around."""
    m, size = NumpyArith(), range(tile + 2)
    u = winograd_integers.transformed_filters(w, tile).astype(np.int16)
    seen = [[d[:, i, j].astype(np.int16) for j in size] for i in size]
    with np.errstate(over="ignore"):
        v: Any = winograd.both_ways(lambda x: winograd_integers.input_transform(m, tile, x), seen)
        sums = [
            [np.sum(v[i][j].astype(np.int32) * u[i, j], dtype=np.int32) for j in size] for i in size
        ]
        y = winograd.both_ways(
            lambda x: winograd_integers.output_transform(m, tile, x),
            [[np.asarray(s) for s in row] for row in sums],
        )
        return np.array([[winograd_integers.unscaled(m, tile, n) for n in row] for row in y])


def extremes(low: int, high: int, tile: int, channels: int, seed: int) -> np.ndarray:
    """Data of the two ends alone."""
    rng = np.random.default_rng(seed)
    return rng.choice(np.array([low, high]), (channels, tile + 2, tile + 2))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(winograd.TILES), st.integers(1, 40), st.sampled_from([-255, -128, -3, 0]),
    st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_bytes_are_summed_exactly(
    tile: int, channels: int, low: int, ends: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    high = low + 255
    d = rng.integers(low, high, (channels, tile + 2, tile + 2), endpoint=True)
    w = rng.integers(-128, 127, (channels, 3, 3), endpoint=True)
    if ends:
        d = extremes(low, high, tile, channels, seed)
        w = np.where(w > 0, 127, -128)
    assert winograd_integers.fits(w[None], low, high, tile)
    np.testing.assert_array_equal(filtered(d, w, tile), direct(d, w, tile))


@pytest.mark.parametrize("tile", winograd.TILES)
def test_the_largest_outputs_that_fit_are_right_and_twice_as_large_ones_are_not(tile: int) -> None:
    """Where y times the power of two has 32 bits; sums before have long wrapped around."""
    per_channel = 9 * 255 * 127
    most = (2**31 - 1 >> winograd_integers.SHIFT[tile]) // per_channel
    for channels, right in ((most, True), (2 * most + 2, False)):
        w = np.full((channels, 3, 3), 127)
        d = np.full((channels, tile + 2, tile + 2), 255)
        assert winograd_integers.fits(w[None], 0, 255, tile) is right
        same = np.array_equal(filtered(d, w, tile), direct(d, w, tile))
        assert same is right
        down = -w
        assert winograd_integers.fits(down[None], 0, 255, tile) is right
        assert np.array_equal(filtered(d, down, tile), direct(d, down, tile)) is right


def test_numbers_of_more_than_16_bits_do_not_fit() -> None:
    w = np.zeros((5, 7, 3, 3), np.int64)
    w[2, 3, 1, 0] = 227
    assert winograd_integers.fits(w, -327, 0, 4) and winograd_integers.fits(w, 0, 8191, 2)
    assert not winograd_integers.fits(w, -328, 0, 4) and not winograd_integers.fits(w, 0, 8192, 2)
    w[2, 3, 1, 0] = -228
    assert not winograd_integers.fits(w, 0, 255, 4) and winograd_integers.fits(w, 0, 255, 2)


@pytest.mark.parametrize("tile", winograd.TILES)
def test_the_growth_is_that_of_the_worst_data(tile: int) -> None:
    """Signs chosen for the row that has the largest factors."""
    size = tile + 2
    row = max(winograd.INPUT[tile], key=lambda r: sum(map(abs, r)))
    signs = np.sign(row).astype(np.int64)
    d = 255 * np.outer(signs, signs)[None]
    seen = [[d[:, i, j].astype(np.int64) for j in range(size)] for i in range(size)]
    m: Any = NumpyArith()
    v = winograd.both_ways(lambda x: winograd_integers.input_transform(m, tile, x), seen)
    assert max(abs(int(n[0])) for r in v for n in r) == 255 * winograd_integers.INPUT_GROWTH[tile]
    w = np.ones((1, 3, 3), np.int64)
    u = winograd_integers.transformed_filters(w, tile)
    assert int(abs(u).max()) == winograd_integers.FILTER_GROWTH[tile]
