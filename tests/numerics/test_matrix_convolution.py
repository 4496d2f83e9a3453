"""A convolution's bits tell its route, the order of its products and where its bias went."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from verax.numerics.matrix_units.convolution import (
    INSIDE,
    ORDERS,
    OUTSIDE,
    Order,
    candidate_orders,
    patches,
    reproduces_convolution,
)
from verax.numerics.matrix_units.routes import ADDED, FIRST, ROUNDED, ROUTES, Route, predicted

BLOCKS = {o.block: o for o in ORDERS if o.block not in (None, 1)}
STRIDES, PADS, DILATIONS = (2, 1), (1, 0, 2, 1), (1, 2)


def data(channels: int, n_out: int, groups: int, dtype: Any, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, channels * groups, 7, 9)).astype(dtype)
    w = rng.standard_normal((n_out, channels, 3, 2)).astype(dtype)
    return x, w, rng.standard_normal(n_out).astype(dtype)


def position_by_position(
    x: np.ndarray, w: np.ndarray, b: np.ndarray, groups: int, route: Route, order: Order, dtype: Any
) -> np.ndarray:
    """The convolution as products of one patch at a time, written without `patches`."""
    (top, left, bottom, right), (dy, dx) = PADS, DILATIONS
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height = (padded.shape[2] - dy * 2 - 1) // STRIDES[0] + 1
    width = (padded.shape[3] - dx - 1) // STRIDES[1] + 1
    n_out, channels = w.shape[:2]
    y = np.empty((len(x), n_out, height, width), dtype)
    for n, g, i, j in np.ndindex(len(x), groups, height, width):
        outputs = slice(g * n_out // groups, (g + 1) * n_out // groups)
        inputs = slice(g * channels, (g + 1) * channels)
        at = i * STRIDES[0], j * STRIDES[1]
        patch = padded[n, inputs, at[0] : at[0] + 2 * dy + 1 : dy, at[1] : at[1] + dx + 1 : dx]
        row = order.arranged(patch.reshape(1, channels, 6))
        columns = order.arranged(w[outputs].reshape(-1, channels, 6)).T
        start = b[None, outputs].astype(np.float32)
        if route.epilogue == FIRST:
            y[n, outputs, i, j] = predicted(route, row, columns, start, dtype)[0]
        else:
            total = predicted(route, row, columns).astype(np.float32)
            total = total.astype(dtype) if route.epilogue == ROUNDED else total
            y[n, outputs, i, j] = (total.astype(np.float32) + start).astype(dtype)[0]
    return y


def test_orders_place_every_product_once() -> None:
    x = np.arange(2 * 6 * 3).reshape(2, 6, 3)
    np.testing.assert_array_equal(OUTSIDE.arranged(x), x.reshape(2, 18))
    np.testing.assert_array_equal(INSIDE.arranged(x)[1, :6], x[1, :, 0])
    blocked = BLOCKS[4].arranged(x)  # channels 0 to 3 with all positions, then 4, 5 and two zeros
    assert blocked.shape == (2, 24)
    np.testing.assert_array_equal(blocked[0, 4:8], x[0, :4, 1])
    np.testing.assert_array_equal(blocked[0, 12:16], [x[0, 4, 0], x[0, 5, 0], 0, 0])
    for order in ORDERS:
        kept = order.arranged(x + 1)
        assert sorted(kept[kept > 0]) == list(range(1, 37))


def test_patches_are_what_the_kernel_sees() -> None:
    x, w, _ = data(5, 3, 1, np.int32, 1)
    x, w = x + np.arange(9, dtype=np.int32), w + np.arange(2, dtype=np.int32) + 1
    seen = patches(x, (3, 2), STRIDES, PADS, DILATIONS)
    found = np.moveaxis(np.tensordot(seen, w, ((3, 4, 5), (1, 2, 3))), -1, 1)
    exact = Route("of a test", None)
    expected = position_by_position(x, w, np.zeros(3), 1, exact, OUTSIDE, np.float32)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("route", "order", "channels", "groups", "epilogue"),
    [
        ("cuBLAS, TF32 allowed", BLOCKS[32], 40, 1, ADDED),
        ("JAX, default", INSIDE, 12, 2, ADDED),
        ("cuBLAS, float32", OUTSIDE, 10, 1, ADDED),
        ("cuBLAS, float32", OUTSIDE, 1, 4, FIRST),
        ("Triton, tf32", BLOCKS[4], 3, 1, ADDED),
    ],
)
def test_the_bits_of_a_convolution_tell_how_it_was_computed(
    route: str, order: Order, channels: int, groups: int, epilogue: str
) -> None:
    x, w, b = data(channels, 4 * groups, groups, np.float32, 2)
    x[:, 0, 0, 0] = 1 + 2.0**-11  # tells ties
    way = ROUTES[route].with_bias(epilogue)
    y = position_by_position(x, w, b, groups, way, order, np.float32)
    found = reproduces_convolution(
        y, x, w, strides=STRIDES, pads=PADS, dilations=DILATIONS, groups=groups, bias=b
    )
    assert (found.equal, found.of) == (y.size, y.size)
    assert found.route is not None and found.order is not None
    assert (found.route.arithmetic, found.route.epilogue) == (way.arithmetic, epilogue)
    assert (found.order.block, found.order.multiple) == (order.block, order.multiple)


def test_a_bias_may_be_added_to_rounded_sums() -> None:
    x, w, b = data(8, 6, 1, ml_dtypes.bfloat16, 3)
    way = ROUTES["cuBLAS, bf16"].with_bias(ROUNDED)
    y = position_by_position(x, w, b, 1, way, OUTSIDE, ml_dtypes.bfloat16)
    layout: dict[str, Any] = {"strides": STRIDES, "pads": PADS, "dilations": DILATIONS}
    found = reproduces_convolution(y, x, w, bias=b, **layout)
    assert found.route is not None and found.route.epilogue == ROUNDED and found.equal == y.size
    once = reproduces_convolution(y, x, w, bias=b, routes=[ROUTES["cuBLAS, bf16"]], **layout)
    assert once.route is None and once.equal < once.of == 64


def test_a_wrong_convolution_has_no_route() -> None:
    x, w, b = data(6, 5, 1, np.float32, 4)
    y = position_by_position(x, w, b, 1, ROUTES["Triton, ieee"], OUTSIDE, np.float32)
    layout: dict[str, Any] = {"strides": STRIDES, "dilations": DILATIONS, "bias": b}
    assert reproduces_convolution(y, x, w, pads=PADS, **layout).equal == y.size
    shifted = (0, 1, 3, 0)
    assert reproduces_convolution(y, x, w, pads=shifted, **layout).route is None


def test_orders_that_do_not_differ_are_tried_once() -> None:
    assert [o.name for o in candidate_orders(1, fills_groups=False)] == ["channels outside"]
    few = [o.name for o in candidate_orders(8)]
    assert few[:2] == ["channels outside", "channels inside"] and "blocks of 8 channels" not in few
    assert "blocks of 64 channels" not in few and "blocks of 32 channels" in list(
        o.name for o in candidate_orders(96)
    )
