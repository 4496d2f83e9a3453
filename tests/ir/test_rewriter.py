"""What a pass may rely on when it adds nodes to the graph that it rewrites."""

from __future__ import annotations

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.rewrite import Rewriter
from verax.ir.types import TensorType


def chain() -> Graph:
    """Three nodes called as their outputs, and values called as fresh ones would be."""
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    for name in ("relu", "relu_1", "c", "c_1"):
        x = b.add(REGISTRY["Relu"](), [x], [name], name)
    return b.graph([x])


@pytest.mark.parametrize("first", [True, False])
def test_what_is_added_in_a_nodes_place_never_takes_a_name_twice(first: bool) -> None:
    """first: whether the pass asks for the names before it adds what is inside."""
    graph = chain()
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        names = rewriter.names(node) if first else []
        inner = rewriter.add(REGISTRY["Neg"](), [rewriter.map(node.inputs[0])], node.name)
        one = rewriter.constant(np.ones((), np.float32))
        names = names or rewriter.names(node)
        assert first == (names == list(node.outputs))
        made = rewriter.add(REGISTRY["Add"](), [inner, one], node.name, names)
        rewriter.replace(node, made, "test")
    found, _ = rewriter.finish()
    assert len(found.nodes) == 2 * len(graph.nodes)
    assert first == (found.outputs == graph.outputs)


def test_a_node_that_takes_the_place_of_one_called_as_its_output_keeps_that_name() -> None:
    graph = chain()
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        made = rewriter.add(REGISTRY["Abs"](), [rewriter.map(node.inputs[0])], node.name)
        rewriter.replace(node, made, "test")
    assert [n.outputs for n in rewriter.finish()[0].nodes] == [n.outputs for n in graph.nodes]


def test_a_pass_that_keeps_every_node_gives_the_same_graph() -> None:
    graph = chain()
    rewriter = Rewriter(graph)
    assert [rewriter.keep(node) for node in graph.nodes] == list(graph.nodes)
    found, trace = rewriter.finish()
    assert found is graph
    assert trace.values == {v: v for v in graph.types} and not trace.rewrites


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_pass_that_keeps_some_nodes_first_gives_what_one_that_built_them_gives(
    place: int,
) -> None:
    graph = chain()
    found = []
    for begun in (False, True):
        rewriter = Rewriter(graph)
        assert not begun or rewriter.new.types
        for i, node in enumerate(graph.nodes):
            if i != place:
                assert rewriter.keep(node).outputs == node.outputs
                continue
            made = rewriter.add(REGISTRY["Abs"](), [rewriter.map(node.inputs[0])], node.name)
            rewriter.replace(node, made, "test")
        found.append(rewriter.finish())
    (lazy, first), (eager, second) = found
    assert lazy == eager and first == second and lazy != graph


@pytest.mark.parametrize("last", [0, 2, 3])
def test_nodes_that_a_pass_leaves_out_are_left_out(last: int) -> None:
    """A pass that neither keeps nor replaces nodes has taken them into others."""
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    for name in "abcd":
        b.add(REGISTRY["Relu"](), [x], [name], name)
    graph = b.graph(["abcd"[last]])
    rewriter = Rewriter(graph)
    rewriter.keep(graph.nodes[last])
    found, trace = rewriter.finish()
    assert [n.outputs for n in found.nodes] == [graph.nodes[last].outputs]
    assert trace.values == {"x": "x", "abcd"[last]: "abcd"[last]}
