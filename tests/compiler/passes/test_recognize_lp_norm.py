"""LpNormalization is found in its parts, near misses are not, and the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.passes import written_out
from tests.compiler.passes.written_out import Make, Net, drawn, kinds, of

from verax.compiler.passes import recognize_lp_norm as module
from verax.compiler.passes.patterns import (
    NodePattern,
    NumberPattern,
    Product,
    Rule,
    X,
    over,
    replace_matches,
)
from verax.compiler.passes.recognize_lp_norm import recognize_lp_norm
from verax.ir.graph import Graph
from verax.ops.sums.response_normalization import LpNormalization
from verax.records.trace import Trace


def length(n: Net, *axes: int, kind: str = "ReduceL2", keepdims: bool = True) -> str:
    return n.add(kind, n.x, n.axes(*(axes or (1,))), keepdims=keepdims)


def squares(n: Net, *axes: int) -> str:
    return n.total(n.add("Mul", n.x, n.x), *(axes or (1,)))


def torch(n: Net, kind: str = "ReduceL2", floor: object = 0.25) -> str:
    norm = n.add("Clip", length(n, kind=kind), floor)
    return n.add("Div", n.x, n.add("Expand", norm, n.axes(*n.shape)))


def tensorflow(n: Net, guard: float = 1 / 16) -> str:
    return n.add("Mul", n.x, n.add("Rsqrt", n.add("Max", squares(n, 3), guard)))


def added(n: Net, *axes: int) -> str:
    return n.add("Div", n.x, n.add("Sqrt", n.add("Add", squares(n, *axes), 0.125)))


FOUND: dict[str, tuple[Make, LpNormalization]] = {
    "as PyTorch": (torch, LpNormalization(axis=1, p=2, floor=0.25)),
    "as TensorFlow": (tensorflow, LpNormalization(axis=3, p=2, floor=0.25)),
    "added to the sum": (added, LpNormalization(axis=1, p=2, epsilon=0.125)),
    "an exponent of one half": (
        lambda n: n.add("Mul", n.x, n.add("Pow", n.add(
            "Add", n.add("ReduceSumSquare", n.x, n.axes(2)), 2.0), -0.5)),
        LpNormalization(axis=2, p=2, epsilon=2.0)),
    "the 1-norm": (lambda n: torch(n, "ReduceL1"), LpNormalization(axis=1, p=1, floor=0.25)),
    "the 1-norm by sums": (
        lambda n: n.add("Div", n.x, n.add("Max", 3.5, n.total(n.add("Abs", n.x), 0))),
        LpNormalization(axis=0, p=1, floor=3.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found_and_rounds(name: str) -> None:
    make, op = FOUND[name]
    graph = of(make)
    new, trace = recognize_lp_norm(graph)
    assert [n.op for n in new.nodes] == [op] and trace.rewrites == 1
    written_out.assert_rounding(graph, drawn(graph, 1), watch=(True, False))
    for seed, (size, shift) in enumerate(((0.15, 0), (0.6, 1), (300, 0))):
        written_out.assert_rounding(graph, drawn(graph, seed, size, shift))


@pytest.mark.parametrize("name", FOUND)
def test_zeros_stay_zeros(name: str) -> None:
    graph = of(FOUND[name][0])
    x = drawn(graph, 2, 0.5)["x"]
    x[1], x[:, :, 2:4], x[..., 0] = 0, 0, 0
    written_out.assert_rounding(graph, {"x": x})


@pytest.mark.parametrize("guard", [1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 0.3, 0.7])
def test_a_guard_of_the_squares_is_found_where_its_root_is_nearly_a_float(guard: float) -> None:
    """At the guard results are x over its root; what float32 makes of the root must not show."""
    graph = of(lambda n: tensorflow(n, guard))
    new, _ = recognize_lp_norm(graph)
    inputs = drawn(graph, 3, np.sqrt(guard) / 2.2)
    written_out.assert_rounding(graph, inputs)
    if kinds(new) == "LpNormalization":
        op = new.nodes[0].op
        assert isinstance(op, LpNormalization)
        exact = np.sqrt(np.float64(np.float32(guard)))
        assert abs(np.float32(op.floor) / exact - 1) <= 2.0**-26


MISSED: dict[str, Make] = {
    "without a guard": lambda n: n.add("Div", n.x, length(n)),
    "a guard of 0": lambda n: torch(n, floor=0.0),
    "a negative guard": lambda n: torch(n, floor=-1.0),
    "a guard that is computed": lambda n: torch(n, floor=n.add(
        "Tanh", n.add("ReduceMax", n.x, keepdims=False))),
    "epsilon outside the root": lambda n: n.add("Div", n.x, n.add("Add", length(n), 1e-6)),
    "a negative epsilon": lambda n: n.add(
        "Div", n.x, n.add("Sqrt", n.add("Add", squares(n), -0.125))),
    "two axes": lambda n: added(n, 1, 2),
    "the sum without a root": lambda n: n.add("Div", n.x, n.add("Add", squares(n), 0.125)),
    "at most": lambda n: n.add("Div", n.x, n.add("Min", length(n), 0.25)),
    "at most by Clip": lambda n: n.add("Div", n.x, n.add("Clip", length(n), None, 0.25)),
    "at least and at most": lambda n: n.add("Div", n.x, n.add("Clip", length(n), 0.25, 5.0)),
    "the sum of third powers": lambda n: n.add("Div", n.x, n.add("Sqrt", n.add(
        "Add", n.total(n.add("Pow", n.x, 3.0), 1), 100.0))),
    "another value over it": lambda n: n.add("Div", n.add("Tanh", n.x), n.add(
        "Max", length(n), 0.25)),
    "the largest": lambda n: n.add("Div", n.x, n.add("Max", length(n, kind="ReduceMax"), 0.25)),
    "the plain sum": lambda n: n.add("Div", n.x, n.add("Max", n.total(n.x, 1), 0.25)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    graph = of(MISSED[name])
    new, trace = recognize_lp_norm(graph)
    assert trace.rewrites == 0 and kinds(new) == kinds(graph)


def test_a_norm_without_its_axis_is_left_alone() -> None:
    def make(n: Net) -> str:
        return n.add("Div", n.x, n.add("Max", length(n, 1, keepdims=False), 0.25))

    assert recognize_lp_norm(of(make, (5, 5)))[1].rewrites == 0


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_left_alone(dtype: str) -> None:
    assert recognize_lp_norm(of(torch, dtype=dtype))[1].rewrites == 0


def test_a_norm_that_is_read_elsewhere_keeps_its_parts() -> None:
    n = Net()
    y = torch(n)
    for node in n.b.nodes[:-1]:
        assert recognize_lp_norm(n.b.graph([y, node.outputs[0]]))[1].rewrites == 0


def epsilon_anywhere(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    pattern = Product(X, over(NodePattern("Add", module.LENGTH, NumberPattern("epsilon"))))
    rules = [Rule(pattern, lambda graph, match: module._lp_norm(match, 2))]
    return replace_matches(graph, limit, "recognize_lp_norm", rules)


def guard_of_the_squares(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """A guard of the norm taken for one of its square, or the other way round."""

    def confused(graph: Graph, match: Any) -> Any:
        op, inputs = module._lp_norm(match, 2) or (None, ())
        return op and (LpNormalization(axis=op.axis, floor=op.floor**2), inputs)  # type: ignore[attr-defined]

    return replace_matches(graph, limit, "recognize_lp_norm", [Rule(module.EUCLIDEAN, confused)])


BROKEN = {
    "where epsilon stands": (
        epsilon_anywhere, lambda n: n.add("Div", n.x, n.add("Add", length(n), 0.01))),
    "what is guarded": (guard_of_the_squares, torch),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, make = BROKEN[name]
    graph = of(make)
    inputs = drawn(graph, 9, 0.1)
    written_out.assert_rounding(graph, inputs)
    written_out.plant(monkeypatch, "recognize_lp_norm", broken)
    written_out.assert_named(graph, inputs, "recognize_lp_norm")
