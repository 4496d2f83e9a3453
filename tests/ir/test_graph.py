"""Graphs: building, text form, checker, rewriting, specialising."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.errors import GraphError
from verax.ir import checker
from verax.ir.graph import Builder, Graph, Node, specialize
from verax.ir.operator import REGISTRY
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import TensorType


def small_network() -> Graph:
    """Conv with SAME padding at stride 2 on a symbolic size, an addition, a value named oddly."""
    conv, relu, add = REGISTRY["Conv"], REGISTRY["Relu"], REGISTRY["Add"]
    rng = np.random.default_rng(1)
    b = Builder("small net")
    x = b.input("x", TensorType.parse("float32[n, 3, h, 7]"))
    w = b.constant(rng.standard_normal((5, 3, 3, 2)).astype(np.float32), "w")
    bias = b.constant(np.array([0.5, -0.0, np.inf, 1e-45, 3], np.float32), "bias")
    y = b.add(conv(strides=(2, 1), pads="SAME_UPPER"), [x, w, bias], ["/conv/out:0"], "conv 1")
    z = b.add(relu(), [y], ['a "quoted" name'], "relu")
    return b.graph([b.add(add(), [z, y], ["sum"], 'add "it"'), z])


def constants(graph: Graph) -> dict[str, np.ndarray]:
    return dict(graph.constants)


def test_the_text_form_reads_back_to_an_equal_graph() -> None:
    graph = small_network()
    again = parse_graph(str(graph), constants(graph))
    assert again == graph
    assert str(again) == str(graph)


def test_a_large_constant_must_be_supplied_and_be_the_same() -> None:
    graph = small_network()
    with pytest.raises(GraphError, match="not supplied"):
        parse_graph(str(graph))
    with pytest.raises(GraphError, match="another one"):
        parse_graph(str(graph), {"w": np.zeros((5, 3, 3, 2), np.float32)})


@pytest.mark.parametrize(
    "line", ["nonsense", "%a: float32[2] = NoSuch()(%b)", "input x", "const %c: int8[2] = [1", "%"]
)
def test_a_broken_line_is_named(line: str) -> None:
    with pytest.raises(GraphError, match="line 2"):
        parse_graph('graph "g"\n' + line)


def test_specialising_finishes_shape_inference() -> None:
    graph = specialize(small_network(), {"n": 2, "h": 10})
    assert graph.types["sum"].shape == (2, 5, 5, 7)
    assert graph.symbols() == frozenset()
    checker.check(graph)


def broken(**changes: object) -> Graph:
    return dataclasses.replace(small_network(), **changes)  # type: ignore[arg-type]


def test_the_checker_names_the_violated_constraint() -> None:
    graph = small_network()
    checker.check(graph)
    first, *rest = graph.nodes
    types = dict(graph.types)
    wrong = {**types, "sum": types["x"]}
    cases = {
        "C1": broken(nodes=(first, *graph.nodes)),
        "C2": broken(nodes=(*rest, first)),
        "C3": broken(types={k: v for k, v in types.items() if k != "sum"}),
        "C4": broken(nodes=(first, Node(rest[0].op, (), rest[0].outputs, "relu"), *rest[1:])),
        "C5": broken(types=wrong),
        "C6": broken(constants={**graph.constants, "w": np.zeros((5, 3, 3, 3), np.float32)}),
        "C7": broken(outputs=("sum", "nowhere")),
    }
    for number, bad in cases.items():
        with pytest.raises(GraphError, match=number):
            checker.check(bad)


def test_a_rewrite_says_where_each_value_went() -> None:
    graph = small_network()
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.op.kind == "Relu":
            source = rewriter.map(node.inputs[0])
            assert source is not None
            rewriter.replace(node, source, "drop Relu")
        else:
            rewriter.keep(node)
    after, trace = rewriter.finish()
    assert [n.op.kind for n in after.nodes] == ["Conv", "Add"]
    assert trace.values['a "quoted" name'] == "/conv/out:0"
    assert trace.rewrites == 1
    assert [n.op.kind for n in graph.nodes] == ["Conv", "Relu", "Add"]


def test_a_value_cannot_be_defined_twice_nor_read_before_it_is() -> None:
    b = Builder()
    b.input("x", TensorType.parse("float32[2]"))
    with pytest.raises(GraphError, match="defined twice"):
        b.input("x", TensorType.parse("float32[2]"))
    with pytest.raises(GraphError, match="not defined"):
        b.add(REGISTRY["Relu"](), ["y"])


def test_constants_of_a_graph_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        small_network().constants["w"][...] = 0
