"""A few small numbers are not explained by whatever agrees with them by chance."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder, Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.explain.coincidence import needed_bits, telling_bits
from verax.judge.explain.hypotheses.base import Prior
from verax.judge.explain.node import explain, suspect_of
from verax.ops.pointwise.arithmetic import Mul, Sub
from verax.ops.pointwise.comparison import Equal
from verax.ops.pointwise.logic import And, BitShift
from verax.ops.sums.arg import ArgMax
from verax.ops.sums.reduction import ReduceSum

AXES = np.array([0, 1])


def node_of(op: Operator, *inputs: np.ndarray) -> tuple[Node, tuple[TensorType, ...]]:
    b = Builder("one")
    names = [b.input(f"x{i}", TensorType.of(a)) for i, a in enumerate(inputs[:1])]
    names += [b.constant(a, f"x{i}") for i, a in enumerate(inputs) if i]
    graph = b.graph([b.add(op, names, ["y"])])
    return graph.nodes[0], graph.output_types(graph.nodes[0])


SMALL: dict[str, tuple[Operator, tuple[np.ndarray, ...]]] = {
    "sum of small integers": (
        ReduceSum(keepdims=False), (np.array([[1, 2], [3, -4]], np.int32), AXES)),
    "sum of whole floats": (
        ReduceSum(keepdims=False), (np.array([[1, 2, 4], [3, 0, -5]], np.float32), AXES)),
    "a shift": (BitShift(direction="RIGHT"), (np.array([-4], np.int32), np.array([1], np.int32))),
    "a product": (Mul(), (np.array([3], np.int32), np.array([-2], np.int32))),
    "a difference of whole floats": (Sub(), (np.array([3], np.float32), np.array([5], np.float32))),
    "an index": (ArgMax(axis=1, keepdims=False), (np.array([[1, 5, 5, 2]], np.float32),)),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_no_wrong_small_number_gets_a_cause(name: str) -> None:
    op, inputs = SMALL[name]
    node, types = node_of(op, *inputs)
    for wrong in range(-8, 9):
        answer = np.full(types[0].shape, wrong, types[0].dtype.numpy)
        suspect = suspect_of(node, inputs, answer, types)
        assert suspect is not None
        if (suspect.expected == wrong).all():
            continue
        assert explain(node, inputs, answer, types) == ()


@pytest.mark.parametrize("op", [Equal(), And()], ids=str)
def test_no_wrong_pair_of_truths_gets_a_cause(op: Operator) -> None:
    inputs = (np.array([True, False]), np.array([True, True]))
    node, types = node_of(op, *inputs)
    for answer in ([False, False], [True, True], [False, True]):
        assert explain(node, inputs, np.array(answer), types) == ()


def test_many_truths_get_a_cause() -> None:
    random = np.random.default_rng(3)
    inputs = tuple(random.random((3, 5, 7)) < 0.5 for _ in range(2))
    node, types = node_of(And(), *inputs)
    (first, *_) = explain(node, inputs, inputs[0] | inputs[1], types)
    assert first.words == "Or was computed"


def test_what_is_rare_needs_more() -> None:
    assert [needed_bits(p) for p in Prior] == sorted({needed_bits(p) for p in Prior})


def test_an_answer_that_is_right_tells_nothing() -> None:
    x = np.array([[3.0, 1.5, 2.0]], np.float32)
    node, types = node_of(ReduceSum(), x, AXES)
    suspect = suspect_of(node, (x, AXES), np.array([[6.5]], np.float32), types)
    assert suspect is not None and telling_bits(suspect) == 0.0
