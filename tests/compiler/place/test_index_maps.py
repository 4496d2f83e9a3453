"""Index maps of movement operators, found by asking them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.movement.index_maps import beginnings, strided_map
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType


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


@given(st.data())
def test_beginnings_and_steps_are_the_map(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    size = int(np.prod(shape))
    map_ = np.array(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)))
    map_ = map_.reshape(shape) * data.draw(st.sampled_from([0, 1, 7]))
    begins, steps = beginnings(map_)
    assert begins.ndim + len(steps) == map_.ndim
    found = begins.reshape(*begins.shape, *(1 for _ in steps))
    for axis, step in enumerate(steps, begins.ndim):
        along = [1] * map_.ndim
        along[axis] = map_.shape[axis]
        found = found + (np.arange(map_.shape[axis]) * step).reshape(along)
    np.testing.assert_array_equal(np.broadcast_to(found, map_.shape), map_)


def test_a_table_has_an_entry_for_what_moves_as_one() -> None:
    rows = POSITIONS[[1, 0, 1]][:, [3, 0, 2, 7]]
    begins, steps = beginnings(rows)
    assert begins.shape == (3, 4) and steps == (5, 1)
    begins, steps = beginnings(rows[..., ::-1])
    assert begins.shape == (3, 4) and steps == (5, -1)
    assert beginnings(rows[..., [0, 1, 3]])[0].shape == (3, 4, 3, 3)


@pytest.mark.parametrize("axes", [(1, 0), (0, 1), (0, 2), (2, 1), (3, 0)])
def test_slices_move_to_where_the_operator_says(axes: tuple[int, int]) -> None:
    batch, time = axes
    x = np.random.default_rng(5311).standard_normal((5, 6, 7, 19)).astype(np.float32)
    lengths = np.random.default_rng(batch).integers(0, x.shape[time] + 1, x.shape[batch])
    b = Builder("net")
    v = b.input("x", TensorType.of(x))
    op = REGISTRY["ReverseSequence"](batch_axis=batch, time_axis=time)
    b.add(op, [v, b.constant(lengths)], ["y"])
    exe = compile(b.graph(["y"]), Settings(threads=1))
    assert not exe.plan.on_reference
    wanted = np.moveaxis(x.copy(), (batch, time), (0, 1))
    for row, n in zip(wanted, lengths):
        row[:n] = row[:n][::-1].copy()
    np.testing.assert_array_equal(exe.run({"x": x})["y"], np.moveaxis(wanted, (0, 1), axes))
