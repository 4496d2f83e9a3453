"""What a pass may rely on when it adds nodes to the graph that it rewrites."""

from __future__ import annotations

import numpy as np

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


def test_what_is_added_in_a_nodes_place_takes_the_name_of_no_old_value() -> None:
    graph = chain()
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inner = rewriter.add(REGISTRY["Neg"](), [rewriter.map(node.inputs[0])], node.name)
        one = rewriter.constant(np.ones((), np.float32))
        assert not {inner, one} & graph.types.keys()
        names = rewriter.names(node)
        assert names == list(node.outputs)
        made = rewriter.add(REGISTRY["Add"](), [inner, one], node.name, names)
        rewriter.replace(node, made, "test")
    found, _ = rewriter.finish()
    assert found.outputs == graph.outputs
    assert len(found.nodes) == 2 * len(graph.nodes)
