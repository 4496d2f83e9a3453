"""A node between two transpositions, as files with channels last have them, is judged by itself."""

from __future__ import annotations

import numpy as np

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.regions.network import survey
from verax.ops.movement.reshaping import Transpose
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate

X = np.random.default_rng(4).standard_normal((2, 9, 7, 5)).astype(np.float32)
W = np.random.default_rng(5).standard_normal((6, 5, 3, 2)).astype(np.float32)


def network() -> Graph:
    """x [2, 9, 7, 5] -> y [2, 7, 6, 6], channels last."""
    b = Builder("channels last")
    x = b.input("x", TensorType.parse("float32[2, 9, 7, 5]"))
    h = b.add(Transpose(perm=(0, 3, 1, 2)), [x], ["x.first"], "to")
    h = b.add(Conv(), [h, b.constant(W, "w")], ["y.first"], "conv")
    return b.graph([b.add(Transpose(perm=(0, 2, 3, 1)), [h], ["y"], "back")])


def honest() -> np.ndarray:
    return evaluate(network(), {"x": X}, work=np.float32)["y"]


def test_the_sharp_check_of_one_node_is_used() -> None:
    found = survey(network(), {"x": X}, {"y": honest()})
    (finding,) = found.findings
    assert (finding.kind, finding.value, finding.test) == (Kind.rounding, "y", "sigma")
    assert finding.region == ("to", "conv", "back")
    assert found.regions == 0


def test_a_mistake_is_shown_where_it_is() -> None:
    wrong = honest()
    wrong[1, 2, 3, 5] += 1
    (finding,) = survey(network(), {"x": X}, {"y": wrong}).findings
    assert finding.kind is Kind.mistake
    assert finding.worst[0].index == (1, 2, 3, 5)
    assert finding.worst[0].given == float(wrong[1, 2, 3, 5])
