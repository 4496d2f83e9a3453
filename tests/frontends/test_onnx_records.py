"""Shapes that a file records bind nobody but those of its inputs; of outputs a warning tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax
from verax.base.errors import ModelError
from verax.frontends.onnx.records import NOTE


def value(name: str, dims: list[Any] | None, code: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, dims)


def model(
    nodes: list[onnx.NodeProto],
    x: list[Any],
    y: list[Any] | None,
    inner: tuple[onnx.ValueInfoProto, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "net", [value("x", x)], [value("y", y)], value_info=inner)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def pooled(op_type: str = "MaxPool", ceil: int = 1) -> list[onnx.NodeProto]:
    """7 rows and 8 columns, 2 x 3 windows at stride 2 x 3, a row of padding around: the last
    window of the rows lies in the padding."""
    return [
        helper.make_node(
            op_type, ["x"], ["p"], kernel_shape=[2, 3], strides=[2, 3], pads=[1, 0, 1, 0],
            ceil_mode=ceil,
        ),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Neg", ["r"], ["y"]),
    ]  # fmt: skip


SIZES = [2, 3, 7, 8]


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_what_onnx_infers_for_pools_is_a_remark(op_type: str) -> None:
    inferred = onnx.shape_inference.infer_shapes(model(pooled(op_type), SIZES, None))
    recorded = [d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim]
    assert recorded == [2, 3, 5, 3]  # onnx counts one row more than the operator has
    found = verax.load(inferred)
    assert found.outputs["y"].shape == (2, 3, 4, 3)
    assert found.metadata[NOTE] == (
        "the file records 'p' as float32[2, 3, 5, 3], it is float32[2, 3, 4, 3]; 'r' as "
        "float32[2, 3, 5, 3], it is float32[2, 3, 4, 3]; 'y' as float32[2, 3, 5, 3], it is "
        "float32[2, 3, 4, 3]"
    )
    x = np.random.default_rng(51).standard_normal(SIZES).astype(np.float32)
    assert verax.compile(found)(x).shape == (2, 3, 4, 3)


def test_the_runtime_that_defines_the_operator_agrees() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    proto = model(pooled(), SIZES, None)
    x = np.random.default_rng(52).standard_normal(SIZES).astype(np.float32)
    (y,) = runtime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    assert y.shape == (2, 3, 4, 3)


def test_an_inner_shape_recorded_otherwise_is_a_remark() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    found = verax.load(model(nodes, [2, 3], [2, 3], (value("h", [2, 4]),)))
    assert found.graph.types["h"].shape == (2, 3)
    assert "'h' as float32[2, 4], it is float32[2, 3]" in found.metadata[NOTE]
    assert NOTE not in verax.load(model(nodes, [2, 3], [2, 3], (value("h", [2, 3]),))).metadata
    many = [helper.make_node("Relu", [f"h{i}"], [f"h{i + 1}"]) for i in range(6)]
    many[0].input[0], many[-1].output[0] = "x", "y"
    records = tuple(value(f"h{i}", [2, 4, 1]) for i in range(1, 6))
    assert verax.load(model(many, [2, 3], [2, 3], records)).metadata[NOTE].endswith("; and 2 more")


def test_an_inner_element_type_recorded_otherwise_is_an_error() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    with pytest.raises(ModelError, match="records 'h' as int64"):
        verax.load(model(nodes, [2, 3], [2, 3], (value("h", [2, 3], TensorProto.INT64),)))


@pytest.mark.parametrize("ceil", [0, 1])
def test_an_output_recorded_otherwise_is_a_warning(ceil: int) -> None:
    """Also behind a pool with ceil_mode, when no window lies in the padding."""
    nodes = pooled(ceil=ceil)
    nodes[0].attribute[2].ints[:] = [0, 0, 1, 0]  # the last window begins inside
    assert nodes[0].attribute[2].name == "pads"
    assert verax.load(model(nodes, SIZES, [2, 3, 4, 3 - (1 - ceil)])).metadata.get(NOTE) is None
    with pytest.warns(UserWarning, match="records 'y' as float32\\[2, 3, 5, 3\\], it is float32"):
        verax.load(model(nodes, SIZES, [2, 3, 5, 3]))


@pytest.mark.parametrize(
    ("x", "given"),
    [([2, 3, 7, 8], None), (["n", 3, 7, 8], None), (["n", 3, "h", "w"], [2, 3, 7, 8])],
    ids=["in the file", "beside an open batch", "by --shape"],
)
@pytest.mark.parametrize("y", [[2, 3, 4, 4], [2, 3, 4]], ids=str)
def test_a_fixed_size_of_an_output_binds_nobody(
    x: list[Any], given: list[int] | None, y: list[int]
) -> None:
    """As ONNX Runtime, which warns and gives what the operators give."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    proto = model(nodes, x, y)
    with pytest.warns(UserWarning) as told:
        found = verax.load(proto, shapes=None if given is None else {"x": given})
    (text,) = (str(w.message) for w in told)
    first = x[0] if given is None else 2
    dims = ", ".join(map(str, y))
    assert f"'y' as float32[{dims}], it is float32[{first}, 3, 3, 4]" in text
    assert found.metadata[NOTE] in text
    data = np.random.default_rng(54).standard_normal(SIZES).astype(np.float32)
    (answer,) = runtime.InferenceSession(proto.SerializeToString()).run(None, {"x": data})
    assert np.array_equal(verax.compile(found)(data), answer)


def test_a_fixed_size_where_an_open_one_ends_is_a_remark() -> None:
    """The same file is read with the size given, where it may be right or not."""
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    proto = model(nodes, ["n", 3, "h", 8], [2, 3, 4, 4])
    said = "'y' as float32[2, 3, 4, 4], it is float32[n, 3, h//2, 4]"
    assert said in verax.load(proto).metadata[NOTE]
    assert NOTE not in verax.load(proto, shapes={"n": 2, "h": 9}).metadata
    with pytest.warns(UserWarning, match="it is float32\\[2, 3, 5, 4\\]"):
        verax.load(proto, shapes={"n": 2, "h": 10})


def test_an_output_recorded_in_another_rank_with_a_named_axis_is_a_remark() -> None:
    """What PyTorch wrote for a text recogniser: [1, "seqlen"] for what a Reshape makes of three
    axes. All numbers in another rank are a warning."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    for dims in ([1, "seqlen"], [1, None, 2, 2]):
        proto = model(nodes, [3, "w", 4], dims)
        proto.graph.initializer.append(helper.make_tensor("rest", TensorProto.INT64, [2], [-1, 2]))
        found = verax.load(proto)
        assert "records 'y'" in found.metadata[NOTE]
        x = np.random.default_rng(53).standard_normal((3, 5, 4)).astype(np.float32)
        (y,) = runtime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
        assert y.shape == (5, 6, 2) and np.array_equal(y, verax.compile(found)(x))
    proto.graph.output[0].CopyFrom(value("y", [1, 7]))
    with pytest.warns(UserWarning, match="records 'y' as float32\\[1, 7\\]"):
        verax.load(proto)
