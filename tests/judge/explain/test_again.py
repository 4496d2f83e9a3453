"""A node evaluated again gives what its meaning gives, whatever it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.decide.local import meaning
from verax.judge.explain.again import Again

X = np.random.default_rng(41).standard_normal((2, 5, 7)).astype(np.float32)
W = np.random.default_rng(42).standard_normal((7, 3)).astype(np.float32)


def again(kind: str, inputs: list[Any], output: str, **attributes: Any) -> tuple[Again, Any]:
    """A node ready to be evaluated again, and its meaning as a function of its inputs."""
    node = Node(REGISTRY[kind](**attributes), tuple("abcd"[: len(inputs)]), ("y",), "node")
    declared = [None if x is None else TensorType.of(x) for x in inputs]
    outputs = (TensorType.parse(output),)

    def expected(arrays: list[Any]) -> np.ndarray:
        return meaning(node, arrays, declared, outputs, errors=False).outputs[0]

    first = meaning(node, inputs, declared, outputs)
    return Again(node, inputs, declared, outputs, first), expected


def test_other_numbers_and_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    node, expected = again("MatMul", [X, W], "float32[2, 5, 3]")
    wide = X.astype(np.float64) * 1.5
    meant, others = expected([wide, W]), expected([X, -W])
    monkeypatch.setattr("verax.judge.explain.again.meaning", None)  # a call would fail
    for _ in range(2):
        assert np.array_equal(node([wide, W])[0], meant)
    assert np.array_equal(node([X, -W])[0], others)
    assert np.array_equal(node([wide, W])[0], meant)


def test_another_shape_is_looked_at_anew() -> None:
    node, expected = again("Relu", [X], "float32[2, 5, 7]")
    assert np.array_equal(node([X[:, 1:4]])[0], expected([X[:, 1:4]]))
    assert node([X[:, 1:4]])[0].shape == (2, 3, 7)


def test_integers_stay_what_they_are() -> None:
    indices = np.array([[3, 0], [4, 1], [2, 2]], np.int64)
    node, expected = again("Gather", [X, indices], "float32[2, 3, 2, 7]", axis=1)
    (y,) = node([X, indices])
    assert y.dtype == np.float64 and np.array_equal(y, expected([X, indices]))


def test_an_open_size_is_looked_at_each_time() -> None:
    node, expected = again("NonZero", [X], "int64[3, n]")
    few = np.where(X > 1, X, 0)
    assert np.array_equal(node([few])[0], expected([few]))
    assert node([few])[0].shape[1] < 70


def test_what_an_operator_refuses_has_its_place() -> None:
    indices = np.array([[3, 0], [4, 1], [2, 2]], np.int64)
    node, _ = again("Gather", [X, indices], "float32[2, 3, 2, 7]", axis=1)
    with pytest.raises(VeraxError) as refused:
        node([X, indices + 9])
    assert "node" in refused.value.place
