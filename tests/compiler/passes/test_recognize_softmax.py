"""Softmax and LogSoftmax are found in their parts, near misses are not, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.passes import written_out
from tests.compiler.passes.written_out import Make, Net, drawn, kinds, of

from verax.compiler.passes import recognize_softmax as module
from verax.compiler.passes.patterns import NodePattern, Product, Reduce, Rule, replace_matches
from verax.compiler.passes.recognize_softmax import recognize_softmax
from verax.ir.graph import Graph
from verax.ir.operator import Operator
from verax.numerics.error_model import U
from verax.ops.sums.softmax import LogSoftmax, Softmax
from verax.records.trace import Trace
from verax.reference import promised


def below(n: Net, *axes: int, keepdims: bool = True) -> str:
    return n.add("Sub", n.x, n.add("ReduceMax", n.x, n.axes(*axes), keepdims=keepdims))


def softmax(n: Net, *axes: int) -> str:
    e = n.add("Exp", below(n, *axes))
    return n.add("Div", e, n.total(e, *axes))


def by_reciprocal(n: Net) -> str:
    e = n.add("Exp", below(n, 1))
    return n.add("Mul", n.add("Reciprocal", n.total(e, 1)), e)


def log_softmax(n: Net, *axes: int) -> str:
    b = below(n, *axes)
    return n.add("Sub", b, n.add("Log", n.total(n.add("Exp", b), *axes)))


FOUND: dict[str, tuple[Make, Operator]] = {
    "the last axis": (lambda n: softmax(n, -1), Softmax(axis=3)),
    "an inner axis": (lambda n: softmax(n, 1), Softmax(axis=1)),
    "the last two axes": (lambda n: softmax(n, 3, 2), Softmax(axis=2, flatten=True)),
    "by a reciprocal": (by_reciprocal, Softmax(axis=1)),
    "LogSoftmax": (lambda n: log_softmax(n, -2), LogSoftmax(axis=2)),
    "LogSoftmax of all": (lambda n: log_softmax(n, 0, 1, 2, 3), LogSoftmax(axis=0, flatten=True)),
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found_and_rounds(name: str) -> None:
    make, op = FOUND[name]
    graph = of(make)
    new, trace = recognize_softmax(graph)
    assert [n.op for n in new.nodes] == [op] and trace.rewrites == 1
    written_out.assert_rounding(graph, drawn(graph, 1), watch=(True, False))
    for seed, (size, shift) in enumerate(((0.01, 0), (5, -3), (60, 500))):
        written_out.assert_rounding(graph, drawn(graph, seed, size, shift))


def test_masked_places_stay_zero() -> None:
    graph = of(lambda n: softmax(n, -1))
    x = drawn(graph, 4)["x"]
    x[0, :, :, 2:] = -3.4e38
    x[1, :, :, 1] = -1e4
    written_out.assert_rounding(graph, {"x": x})


def unequal(n: Net) -> str:
    e = n.add("Exp", below(n, 3))
    return n.add("Div", n.add("Exp", below(n, 2)), n.total(e, 3))


def of_another(n: Net) -> str:
    other = n.add("Tanh", n.x)
    shifted = n.add("Sub", n.x, n.add("ReduceMax", other, n.axes(3)))
    e = n.add("Exp", shifted)
    return n.add("Div", e, n.total(e, 3))


def over(kind: str, axis: int = 3, extremum: str = "ReduceMax", keepdims: bool = True) -> Make:
    def make(n: Net) -> str:
        e = n.add("Exp", n.add("Sub", n.x, n.add(extremum, n.x, n.axes(3))))
        return n.add("Div", e, n.add(kind, e, n.axes(axis), keepdims=keepdims))

    return make


def plain(n: Net) -> str:
    e = n.add("Exp", n.x)
    return n.add("Div", e, n.total(e, -1))


def guarded(n: Net) -> str:
    e = n.add("Exp", below(n, 3))
    return n.add("Div", e, n.add("Add", n.total(e, 3), 1e-6))


MISSED: dict[str, Make] = {
    "without the maximum": plain,
    "the sum over another axis": over("ReduceSum", 2),
    "the maximum over another axis": unequal,
    "the maximum of another value": of_another,
    "the minimum": over("ReduceSum", extremum="ReduceMin"),
    "over the mean": over("ReduceMean"),
    "over the largest": over("ReduceMax"),
    "two axes with a gap": lambda n: softmax(n, 1, 3),
    "a guard in the sum": guarded,
    "operands of Sub swapped": lambda n: n.add("Exp", n.add("Neg", below(n, 3))),
    "the log of the mean": lambda n: n.add("Sub", below(n, 3), n.add(
        "Log", n.mean(n.add("Exp", below(n, 3)), 3))),
    "base 2": lambda n: n.add("Div", n.add("Pow", 2.0, below(n, 3)), n.total(
        n.add("Pow", 2.0, below(n, 3)), 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    graph = of(MISSED[name])
    new, trace = recognize_softmax(graph)
    assert trace.rewrites == 0 and kinds(new) == kinds(graph)


def test_reductions_without_their_axes_are_left_alone() -> None:
    def make(n: Net) -> str:
        e = n.add("Exp", below(n, 1, keepdims=False))
        return n.add("Div", e, n.total(e, 1, keepdims=False))

    assert recognize_softmax(of(make, (5, 5)))[1].rewrites == 0


def test_why_the_form_without_the_maximum_is_left_alone() -> None:
    """exp(x) is right within a few units of roundoff; x - max is rounded in units of the larger of
    the two, and exp makes that a relative error of every small probability."""
    graph = of(plain, (2, 3, 7, 50))
    inputs = drawn(graph, 3, 5)
    inputs["x"][..., 7] = 63.7
    e = np.exp(inputs["x"].astype(np.float64))
    exact = e / e.sum(-1, keepdims=True)
    parts = promised(graph, inputs)[graph.outputs[0]]
    whole = promised(of(lambda n: n.add("Softmax", n.x), (2, 3, 7, 50)), inputs)["softmax"]
    assert np.abs(parts / exact - 1).max() < 8 * U
    assert np.sqrt(np.mean((whole / exact - 1) ** 2)) > 8 * U


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_left_alone(dtype: str) -> None:
    assert recognize_softmax(of(lambda n: softmax(n, 1), dtype=dtype))[1].rewrites == 0


def test_what_is_read_elsewhere_keeps_its_parts() -> None:
    n = Net()
    y = softmax(n, 2)
    for node in n.b.nodes[:-1]:
        assert recognize_softmax(n.b.graph([y, node.outputs[0]]))[1].rewrites == 0


def of_any_axis(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """The sum over whatever axis."""
    e = NodePattern("Exp", module.BELOW)
    pattern = Product(e, module.over(Reduce("ReduceSum", e, "other")))
    rules = [Rule(pattern, lambda graph, match: module._along(graph, match, Softmax))]
    return replace_matches(graph, limit, "recognize_softmax", rules)


def mean_for_sum(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    e = NodePattern("Exp", module.BELOW)
    pattern = Product(e, module.over(Reduce("ReduceMean", e)))
    rules = [Rule(pattern, lambda graph, match: module._along(graph, match, Softmax))]
    return replace_matches(graph, limit, "recognize_softmax", rules)


BROKEN = {
    "the axis of the sum": (of_any_axis, MISSED["the sum over another axis"]),
    "mean for sum": (mean_for_sum, MISSED["over the mean"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, make = BROKEN[name]
    graph = of(make)
    written_out.assert_rounding(graph, drawn(graph, 9))
    written_out.plant(monkeypatch, "recognize_softmax", broken)
    written_out.assert_named(graph, drawn(graph, 9), "recognize_softmax")
