"""Sums that runtimes add term after term: the errors correlate, and are rounding all the same."""

from __future__ import annotations

import numpy as np
import pytest

from verax.campaign.subjects import FaultyNumbers
from verax.ir.graph import Builder, Graph
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.orders_normalization import normalization_orders
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.normalization import GroupNormalization, InstanceNormalization
from verax.ops.sums.response_normalization import LRN
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate


def per_channel(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    return [rng.uniform(0.5, 1.5, count).astype(np.float32) for _ in range(2)]


CASES: dict[str, tuple[Operator, list[np.ndarray]]] = {
    "instance": (InstanceNormalization(epsilon=1e-3), per_channel(6)),
    "group": (GroupNormalization(num_groups=3), per_channel(6)),
    "layer": (LayerNormalization(axis=-1), per_channel(270)),
    "LRN": (LRN(size=3, alpha=0.4, beta=0.6, bias=2.0), []),
}


def network(op: Operator, parameters: list[np.ndarray], x: np.ndarray) -> Graph:
    """y = relu(op(x))."""
    b = Builder("one")
    names = [b.input("x", TensorType.of(x)), *(b.constant(p) for p in parameters)]
    return b.graph([b.add(Relu(), [b.add(op, names, ["y"], "norm")], ["out"], "relu")])


@pytest.mark.parametrize("name", CASES)
def test_own_runs_are_the_meaning(name: str) -> None:
    op, parameters = CASES[name]
    width = 270 if name == "layer" else 9
    x = np.random.default_rng(1).standard_normal((2, 6, 7, width)).astype(np.float32)
    expected = evaluate(network(op, parameters, x), {"x": x}, keep=["y"])["y"]
    (run,) = normalization_orders(op, [x, *parameters])
    assert run.dtype == np.float32
    assert np.abs(run - expected).max() < np.abs(expected).max() / 1e5


def sequential(op: Operator, parameters: list[np.ndarray]):
    """A subject that adds one element after the other."""
    return FaultyNumbers({"norm": lambda arrays, y: next(normalization_orders(op, arrays))})


def hostile(name: str) -> np.ndarray:
    """A picture in which every value occurs many times; for LRN, spikes."""
    rng = np.random.default_rng(0)
    if name == "LRN":
        x = rng.standard_normal((2, 6, 40, 45))
        return np.where(rng.random(x.shape) < 0.02, 3e3, x).astype(np.float32)
    small = rng.uniform(0.9, 1.1, (2, 6, 8, 9))
    return small.repeat(20, axis=2).repeat(30, axis=3).astype(np.float32)


@pytest.mark.checkered
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("watch", [True, False])
def test_a_subject_that_adds_in_sequence_is_not_accused(name: str, watch: bool) -> None:
    op, parameters = CASES[name]
    x = hostile(name)
    graph = network(op, parameters, x)
    verdict = check(graph, sequential(op, parameters), {"x": x}, watch=watch, explain=False)
    assert verdict.kind in (Kind.rounding, Kind.undecided)
    if watch:
        assert verdict.kind is Kind.rounding, verdict.reasons


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_on_such_data_is_still_one(name: str) -> None:
    op, parameters = CASES[name]
    x = hostile(name)
    graph = network(op, parameters, x)
    subject = FaultyNumbers({"norm": lambda arrays, y: y * np.float32(1.01)})
    assert check(graph, subject, {"x": x}, explain=False).kind is Kind.mistake
