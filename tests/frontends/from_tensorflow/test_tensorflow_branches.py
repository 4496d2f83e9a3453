"""Branches that a constant decides, as TensorFlow 1 left them in frozen graphs."""

from __future__ import annotations

import numpy as np
import pytest
from tf_graphs import constant, empty, node, placeholder

import verax
from verax.frontends.tensorflow import load_tensorflow

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def branched(choice: bool | None, negated: bool = False) -> bytes:
    """y = relu(x) where the choice is true, else x * 10, the 10 waiting for its side of the branch;
    what is left over on the other side is read by nobody."""
    graph = empty()
    placeholder(graph, "x", X.shape)
    if choice is None:
        placeholder(graph, "training", (), dtype=10)
    else:
        constant(graph, "training", np.array(choice))
    predicate = "training"
    if negated:
        node(graph, "no", "LogicalNot", "training")
        predicate = "no"
    node(graph, "c/Switch", "Switch", predicate, predicate, T=10)
    node(graph, "c/t", "Identity", "c/Switch:1", T=10)
    node(graph, "c/f", "Identity", "c/Switch", T=10)
    node(graph, "c/pred", "Identity", predicate, T=10)
    node(graph, "c/a", "Switch", "x", "c/pred", T=1)
    node(graph, "c/b", "Switch", "x", "c/pred", T=1)
    node(graph, "c/relu", "Relu", "c/a:1", T=1)
    constant(graph, "c/ten", np.array(10, np.float32))
    graph.node[-1].input.append("^c/f")
    node(graph, "c/mul", "Mul", "c/b", "c/ten", T=1)
    node(graph, "c/left_over", "Neg", "c/b", T=1)
    node(graph, "y/merge", "Merge", "c/mul", "c/relu", T=1).attr["N"].i = 2
    node(graph, "y", "Add", "y/merge", "x", T=1)
    return graph.SerializeToString()


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("choice", [False, True])
def test_a_constant_decides(choice: bool, negated: bool) -> None:
    model = load_tensorflow(branched(choice, negated))
    want = (np.maximum(X, 0) if choice != negated else X * 10) + X
    found = verax.reference(model, {"x": X})
    assert np.array_equal(found["y"], want)
    assert list(found) == (["y"] if choice != negated else ["c/left_over", "y"])


@pytest.mark.parametrize("choice", [False, True])
def test_a_choice_made_while_running(choice: bool) -> None:
    """What lies on one side alone and leads nowhere is not an output."""
    model = load_tensorflow(branched(None), shapes={"training": ()})
    feed = {"x": X, "training": np.array(choice)}
    want = (np.maximum(X, 0) if choice else X * 10) + X
    exe = verax.compile(model, opt_level=1, threads=1)
    for found in (verax.reference(model, feed), exe.run(feed)):
        assert list(found) == ["y"]
        np.testing.assert_allclose(found["y"], want, rtol=1e-6)
