"""Models as meanings of `verax.assert_correct`: loaded, as files, and what is judged by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind
from verax.testing.failures import BlindCheckError, IncorrectError


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


FIRST, SECOND, X = normal(1, 7, 11), normal(2, 11, 5), normal(3, 3, 7)


def network() -> Graph:
    builder = Builder("net")
    x = builder.input("x", TensorType.parse("float32[3, 7]"))
    hidden = builder.add(MatMul(), [x, builder.constant(FIRST)], ["hidden"])
    scores = builder.add(MatMul(), [builder.add(Relu(), [hidden]), builder.constant(SECOND)])
    return builder.graph([builder.add(Softmax(), [scores], ["y"])])


def by_hand(x: np.ndarray) -> np.ndarray:
    e = np.exp(np.maximum(x @ FIRST, 0) @ SECOND)
    return e / e.sum(-1, keepdims=True)


def test_what_computes_a_network_passes() -> None:
    for actual in (by_hand, by_hand(X), {"y": by_hand(X)}, "verax:O2", verax.compile(network())):
        verdict = verax.assert_correct(actual, network(), {"x": X})
        assert verdict.kind in (Kind.identical, Kind.rounding)
    assert verax.assert_correct("verax:O1", network(), None)


def test_what_does_not_is_refused_and_located() -> None:
    with pytest.raises(IncorrectError, match=r"batch 1|row 1"):
        verax.assert_correct(lambda x: by_hand(x) * [[1], [0], [1]], network(), X)
    values = {"hidden": 2 * (X @ FIRST), "y": by_hand(X)}
    with pytest.raises(IncorrectError) as caught:
        verax.assert_correct(values, network(), {"x": X})
    assert "node hidden (MatMul)" in str(caught.value)


def test_files_are_meanings_and_the_next_command_is_typed(tmp_path: Path) -> None:
    path = str(tmp_path / "net.onnx")
    Path(path).write_bytes(to_bytes(network()))
    assert verax.assert_correct("verax:O1", path, {"x": X})
    with pytest.raises(IncorrectError):
        verax.assert_correct(lambda x: by_hand(x) + np.float32(1e-3), path, {"x": X})
    with pytest.raises(VeraxError, match=r"no such|not exist|cannot"):
        verax.assert_correct("verax:O1", str(tmp_path / "lost.onnx"), {"x": X})


def test_inputs_of_zeros_are_blind() -> None:
    with pytest.raises(BlindCheckError, match="all zeros"):
        verax.assert_correct(by_hand, network(), {"x": 0 * X})


def test_what_is_declared_of_operators_alone_is_refused() -> None:
    for keywords in ({"split_k": 2}, {"accumulate": "float16"}):
        with pytest.raises(VeraxError, match="declared of one operator"):
            verax.assert_correct(by_hand, network(), X, **keywords)
