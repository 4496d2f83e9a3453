"""Inputs that hide mistakes are told of: constant, repeated, symmetric or mirrored arrays."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.inputs import untelling
from verax.ops.pointwise.activation import Relu
from verax.runners.network import NetworkRunner

FREE = np.random.default_rng(97).standard_normal((2, 3, 5, 5)).astype(np.float32)
CASES = {
    "is 0.5 everywhere": np.full((2, 3, 5, 5), np.float32(0.5)),
    "same at every place of axis 0": np.repeat(FREE[:1], 2, axis=0),
    "symmetric in axes 2 and 3": FREE + FREE.swapaxes(2, 3),
    "backwards along axis 1": FREE + np.flip(FREE, 1),
}


@pytest.mark.parametrize("words", CASES)
def test_what_an_input_cannot_tell_is_a_note_of_the_verdict(words: str) -> None:
    b = Builder("relu")
    x = b.input("x", TensorType.parse("float32[2, 3, 5, 5]"))
    graph = b.graph([b.add(Relu(), [x], ["y"], "relu")])
    runner = NetworkRunner(graph, "same")
    (note,) = check(graph, runner, {"x": CASES[words]}).notes
    assert "input 'x'" in note and words in note and "would not show" in note
    assert not check(graph, runner, {"x": FREE}).notes and not check(graph, runner).notes


def test_whole_numbers_and_single_ones_are_not_told_of() -> None:
    assert untelling({"mask": np.ones((2, 7), np.int64), "rate": np.float32([16000])}) == []
