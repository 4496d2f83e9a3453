"""Index maps of movement operators, found by asking them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.compiler.lower.index_maps import strided_map


def apply(positions: np.ndarray, data: np.ndarray) -> np.ndarray | None:
    """Read `data` through the strided form of `positions`."""
    found = strided_map(positions)
    if found is None:
        return None
    at = np.full(found.dims, found.offset, np.int64)
    for axis, (n, stride) in enumerate(zip(found.dims, found.strides)):
        shape = [1] * len(found.dims)
        shape[axis] = n
        at = at + (np.arange(n) * stride).reshape(shape)
    return data.reshape(-1)[at].reshape(positions.shape)


POSITIONS = np.arange(2 * 8 * 3 * 5).reshape(2, 8, 3, 5)
MOVES = {
    "transpose": POSITIONS.transpose(0, 3, 1, 2),
    "reverse and stride": POSITIONS[:, ::-3, :, 1::2],
    "broadcast": np.broadcast_to(POSITIONS[:, :1], (2, 7, 3, 5)),
    "tile": np.tile(POSITIONS, (1, 3, 1, 2)),
    "depth to space": POSITIONS.reshape(2, 2, 2, 2, 3, 5)
    .transpose(0, 3, 4, 1, 5, 2)
    .reshape(2, 2, 6, 10),
    "one element": POSITIONS[1:, 2:3, :1, 4:],
}


@pytest.mark.parametrize("name", MOVES)
def test_a_strided_movement_is_recognised(name: str) -> None:
    data = np.random.default_rng(0).standard_normal(POSITIONS.size)
    moved = apply(MOVES[name], data)
    assert moved is not None
    assert np.array_equal(moved, data[MOVES[name]])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_what_is_called_strided_is(positions: list[int]) -> None:
    map_ = np.array(positions)
    data = np.arange(31) ** 2
    moved = apply(map_, data)
    assert moved is None or np.array_equal(moved, data[map_])


def test_an_irregular_map_is_not_called_strided() -> None:
    assert strided_map(np.array([0, 1, 2, 4, 7])) is None
    assert strided_map(np.pad(np.arange(1, 5), 1, mode="reflect")) is None
