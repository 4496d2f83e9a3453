"""Axes of Squeeze and Unsqueeze that are values (opset 13): constant once folded, or computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.base.errors import InputError, ModelError, VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.reference.evaluate import evaluate

X = np.random.default_rng(61).standard_normal((2, 1, 3, 1)).astype(np.float32)


def network(kind: str, nodes: Sequence[Any], axes: Any = None, **constants: Any) -> onnx.ModelProto:
    """Squeeze or Unsqueeze of x by the value `axes`, then Relu. axes: their shape as an input."""
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, X.shape)]
    inputs += [] if axes is None else [value("axes", TensorProto.INT64, axes)]
    made = [*nodes, helper.make_node(kind, ["x", "axes"], ["s"])]
    graph = helper.make_graph(
        [*made, helper.make_node("Relu", ["s"], ["y"])],
        "net",
        inputs,
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.array(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def answers(proto: onnx.ModelProto, given: dict[str, np.ndarray]) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(proto.SerializeToString())
    return session.run(None, given)[0]


@pytest.mark.parametrize(
    ("kind", "nodes", "constants"),
    [
        ("Squeeze", [helper.make_node("Sub", ["a", "b"], ["axes"])], {"a": [4], "b": [3]}),
        (
            "Unsqueeze",
            [helper.make_node("Range", ["a", "b", "c"], ["axes"])],
            {"a": 1, "b": 4, "c": 2},
        ),
        (
            "Squeeze",
            [
                helper.make_node("Cast", ["a"], ["f"], to=TensorProto.FLOAT),
                helper.make_node("Floor", ["f"], ["g"]),
                helper.make_node("Cast", ["g"], ["axes"], to=TensorProto.INT64),
            ],
            {"a": [3, 1]},
        ),
    ],
)
def test_axes_that_are_constant_once_folded(
    kind: str, nodes: list[Any], constants: dict[str, Any]
) -> None:
    proto = network(kind, nodes, **constants)
    model, expected = verax.load(proto), answers(proto, {"x": X})
    assert model.outputs["y"].shape == expected.shape
    assert np.array_equal(compile(model.graph).run({"x": X})["y"], expected)


GIVEN = [("Squeeze", [1]), ("Squeeze", [-1, 1]), ("Unsqueeze", [-2]), ("Unsqueeze", [4, 0])]


@pytest.mark.parametrize(("kind", "axes"), GIVEN, ids=str)
def test_axes_that_are_given_or_computed(kind: str, axes: list[int]) -> None:
    proto = network(kind, [], [len(axes)])
    given = {"x": X, "axes": np.array(axes)}
    graph, expected = verax.load(proto).graph, answers(proto, given)
    assert np.array_equal(evaluate(graph, given)["y"], expected.astype(np.float64))
    for level in (0, 3):
        found = compile(graph, Settings(opt_level=level, threads=1)).run(given)["y"]
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("kind", "axes", "match"),
    [
        ("Squeeze", [1, 1], "name one twice"),
        ("Unsqueeze", [0, 0], "name one twice"),
        ("Squeeze", [0], "not all of size 1"),
        ("Unsqueeze", [5], "the axis 5 is not one of a tensor of rank 5"),
    ],
)
def test_axes_that_do_not_fit_are_refused(kind: str, axes: list[int], match: str) -> None:
    given = {"x": X, "axes": np.array(axes)}
    graph = verax.load(network(kind, [], [len(axes)])).graph
    with pytest.raises(InputError, match=match):
        evaluate(graph, given)
    with pytest.raises(VeraxError):
        compile(graph, Settings(threads=1)).run(given)


def test_as_many_axes_as_only_running_tells_are_refused() -> None:
    with pytest.raises(ModelError, match="the length of axes is not known"):
        verax.load(network("Squeeze", [], ["k"]))
    with pytest.raises(ModelError, match="5 axes are removed"):
        verax.load(network("Squeeze", [], [5]))
