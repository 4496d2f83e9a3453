"""Weights are packed when they are laid out: into the room that was kept, and equal ones once."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.binary import emit, weight_layout
from verax.compiler.place.weights import PackedConstant
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv


def convolutions(second: float) -> Graph:
    """Two of 80 channels; the second's weights are the first's times `second`."""
    rng = np.random.default_rng(831)
    weights = rng.standard_normal((80, 80, 3, 3)).astype(np.float32)
    b = Builder("twice")
    value = b.input("x", TensorType.parse("float32[2, 80, 11, 13]"))
    op = Conv(pads=((1, 1), (1, 1)))
    for w in (weights, weights * np.float32(second)):
        value = b.add(op, [value, b.constant(w)])
    return b.graph([value])


def products(second: float) -> Graph:
    rng = np.random.default_rng(832)
    weights = rng.standard_normal((150, 150)).astype(np.float32)
    b = Builder("twice")
    value = b.input("x", TensorType.parse("float32[3, 7, 150]"))
    for w in (weights, weights * np.float32(second)):
        value = b.add(Relu(), [b.add(MatMul(), [value, b.constant(w)])])
    return b.graph([value])


@pytest.mark.parametrize("network", [convolutions, products])
@pytest.mark.parametrize("level", [1, 3])
def test_equal_weights_are_held_once(network, level):
    settings = Settings(opt_level=level, threads=1)
    once, twice = (compile(network(k), settings).plan.weight_bytes for k in (1.0, 2.0))
    assert twice > 1.9 * once


def test_room_of_another_size_is_noticed(monkeypatch):
    place = emit.place_weights

    def smaller(weights, used):
        for constant in weights.constants:
            constant.buffer.nbytes -= 64
        return place(weights, used)

    monkeypatch.setattr(emit, "place_weights", smaller)
    with pytest.raises(AssertionError, match="room"):
        compile(convolutions(2.0), Settings(opt_level=1, threads=1))


def test_the_largest_come_first_and_what_they_took_is_given_back(monkeypatch):
    """So the most memory is what all of it takes, and not that beside the copies of the largest."""
    b, rng = Builder("falling"), np.random.default_rng(833)
    value = b.input("x", TensorType.parse("float32[3, 40]"))
    rows = 40
    for columns in (70, 3000, 900, 2000, 30):  # 11 KB, 840 KB, 11 MB, 7 MB, 240 KB
        w = rng.standard_normal((rows, columns)).astype(np.float32)
        value, rows = b.add(MatMul(), [value, b.constant(w)]), columns
    sizes, given = [], []
    write = PackedConstant.write

    def noted(constant, room):
        if constant.is_block:
            sizes.append(constant.buffer.nbytes)
        write(constant, room)

    monkeypatch.setattr(PackedConstant, "write", noted)
    monkeypatch.setattr(weight_layout, "give_back", lambda: given.append(len(sizes)))
    compile(b.graph([value]), Settings(opt_level=1, threads=1))
    assert len(sizes) == 4 and sizes == sorted(sizes, reverse=True)
    assert given == [2]  # behind 11 and 7 MB: less is not worth it
