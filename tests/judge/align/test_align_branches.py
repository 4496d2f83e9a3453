"""Branches that are written otherwise in the other file, and that the inputs at hand do not take.

What a branch reads stands in the order in which its nodes read it, so weights of two ways of
writing it cannot be paired by their places.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.records.alignment import Relation


def network(scaled: bool, weight: float = 1.5, swapped: bool = False) -> onnx.ModelProto:
    """y = a normalised product of x if its sum is more than 1000, else x, doubled. scaled: the
    branch has its square as x * x and its root as x ** 0.5, and reads the axes last. swapped: the
    condition is the other way round, and so are the branches."""
    rng = np.random.default_rng(71)
    w = rng.standard_normal((4, 4)).astype(np.float32)
    w[1, 2] = weight
    given = {
        "w": w,
        "power": np.float32(2.0),
        "epsilon": np.float32(1e-5),
        "axes": np.array([-1], np.int64),
        "root": np.float32(0.5),
        "limit": np.float32(1000.0),
        "two": np.float32(2.0),
    }
    constants = [numpy_helper.from_array(np.asarray(a), k) for k, a in given.items()]
    if scaled:
        body = [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Mul", ["p", "p"], ["q"]),
            helper.make_node("ReduceMean", ["q", "axes"], ["m"]),
            helper.make_node("Add", ["m", "epsilon"], ["e"]),
            helper.make_node("Pow", ["e", "root"], ["r"]),
            helper.make_node("Div", ["p", "r"], ["t"]),
        ]
    else:
        body = [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Pow", ["p", "power"], ["q"]),
            helper.make_node("ReduceMean", ["q", "axes"], ["m"]),
            helper.make_node("Add", ["epsilon", "m"], ["e"]),
            helper.make_node("Sqrt", ["e"], ["r"]),
            helper.make_node("Div", ["p", "r"], ["t"]),
        ]
    shape = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 4]) for n in "txy"]
    out, x, y = shape
    other = helper.make_tensor_value_info("u", TensorProto.FLOAT, [3, 4])
    full = helper.make_graph(body, "full", [], [out])
    short = helper.make_graph([helper.make_node("Identity", ["x"], ["u"])], "short", [], [other])
    branches = (short, full) if swapped else (full, short)
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Less" if swapped else "GreaterOrEqual", ["s", "limit"], ["c"]),
        helper.make_node("If", ["c"], ["h"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Mul", ["h", "two"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_branch_written_otherwise_is_the_same(swapped: bool) -> None:
    found = verax.align(verax.load(network(False)), verax.load(network(True, swapped=swapped)))
    assert found.relation is Relation.same, found.reasons


@pytest.mark.parametrize("swapped", [False, True])
def test_a_branch_that_is_not_taken_and_gives_other_numbers_is_named(swapped: bool) -> None:
    second = network(True, weight=1.52, swapped=swapped)
    found = verax.align(verax.load(network(False)), verax.load(second))
    assert found.relation is Relation.different
    (place,) = found.divergences
    assert "the branch that these inputs do not take" in place.reason
    assert [layer.operator for layer in place.first] == ["If"]


def test_weights_of_branches_written_alike_are_compared_in_their_places() -> None:
    found = verax.align(verax.load(network(False)), verax.load(network(False, weight=1.52)))
    assert found.relation is Relation.different
    assert "1 of 16 elements of 'w'" in found.divergences[0].reason
