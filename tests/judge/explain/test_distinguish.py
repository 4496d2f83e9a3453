"""Explanations that coincide on one input are told apart by another one."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError
from verax.ir.graph import Builder, Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.explain.distinguish import Run, tell_apart
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import explain, predict, suspect_of
from verax.ops.pointwise.activation import Clip, Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.layer_normalization import RMSNormalization
from verax.ops.windows.pooling import AveragePool, MaxPool


def one_node(op: Operator, *arrays: np.ndarray) -> tuple[Node, tuple[TensorType, ...]]:
    b = Builder("one")
    y = b.add(op, [b.constant(np.array(a)) for a in arrays], name="suspect")
    return b.nodes[0], (b.types[y],)


def subject(name: str) -> Run:
    """A subject that makes the mistake called `name`, wherever it is asked."""

    def run(node: Node, inputs: Any) -> list[np.ndarray]:
        _, types = one_node(node.op, *inputs)
        empty = np.zeros(types[0].shape, np.float32)
        suspect = suspect_of(node, inputs, empty, types)
        assert suspect is not None
        (guilty,) = [h for h in hypotheses(suspect) if h.name == name]
        found = predict(suspect, guilty)
        assert found is not None
        return [found.value.astype(np.float32)]

    return run


def names(explanations: Any, refuted: bool) -> set[str]:
    return {e.hypothesis for e in explanations if e.refuted is refuted}


def positive(*shape: int) -> np.ndarray:
    return np.abs(np.random.default_rng(2).standard_normal(shape)).astype(np.float32)


def test_activations_that_agree_on_small_numbers_are_told_apart() -> None:
    x = (np.random.default_rng(1).standard_normal((2, 3, 5, 7))).astype(np.float32)
    node, types = one_node(Clip(), x, np.float32(-1), np.float32(1))
    inputs = [x, np.float32(-1), np.float32(1)]
    run = subject("computed as Relu")
    (given,) = run(node, inputs)
    before = {e.hypothesis for e in explain(node, inputs, given, types)}
    assert {"computed as Relu", "computed as Relu6"} <= before
    after, sentence = tell_apart(node, inputs, given, types, run)
    assert names(after, refuted=False) == {"computed as Relu"}
    assert "computed as Relu6" in names(after, refuted=True)
    assert "refuted by running the node on random numbers" in sentence


def test_names_of_one_meaning_are_listed_once() -> None:
    x = -positive(2, 3, 9, 8)
    op = AveragePool(kernel_shape=(3, 2), strides=(2, 2), pads=((1, 1), (0, 1)))
    node, types = one_node(op, x)
    run = subject("count_include_pad")
    (given,) = run(node, [x])
    after, sentence = tell_apart(node, [x], given, types, run)
    assert [e.hypothesis for e in after] == ["count_include_pad"] and sentence == ""


def test_rivals_that_rounding_hides_from_each_other_stay_together() -> None:
    random = np.random.default_rng(4)
    x = (random.standard_normal((2, 3, 16)) * 10).astype(np.float32)
    inputs = [x, positive(16)]
    node, types = one_node(RMSNormalization(epsilon=0.5), *inputs)
    run = subject("epsilon 0")
    (given,) = run(node, inputs)
    after, sentence = tell_apart(node, inputs, given, types, run)
    assert {"epsilon 1e-06", "epsilon 1e-07"} <= names(after, refuted=False)
    assert "by no more than rounding" in sentence


def test_without_a_subject_the_input_is_proposed() -> None:
    x = positive(2, 3, 4, 5)
    node, types = one_node(Clip(), x - 1, np.float32(-1), np.float32(1))
    inputs = [x - 1, np.float32(-1), np.float32(1)]
    (given,) = subject("computed as Relu")(node, inputs)
    after, sentence = tell_apart(node, inputs, given, types, None)
    assert len(after) > 1 and not names(after, refuted=True)
    assert "would tell them apart" in sentence


def test_a_subject_that_refuses_is_reported() -> None:
    def refuse(node: Node, inputs: Any) -> list[np.ndarray]:
        raise UnsupportedError("no such operator")

    x = positive(2, 3, 4, 5)
    inputs = [x - 1, np.float32(-1), np.float32(1)]
    node, types = one_node(Clip(), *inputs)
    (given,) = subject("computed as Relu")(node, inputs)
    after, sentence = tell_apart(node, inputs, given, types, refuse)
    assert len(after) > 1 and "no such operator" in sentence


def test_a_subject_that_refuses_one_input_is_asked_for_another() -> None:
    a = positive(2, 3, 4)
    node, types = one_node(Add(), a, a)
    asked = []

    def refuse_once(node: Node, inputs: Any) -> list[np.ndarray]:
        asked.append(inputs[0])
        if len(asked) == 1:
            raise UnsupportedError("not this one")
        return [inputs[1]]

    after, _ = tell_apart(node, [a, a], a, types, refuse_once)
    assert len(asked) == 2
    assert names(after, refuted=False) == {"first operand missing"}


def test_a_subject_that_is_right_alone_is_reported() -> None:
    x = positive(2, 3, 4, 5) - 1
    inputs = [x, np.float32(-1), np.float32(1)]
    node, types = one_node(Clip(), *inputs)
    (given,) = subject("computed as Relu")(node, inputs)
    after, sentence = tell_apart(
        node, inputs, given, types, lambda n, a: [np.clip(a[0], a[1], a[2])]
    )
    assert not names(after, refuted=True)
    assert "needs the network around it" in sentence


def test_a_coincidence_is_refuted() -> None:
    a, b = positive(2, 3, 4), positive(2, 3, 4)
    b[:] = a
    node, types = one_node(Add(), a, b)
    given = a * 0 + 7
    given[:] = a
    before = {e.hypothesis for e in explain(node, [a, b], given, types)}
    assert {"first operand missing", "second operand missing"} <= before
    after, _ = tell_apart(node, [a, b], given, types, lambda n, v: [v[1]])
    assert "first operand missing" in names(after, refuted=False)
    assert "second operand missing" in names(after, refuted=True)


def test_a_single_explanation_needs_no_second_input() -> None:
    x = positive(2, 3, 9, 8)
    op = MaxPool(kernel_shape=(3, 2), strides=(2, 2), pads=((1, 1), (0, 1)))
    node, types = one_node(op, -x)
    (given,) = subject("padding counts as zero")(node, [-x])
    after, sentence = tell_apart(node, [-x], given, types, None)
    assert [e.hypothesis for e in after] == ["padding counts as zero"] and sentence == ""


def test_nothing_is_said_of_what_nothing_explains() -> None:
    x = positive(2, 3, 4, 5)
    node, types = one_node(Relu(), x)
    given = x + np.random.default_rng(5).standard_normal(x.shape).astype(np.float32)
    assert tell_apart(node, [x], given, types, None) == ((), "")
