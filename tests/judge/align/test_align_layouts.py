"""One network with channels last and first: every arrangement of the input is tried, also where the
axes that change places have size 1 and no number moves."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.align.inputs import layouts
from verax.judge.align.networks import align
from verax.ops.movement.reshaping import Flatten, Transpose
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv
from verax.records.alignment import Relation


def tail(b: Builder, h: str, w: np.ndarray, d: np.ndarray) -> Graph:
    h = b.add(Relu(), [b.add(Conv(), [h, b.constant(w)])])
    return b.graph([b.add(MatMul(), [b.add(Flatten(axis=1), [h]), b.constant(d)])])


def both(channels: int, height: int, width: int, scale: int) -> tuple[Graph, Graph]:
    """Channels last and 0..1; channels first and 0..scale."""
    random = np.random.default_rng(7)
    w = random.standard_normal((4, channels, 3, 3)).astype(np.float32)
    d = random.standard_normal((4 * (height - 2) * (width - 2), 5)).astype(np.float32) / 20
    first, second = Builder("last"), Builder("first")
    x = first.input("x", TensorType.parse(f"float32[1, {height}, {width}, {channels}]"))
    x = first.add(Transpose(perm=(0, 3, 1, 2)), [x])
    y = second.input("image", TensorType.parse(f"float32[1, {channels}, {height}, {width}]"))
    y = second.add(Mul(), [y, second.constant(np.float32(1 / scale))])
    return tail(first, x, w, d), tail(second, y, w, d)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("scale", [1, 255])
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 12, 12), (3, 12, 12), (1, 12, 10)])
def test_channels_last_and_first_are_the_same(
    channels: int, height: int, width: int, scale: int, seed: int
) -> None:
    pair = both(channels, height, width, scale)
    for first, second in (pair, pair[::-1]):
        found = align(first, second, seed=seed)
        assert found.relation is Relation.same, found.reasons


def test_a_square_image_of_one_channel_may_still_be_turned() -> None:
    """The second reads columns as rows."""
    first, _ = both(1, 12, 12, 1)
    b = Builder("turned")
    x = b.input("image", TensorType.parse("float32[1, 1, 12, 12]"))
    x = b.add(Transpose(perm=(0, 1, 3, 2)), [x])
    constants = list(first.constants.values())
    found = align(first, tail(b, x, *constants[-2:]))
    assert found.relation is Relation.same
    assert found.inputs[0].axes == (0, 3, 2, 1)


def test_reading_one_layout_as_the_other_without_moving_a_number_comes_last() -> None:
    found = layouts((1, 8, 6, 3), TensorType.parse("float32[1, 3, 8, 6]"))
    assert [a.axes for a in found] == [(0, 3, 1, 2), ()]
    found = layouts((1, 12, 12, 1), TensorType.parse("float32[1, 1, 12, 12]"))
    assert [a.axes for a in found] == [(), (0, 3, 2, 1)]
