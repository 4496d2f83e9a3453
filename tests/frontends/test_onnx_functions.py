"""Functions of a model and of ONNX itself are inlined."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import model, one_node

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.onnx import load_onnx
from verax.reference.evaluate import evaluate

OURS = helper.make_opsetid("ours", 1)
X = np.array([[-3.0, 1.5, 2.0], [0.5, -1.0, 4.0]], np.float32)


def scaled(name="Scaled", body=None, inputs=("a", "k"), outputs=("b",), attributes=("alpha",)):
    leaky = helper.make_node("LeakyRelu", ["a"], ["t"])
    leaky.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    )
    nodes = body or [leaky, helper.make_node("Mul", ["t", "k"], ["b"])]
    return helper.make_function(
        "ours", name, list(inputs), list(outputs), nodes, [helper.make_opsetid("", 17), OURS],
        list(attributes),
    )  # fmt: skip


def network(nodes, functions, outputs=("y",)):
    return model(
        nodes,
        {"x": [2, 3]},
        {name: [2, 3] for name in outputs},
        {"three": np.float32([3])},
        functions=functions,
        imports=[OURS],
    )


def call(**attributes):
    return helper.make_node("Scaled", ["x", "three"], ["y"], domain="ours", **attributes)


def test_a_function_is_inlined_with_its_attribute():
    found = evaluate(load_onnx(network([call(alpha=0.5)], [scaled()])).graph, {"x": X})["y"]
    assert np.array_equal(found, np.where(X < 0, 0.5 * X, X) * 3)


def test_an_attribute_that_is_not_given_is_the_operators_default():
    graph = load_onnx(network([call()], [scaled()])).graph
    assert graph.nodes[0].op.alpha == float(np.float32(0.01))  # type: ignore[attr-defined]


def test_functions_call_functions_and_names_do_not_meet():
    outer = scaled(
        "Outer",
        [
            helper.make_node("Scaled", ["a", "k"], ["t"], domain="ours", alpha=0.25),
            helper.make_node("Scaled", ["t", "k"], ["b"], domain="ours", alpha=2.0),
        ],
        attributes=(),
    )
    node = helper.make_node("Outer", ["x", "three"], ["y"], domain="ours")
    graph = load_onnx(network([node], [scaled(), outer])).graph
    first = np.where(X < 0, 0.25 * X, X) * 3
    want = np.where(first < 0, 2 * first, first) * 3
    assert np.array_equal(evaluate(graph, {"x": X})["y"], want)
    assert all(node.name.startswith("y/") for node in graph.nodes)


def test_a_recursive_function_is_refused():
    body = [helper.make_node("Scaled", ["a", "k"], ["b"], domain="ours")]
    with pytest.raises(ModelError, match="too deeply"):
        load_onnx(network([call()], [scaled(body=body, attributes=())]))


def test_functions_that_double_at_each_level_do_not_fill_the_memory():
    functions = [scaled("F0", attributes=())]
    for level in range(1, 25):
        inner = f"F{level - 1}"
        body = [
            helper.make_node(inner, ["a", "k"], ["t"], domain="ours"),
            helper.make_node(inner, ["t", "k"], ["b"], domain="ours"),
        ]
        functions.append(scaled(f"F{level}", body, attributes=()))
    node = helper.make_node("F24", ["x", "three"], ["y"], domain="ours")
    with pytest.raises(ModelError, match="nodes once inlined"):
        load_onnx(network([node], functions))


@pytest.mark.parametrize(
    ("function", "node", "message"),
    [
        (scaled(), call(beta=1.0), "beta"),
        (
            scaled(body=[helper.make_node("Relu", ["nowhere"], ["b"])]),
            call(),
            "read before it is defined",
        ),
        (scaled(body=[helper.make_node("Relu", ["a"], ["t"])]), call(), "does not define"),
        (
            scaled(body=[helper.make_node("StringNormalizer", ["a"], ["b"])]),
            call(),
            r"StringNormalizer \(1\)\n  at: inside node 'y'",
        ),
    ],
)
def test_broken_functions_are_refused(function, node, message):
    with pytest.raises((ModelError, UnsupportedError), match=message):
        load_onnx(network([node], [function]))


def test_a_function_may_hand_an_input_through():
    function = scaled(
        body=[helper.make_node("Relu", ["a"], ["b"])], outputs=("b", "a"), attributes=()
    )
    node = helper.make_node("Scaled", ["x", "three"], ["y", "same"], domain="ours")
    graph = load_onnx(network([node], [function], ("y", "same"))).graph
    found = evaluate(graph, {"x": X})
    assert np.array_equal(found["same"], X) and np.array_equal(found["y"], np.maximum(X, 0))


def test_operators_that_we_lack_are_expanded_by_onnx_own_definition():
    targets = np.array([2, 0])
    proto = one_node("SoftmaxCrossEntropyLoss", [X, targets], 13, reduction="mean")
    graph = load_onnx(proto).graph
    wide = X.astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    found = evaluate(graph, {"x0": X})["y0"]
    assert abs(found - -logs[[0, 1], targets].mean()) <= 4 * np.finfo(np.float64).eps
