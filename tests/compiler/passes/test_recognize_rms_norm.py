"""RMSNormalization is found in its parts, near misses are not, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.passes import written_out
from tests.compiler.passes.test_recognize_layer_norm import as_onnx as layer_norm
from tests.compiler.passes.written_out import Make, Net, drawn, kinds, of

from verax.base.option_groups.settings import Settings
from verax.compiler.passes import recognize_rms_norm as module
from verax.compiler.passes.patterns import (
    NodePattern,
    NumberPattern,
    Product,
    Reduce,
    Rule,
    X,
    over_root,
    replace_matches,
    square,
)
from verax.compiler.passes.recognize_rms_norm import recognize_rms_norm
from verax.compiler.pipeline.levels import run_passes
from verax.ir.graph import Graph
from verax.ops.sums.layer_normalization import RMSNormalization
from verax.records.trace import Trace

WIDTH = written_out.SHAPE[-1]


def second(n: Net, *axes: int, exponent: object = 2.0) -> str:
    return n.mean(n.add("Pow", n.x, exponent), *axes)


def llama(n: Net, exponent: object = 2.0) -> str:
    inverse = n.add("Rsqrt", n.add("Add", second(n, exponent=exponent), 1e-6))
    return n.add("Mul", n.weights(WIDTH), n.add("Mul", n.x, inverse))


def as_onnx(n: Net) -> str:
    root = n.add("Sqrt", n.add("Add", n.mean(n.add("Mul", n.x, n.x)), 1e-5))
    return n.add("Mul", n.add("Div", n.x, root), n.weights(WIDTH))


def reciprocal(n: Net) -> str:
    root = n.add("Sqrt", n.add("Add", 1e-3, second(n, 2, 3)))
    return n.add("Mul", n.x, n.add("Div", 1.0, root))


FOUND: dict[str, Make] = {
    "as Llama": llama,
    "as ONNX": as_onnx,
    "one over the root, two axes": reciprocal,
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found_and_rounds(name: str) -> None:
    graph = of(FOUND[name])
    new, trace = recognize_rms_norm(graph)
    assert kinds(new) == "RMSNormalization" and trace.rewrites == 1
    written_out.assert_rounding(graph, drawn(graph, 1), watch=(True, False))
    for seed, (size, shift) in enumerate(((1e-3, 0), (1, 50), (3e4, -7))):
        written_out.assert_rounding(graph, drawn(graph, seed, size, shift))


def test_zeros_stay_zeros() -> None:
    graph = of(llama)
    x = drawn(graph, 2)["x"]
    x[1] = 0
    written_out.assert_rounding(graph, {"x": x})


def test_attributes_are_the_parts() -> None:
    (node,) = recognize_rms_norm(of(reciprocal))[0].nodes
    assert node.op == RMSNormalization(axis=2, epsilon=float(np.float32(1e-3)))


def over_root_of(change: Make) -> Make:
    return lambda n: n.add("Div", n.x, n.add("Sqrt", change(n)))


MISSED: dict[str, Make] = {
    "exponent 4": lambda n: llama(n, 4.0),
    "exponent 2.0000002": lambda n: llama(n, 2.0000002),
    "exponents for each": lambda n: llama(n, np.full(WIDTH, 2.0)),
    "epsilon outside the root": lambda n: n.add(
        "Div", n.x, n.add("Add", n.add("Sqrt", second(n)), 1e-5)),
    "an axis in front": over_root_of(lambda n: n.add("Add", second(n, 2), 1e-5)),
    "two axes with a gap": over_root_of(lambda n: n.add("Add", second(n, 1, 3), 1e-5)),
    "the sum of squares": over_root_of(
        lambda n: n.add("Add", n.total(n.add("Mul", n.x, n.x)), 1e-5)),
    "the sum over another number": over_root_of(lambda n: n.add(
        "Add", n.add("Div", n.total(n.add("Mul", n.x, n.x)), WIDTH - 1.0), 1e-5)),
    "the square of the mean": over_root_of(
        lambda n: n.add("Add", n.add("Pow", n.mean(n.x), 2.0), 1e-5)),
    "another value over it": lambda n: n.add("Div", n.add("Tanh", n.x), n.add(
        "Sqrt", n.add("Add", second(n), 1e-5))),
    "upside down": lambda n: n.add("Div", n.add("Sqrt", n.add("Add", second(n), 1e-5)), n.x),
    "a negative epsilon": over_root_of(lambda n: n.add("Add", second(n), -1e-5)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    graph = of(MISSED[name])
    new, trace = recognize_rms_norm(graph)
    assert trace.rewrites == 0 and kinds(new) == kinds(graph)


def test_a_mean_without_its_axis_is_left_alone() -> None:
    def make(n: Net) -> str:
        squares = n.mean(n.add("Mul", n.x, n.x), keepdims=False)
        return n.add("Div", n.x, n.add("Sqrt", n.add("Add", squares, 1e-5)))

    assert recognize_rms_norm(of(make, (5, 5)))[1].rewrites == 0


def test_a_layer_normalisation_is_one_of_the_deviation_where_that_pass_is_disabled() -> None:
    graph = of(layer_norm)
    assert kinds(run_passes(graph, Settings(2))[0]) == "LayerNormalization"
    alone, _ = run_passes(graph, Settings(2, disable=("recognize_layer_norm",)))
    assert kinds(alone) == "ReduceMean Sub RMSNormalization Add"


def test_what_is_read_elsewhere_keeps_its_parts() -> None:
    n = Net()
    y = llama(n)
    for node in n.b.nodes[:-1]:
        graph = n.b.graph([y, node.outputs[0]])
        if node.op.kind == "Mul":  # x times the reciprocal root, without the scale, is one
            assert kinds(recognize_rms_norm(graph)[0]) == "RMSNormalization Mul"
        else:
            assert recognize_rms_norm(graph)[1].rewrites == 0


def with_squares(squares: object) -> object:
    def broken(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
        inverse = over_root(NodePattern("Add", squares, NumberPattern("epsilon")))
        rules = [Rule(Product(X, inverse), module._rms_norm)]
        return replace_matches(graph, limit, "recognize_rms_norm", rules)

    return broken


BROKEN = {
    "the exponent": (
        Reduce("ReduceMean", NodePattern("Pow", X, NumberPattern("any"))), lambda n: llama(n, 3.0)),
    "sum for mean": (Reduce("ReduceSum", square(X)), MISSED["the sum of squares"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    squares, make = BROKEN[name]
    graph = of(make)
    inputs = {"x": np.abs(drawn(graph, 9)["x"])}
    written_out.assert_rounding(graph, inputs)
    written_out.plant(monkeypatch, "recognize_rms_norm", with_squares(squares))
    written_out.assert_named(graph, inputs, "recognize_rms_norm")
