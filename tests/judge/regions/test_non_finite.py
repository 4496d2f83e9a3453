"""NaN and infinite numbers that rounding alone makes, and those that only a mistake does."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.arithmetic import Mul, Sqrt, Sub
from verax.ops.pointwise.transcendental import Log
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate, promised

LOGITS = np.array([[0, -130, 3], [1, 2, -200]], np.float32)
"""Far enough apart for a probability that float32 cannot hold."""


class Subject:
    """Answers that were worked out before; outputs only."""

    stored_inputs, capabilities, name = None, Capabilities(), "subject"

    def __init__(self, answer: np.ndarray) -> None:
        self.answer = answer

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return {"y": self.answer}


def log_of_softmax() -> Graph:
    b = Builder("log of softmax")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    p = b.add(Softmax(axis=1), [x], ["p"], "softmax")
    return b.graph([b.add(Log(), [p], ["y"], "log")])


def log_of_square(dtype: str) -> Graph:
    b = Builder("log of square")
    x = b.input("x", TensorType.parse(f"{dtype}[3, 40]"))
    square = b.add(Mul(), [x, x], ["s"], "square")
    return b.graph([b.add(Log(), [square], ["y"], "log")])


def log_of_difference() -> Graph:
    """The logarithm of a difference of nearly equal numbers, one of them a root squared."""
    b = Builder("log of difference")
    x = b.input("x", TensorType.parse("float32[5, 60]"))
    root = b.add(Sqrt(), [x], ["r"], "root")
    square = b.add(Mul(), [root, root], ["s"], "square")
    less = b.add(Mul(), [x, b.constant(np.float32(1 - 2**-23), "almost")], ["l"], "less")
    return b.graph([b.add(Log(), [b.add(Sub(), [square, less], ["d"], "apart")], ["y"], "log")])


def answered(graph: Graph, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """What honest arithmetic gives, with NaN or infinity where the meaning has an ordinary one."""
    given, meant = promised(graph, inputs)["y"], evaluate(graph, inputs)["y"]
    assert np.isfinite(meant).all()
    assert not np.isfinite(given.astype(np.float64)).all()
    return given


@pytest.mark.parametrize("case", ["softmax", "float16", "difference"])
def test_what_rounding_alone_makes_infinite_accuses_nobody(case: str) -> None:
    random = np.random.default_rng(83)
    if case == "softmax":
        graph, x = log_of_softmax(), LOGITS
    elif case == "float16":
        graph, x = log_of_square("float16"), random.standard_normal((3, 40)).astype(np.float16)
        x[1, 7] = 1e-4
    else:
        graph, x = log_of_difference(), random.uniform(0.5, 2, (5, 60)).astype(np.float32)
    verdict = check(graph, Subject(answered(graph, {"x": x})), {"x": x})
    assert verdict.kind is Kind.undecided
    (found,) = [f for f in verdict.nodes if f.value == "y"]
    assert found.test == "non-finite"
    assert "once every value has its declared type, from 'log' on" in found.reason


def test_infinity_in_another_place_is_a_mistake() -> None:
    graph = log_of_softmax()
    answer = answered(graph, {"x": LOGITS}).copy()
    answer[0, 2] = -np.inf
    assert check(graph, Subject(answer), {"x": LOGITS}, explain=False).kind is Kind.mistake


def test_infinity_where_honest_runs_are_ordinary_is_a_mistake() -> None:
    graph = log_of_square("float32")
    x = np.random.default_rng(84).uniform(0.5, 2, (3, 40)).astype(np.float32)
    answer = promised(graph, {"x": x})["y"].copy()
    answer[2, 3] = np.nan
    assert check(graph, Subject(answer), {"x": x}, explain=False).kind is Kind.mistake
