"""Two bidirectional LSTMs in a tagger of 18 nodes, judged by its scores: the cause is named."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.movement.reshaping import Reshape, Transpose
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.recurrent.recurrent import LSTM
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import LogSoftmax
from verax.records.verdict import Kind
from verax.runners.network import NetworkRunner

TIME, BATCH, WIDTH, HIDDEN = 4, 2, 7, 3


def tagger(wrong: str = "") -> Graph:
    """Sequences [2, 4, 7] to scores of 5 tags; wrong: what is wrong in the second LSTM."""
    r, b = np.random.default_rng(61), Builder("tagger")

    def weights(*shape: int) -> np.ndarray:
        return (r.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def dense(h: str, m: int, n: int, name: str) -> str:
        h = b.add(MatMul(), [h, b.constant(weights(m, n))], [f"m{name}"], f"product{name}")
        h = b.add(Add(), [h, b.constant(weights(n))], [f"a{name}"], f"bias{name}")
        return b.add(Relu(), [h], [f"r{name}"], f"relu{name}")

    h = b.input("x", TensorType.parse(f"float32[{BATCH}, {TIME}, {WIDTH}]"))
    h, width = dense(h, WIDTH, 12, "0"), 12
    h = b.add(Transpose(perm=(1, 0, 2)), [h], ["turned"], "turn")
    for i in range(2):
        w, u = weights(2, 4 * HIDDEN, width), weights(2, 4 * HIDDEN, HIDDEN)
        op = LSTM(direction="bidirectional")
        if wrong == "direction" and i:
            w, u = w[::-1].copy(), u[::-1].copy()
        if wrong == "gates" and i:
            order = np.concatenate([np.arange(g * HIDDEN, (g + 1) * HIDDEN) for g in (0, 2, 3, 1)])
            w, u = w[:, order], u[:, order]
        outputs = [f"y{i}", f"last{i}", f"cell{i}"]
        h = b.add_all(op, [h, b.constant(w), b.constant(u)], outputs, f"lstm{i}")[0]
        h = b.add(Transpose(perm=(0, 2, 1, 3)), [h], [f"t{i}"], f"turn{i}")
        shape = b.constant(np.array([TIME, BATCH, 2 * HIDDEN]))
        h, width = b.add(Reshape(), [h, shape], [f"joined{i}"], f"join{i}"), 2 * HIDDEN
    h = b.add(Transpose(perm=(1, 0, 2)), [h], ["back"], "back")
    h = dense(dense(h, width, 11, "1"), 11, 5, "2")
    return b.graph([b.add(LogSoftmax(axis=-1), [h], ["scores"], "scores")])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("direction", "weights of the directions exchanged"),
        pytest.param("gates", "gates", marks=pytest.mark.slow),
    ],
)
def test_what_is_wrong_in_one_of_two_lstms_is_named(wrong: str, named: str) -> None:
    graph = tagger()
    assert len(graph.nodes) == 18
    found = check(graph, NetworkRunner(tagger(wrong), "tagger"), watch=False, seed=6)
    assert found.kind is Kind.mistake
    (blame,) = found.blame
    assert len(blame.region) == 18
    cause = blame.explanations[0]
    assert cause.hypothesis.startswith("lstm1: ") and named in cause.hypothesis, blame
