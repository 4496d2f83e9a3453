"""Weights are packed when they are laid out: into the room that was kept, and equal ones once."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.settings import Settings
from verax.compiler.driver import compile
from verax.compiler.lower.image import emit
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
    room = emit._room_for_weights

    def smaller(lowering):
        for buffer, _ in lowering.weights:
            buffer.nbytes -= 64
        return room(lowering)

    monkeypatch.setattr(emit, "_room_for_weights", smaller)
    with pytest.raises(AssertionError, match="room"):
        compile(convolutions(2.0), Settings(opt_level=1, threads=1))
