"""A model run in pieces gives what the whole gives, however its nodes are joined."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from verax.runners.onnx.onnx_pieces import JOINED, MOST, joints, nodes_at, run_in_pieces

Arrays = Mapping[str, np.ndarray]


def network() -> onnx.ModelProto:
    """Weights, a constant node, a computed shape, a node that nothing reads, two outputs."""
    five = numpy_helper.from_array(np.float32(5), "five")
    nodes = [
        helper.make_node("Constant", [], ["c"], "constant", value=five),
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("Shape", ["x"], ["sizes"], "sizes"),
        helper.make_node("Mul", ["h", "c"], ["m"], "scaled"),
        helper.make_node("Tanh", ["h"], ["dead"], "dead"),
        helper.make_node("Gather", ["sizes", "last"], ["n"], "count"),
        helper.make_node("Concat", ["n", "rest"], ["shape"], "shape", axis=0),
        helper.make_node("Reshape", ["m", "shape"], ["y"], "reshaped"),
    ]
    value = helper.make_tensor_value_info
    weights = np.random.default_rng(41).standard_normal((5, 4)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, [3, 5])],
        [value("y", TensorProto.FLOAT, None), value("h", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array([0]), "last"),
            numpy_helper.from_array(np.array([2, 2]), "rest"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Runtime:
    """ONNX's reference, which keeps what it was given."""

    def __init__(self) -> None:
        self.models: list[onnx.ModelProto] = []

    def __call__(self, model: onnx.ModelProto, inputs: Arrays) -> Arrays:
        self.models.append(model)
        found = ReferenceEvaluator(model).run(None, dict(inputs))
        return dict(zip([v.name for v in model.graph.output], found))


def test_every_way_to_join_the_nodes_gives_the_same() -> None:
    x = np.random.default_rng(42).standard_normal((3, 5)).astype(np.float32)
    whole = dict(zip(["y", "h"], ReferenceEvaluator(network()).run(None, {"x": x})))
    numbers = range(1, 7)
    for count in range(7):
        for joined in itertools.combinations(numbers, count):
            runtime = Runtime()
            found = run_in_pieces(network(), {"x": x}, joined, runtime)
            assert found.keys() == whole.keys()
            assert all(np.array_equal(found[v], whole[v]) for v in whole)
            assert len(runtime.models) <= 7 - count
    assert [len(m.graph.node) for m in runtime.models] == [8]


def test_a_piece_sees_shapes_as_constants_and_the_rest_as_inputs() -> None:
    runtime = Runtime()
    run_in_pieces(network(), {"x": np.ones((3, 5), np.float32)}, (), runtime)
    last = runtime.models[-1].graph
    assert [v.name for v in last.input] == ["m"]
    assert [d.dim_value for d in last.input[0].type.tensor_type.shape.dim] == [3, 4]
    (shape,) = last.initializer
    assert numpy_helper.to_array(shape).tolist() == [3, 2, 2]
    made = [n.name for m in runtime.models for n in m.graph.node]
    assert "dead" not in made and made.count("constant") == 1


def test_joints_name_the_node_that_joins() -> None:
    found = joints(network())
    assert found[0] == f"{JOINED}1 sizes (Shape)"
    assert [n.removeprefix(JOINED).split()[1] for n in found] == [
        *("sizes", "scaled", "dead", "count", "shape", "reshaped")
    ]
    assert [n.name for n in nodes_at(network(), 2)] == ["sizes", "scaled"]


@pytest.mark.parametrize("why", ["an inner graph", "too many nodes", "one node"])
def test_what_cannot_be_run_in_pieces_has_no_joints(why: str) -> None:
    made = network()
    if why == "an inner graph":
        inner = helper.make_graph([], "inner", [], [])
        made.graph.node.append(
            helper.make_node("If", ["k"], ["z"], then_branch=inner, else_branch=inner)
        )
    elif why == "too many nodes":
        made.graph.node.extend(
            helper.make_node("Relu", ["h"], [f"r{i}"], f"r{i}") for i in range(MOST)
        )
    else:
        del made.graph.node[2:]
    assert joints(made) == []
