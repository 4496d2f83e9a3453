"""Everything that an import refuses is said in one error, with counts."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import verax
from verax.base.errors import UnsupportedError


def test_all_refused_attributes_are_listed_at_once() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", colour=3),
        helper.make_node("Relu", ["x"], ["b"], name="second", shape=1),
        helper.make_node("Relu", ["x"], ["c"], name="third", shape=1),
        helper.make_node("Relu", ["b"], ["d"], name="after", shape=1),
        helper.make_node("Add", ["c", "c"], ["y"], name="sum"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4, 5]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [7, 3, 1, 2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "refused", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(UnsupportedError) as caught:
        verax.load(model)
    assert "colour = 3" in caught.value.cause and "(1)" in caught.value.cause
    assert "shape = 1" in caught.value.cause and "(2)" in caught.value.cause
    for name in ("first", "second", "third"):
        assert f"'{name}'" in str(caught.value.place)
    assert "after" not in str(caught.value.place), "what follows a refused node is not its fault"
