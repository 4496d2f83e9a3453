"""MediaPipe's operators: LiteRT's own transposed convolution gives the same as that with bias;
pools with positions and what puts elements back are held against loops over the windows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.from_tflite.resource_cases import (
    pool_options,
    pooled_with_positions,
    unpooled,
    upsampled,
)
from tests.frontends.from_tflite.tflite_peer import litert

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.tflite import load_tflite


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("kernel", "strides"), [((2, 2), (2, 2)), ((3, 2), (2, 1)), ((4, 5), (2, 3)), ((3, 3), (1, 2))]
)
def test_a_transposed_convolution_is_litert_s(
    kernel: tuple[int, int], strides: tuple[int, int], padding: str
) -> None:
    x = np.random.default_rng(65).standard_normal((2, 4, 6, 3)).astype(np.float32)
    right = litert(upsampled(kernel, strides, padding, own=False), {"x": x})["y"]
    found = load_tflite(upsampled(kernel, strides, padding, own=True))
    (made,) = verax.compile(found, threads=1).run({"x": x}).values()
    assert made.shape == right.shape
    np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-5)


def test_options_that_nobody_knows_are_refused() -> None:
    assert load_tflite(upsampled((2, 2), (2, 2), "SAME", own=True, more=bytes(8)))
    for more in (b"\1\0\0\0", b"\0"):
        with pytest.raises(UnsupportedError, match="custom_options"):
            load_tflite(upsampled((2, 2), (2, 2), "SAME", own=True, more=more))
    with pytest.raises(UnsupportedError, match="strides larger than the windows"):
        load_tflite(upsampled((2, 1), (2, 2), "SAME", own=True))


@pytest.mark.parametrize(
    ("padding", "strides", "window", "activation"),
    [
        (1, (2, 3), (3, 2), 0),
        (2, (2, 3), (3, 2), 1),
        (1, (2, 2), (2, 2), 3),
        (1, (1, 2), (4, 5), 2),
    ],
)
def test_a_pool_tells_where_it_found_the_largest(
    padding: int, strides: tuple[int, int], window: tuple[int, int], activation: int
) -> None:
    x = np.random.default_rng(66).integers(-9, 10, (2, 7, 8, 3)).astype(np.float32)  # with ties
    begins, counts = [], []
    for n, s, k in zip(x.shape[1:3], strides, window):
        counts.append(-(-n // s) if padding == 1 else (n - k + s) // s)
        begins.append(max(0, (counts[-1] - 1) * s + k - n) // 2)
    y = np.empty((2, *counts, 3), np.float32)
    at = np.empty_like(y)
    for b, i, j, ch in np.ndindex(*y.shape):
        best = -np.inf
        for u, v in np.ndindex(*window):
            row, column = i * strides[0] - begins[0] + u, j * strides[1] - begins[1] + v
            if 0 <= row < 7 and 0 <= column < 8 and x[b, row, column, ch] > best:
                best = x[b, row, column, ch]
                at[b, i, j, ch] = np.float32(u * window[1] + v) + np.float32(0.1)
        y[b, i, j, ch] = best
    low, high = {0: (-99, 99), 1: (0, 99), 2: (-1, 1), 3: (0, 6)}[activation]
    found = load_tflite(pooled_with_positions(padding, strides, window, activation))
    made = verax.compile(found, threads=1).run({"x0": x})
    assert np.array_equal(made["y0"], y.clip(low, high))
    assert np.array_equal(made["y1"], at)


def test_elements_are_put_back_where_they_were_found() -> None:
    rng = np.random.default_rng(67)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    at = rng.integers(0, 6, x.shape)
    y = np.zeros((2, 6, 12, 5), np.float32)
    for b, i, j, ch in np.ndindex(*x.shape):
        row, column = divmod(int(at[b, i, j, ch]), 3)
        y[b, 2 * i + row, 3 * j + column, ch] = x[b, i, j, ch]
    given = {"x0": x, "x1": at.astype(np.float32) + np.float32(0.1)}
    (made,) = verax.compile(load_tflite(unpooled()), threads=1).run(given).values()
    assert np.array_equal(made, y)


def test_pools_of_mediapipe_that_are_not_read_are_refused() -> None:
    plain = (1, (2, 3), (2, 3))
    for options in (
        pool_options(1, (1, 3), (2, 3)),  # windows overlap
        pool_options(0, (2, 3), (2, 3)),
        pool_options(1, (2, 3), (2, 3), 4),
        pool_options(*plain) + bytes(4),
        pool_options(*plain)[:-17],
    ):
        with pytest.raises(UnsupportedError, match="custom_options"):
            load_tflite(unpooled(options))
