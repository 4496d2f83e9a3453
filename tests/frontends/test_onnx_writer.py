"""Any graph becomes a valid model, and reading it back gives the same graph."""

import dataclasses

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import shared_folder, small_network
from written_cases import expected, graph_of, is_refused, is_right

from verax.base.errors import UnsupportedError, UsageError
from verax.export.onnx import to_onnx, write_onnx
from verax.export.onnx.emission import SPECIAL
from verax.frontends.onnx import load_onnx
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.onnx_backend import run_reference

COMES_BACK = {"Cast", "ConstantOfShape", "GatherND", "MeanVarianceNormalization", "Resize", "Split"}
"""Operators whose own spelling is read as the same node."""
WRITTEN_OTHERWISE = {"EyeLike", "Dropout", *SPECIAL} - COMES_BACK
"""Operators with forms that are written as several nodes, or without inputs that do not matter."""


def in_float32(graph: Graph) -> Graph:
    """The graph with attributes rounded to what an ONNX attribute can hold."""

    def rounded(value):
        return float(np.float32(value)) if isinstance(value, float) else value

    nodes = []
    for node in graph.nodes:
        fields = {k: rounded(v) for k, v in node.op.attributes().items()}
        nodes.append(dataclasses.replace(node, op=type(node.op)(**fields)))
    return dataclasses.replace(graph, nodes=tuple(nodes))


def without_unread(graph: Graph) -> Graph:
    """The graph without the constants that no node reads: they are not written."""
    read = {*graph.outputs, *(v for node in graph.nodes for v in node.inputs)}
    constants = {v: array for v, array in graph.constants.items() if v in read}
    types = {v: t for v, t in graph.types.items() if v in read or v not in graph.constants}
    return dataclasses.replace(graph, constants=constants, types=types)


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_every_case_of_every_operator_is_valid_and_comes_back(kind):
    for case in REGISTRY[kind].cases(np.random.default_rng(0)):
        graph, values = graph_of(case)
        try:
            proto = to_onnx(graph)
        except UnsupportedError:
            assert is_refused(case, graph), case.op
            continue
        onnx.checker.check_model(proto, full_check=kind != "Einsum")
        try:
            back = load_onnx(proto).graph
        except UnsupportedError as error:
            assert kind == "Loop" and "never runs" in str(error), case.op
            continue
        if in_float32(back) == in_float32(graph):
            continue
        assert kind in WRITTEN_OTHERWISE, case.op
        if kind == "EyeLike":
            assert back.types == graph.types
        elif kind == "Dropout":
            assert back.nodes[0].op == graph.nodes[0].op
        else:
            found = run_reference(back, values)
            for v, (want, error) in zip(graph.outputs, expected(graph, values), strict=True):
                assert is_right(found[v], want, error, graph.types[v].dtype), case.op


@st.composite
def graphs(draw) -> Graph:
    """Random chains and diamonds over a symbolic batch."""
    b = Builder("random")
    width = draw(st.integers(2, 5))
    values = [b.input("x", TensorType.parse(f"float32[n, 3, {width}]"))]
    make = REGISTRY.__getitem__
    for i in range(draw(st.integers(1, 8))):
        x = values[draw(st.integers(0, len(values) - 1))]
        rank = b.types[x].rank
        kind = draw(st.sampled_from(["Relu", "Add", "Concat", "Softmax", "ReduceMax", "Split",
                                     "Transpose", "LeakyRelu", "Mul", "Unsqueeze"]))  # fmt: skip
        if kind in ("Add", "Mul"):
            other = b.constant(np.float32(draw(st.floats(-4, 4, width=32))), f"k{i}")
            values.append(b.add(make(kind)(), [x, other], [f"v{i}"]))
        elif kind == "Concat":
            values.append(b.add(make(kind)(axis=rank - 1), [x, x], [f"v{i}"]))
        elif kind == "Split":
            parts = b.add_all(make(kind)(num_outputs=2, axis=1), [x], [f"v{i}", f"w{i}"])
            values += parts
        elif kind == "ReduceMax":
            axes = b.constant(np.array([-1]), f"a{i}")
            values.append(b.add(make(kind)(keepdims=True), [x, axes], [f"v{i}"]))
        elif kind == "Unsqueeze" and rank < 5:
            axes = b.constant(np.array([rank]), f"a{i}")
            values.append(b.add(make(kind)(), [x, axes], [f"v{i}"]))
        elif kind == "Softmax":
            values.append(b.add(make(kind)(axis=draw(st.integers(-rank, -1))), [x], [f"v{i}"]))
        elif kind == "Transpose":
            perm = tuple(draw(st.permutations(range(2, rank))))
            values.append(b.add(make(kind)(perm=(0, 1, *perm)), [x], [f"v{i}"]))
        elif kind == "LeakyRelu":
            values.append(b.add(make(kind)(alpha=draw(st.floats(0, 1, width=32))), [x], [f"v{i}"]))
        else:
            values.append(b.add(make("Relu")(), [x], [f"v{i}"]))
    return b.graph([values[-1]])


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_random_graphs_come_back_equal(graph):
    proto = to_onnx(graph)
    onnx.checker.check_model(proto, full_check=True)
    assert load_onnx(proto).graph == graph


def test_networks_come_back_equal():
    graph = load_onnx(small_network()).graph
    assert load_onnx(to_onnx(graph)).graph == graph
    folder = shared_folder()
    if folder is None:
        pytest.skip("../shared with real networks is missing")
    for path in sorted(folder.glob("models/*/*.onnx")):
        graph = load_onnx(path).graph
        proto = to_onnx(graph)
        onnx.checker.check_model(proto, full_check=True)
        back = load_onnx(proto).graph
        if any(getattr(node.op, "flatten", False) for node in graph.nodes):
            x = {v: np.ones(graph.types[v].shape, np.float32) for v in graph.inputs}
            want, found = run_reference(graph, x), run_reference(back, x)
            assert all(np.array_equal(want[v], found[v]) for v in graph.outputs)
        else:
            assert back == without_unread(graph)


def test_the_oldest_operator_set_that_says_everything_is_chosen():
    def opset(kind, type_="float32[2, 3, 4, 5]", extra=(), **attributes):
        b = Builder()
        x = b.input("x", TensorType.parse(type_))
        others = [b.constant(np.asarray(e)) for e in extra]
        return to_onnx(b.graph([b.add(REGISTRY[kind](**attributes), [x, *others])])).opset_import[0]

    assert opset("Relu").version == 13
    assert opset("ReduceMax", extra=[[1]]).version == 18
    assert opset("Gelu").version == 20
    pool = {"kernel_shape": (2, 2)}
    assert opset("AveragePool", **pool).version == 13
    assert opset("AveragePool", **pool, dilations=(1, 2)).version == 19
    assert opset("MaxPool", "bfloat16[2, 3, 4, 5]", **pool).version == 22


def test_a_stated_operator_set_is_written_or_refused_by_node():
    graph = load_onnx(small_network()).graph
    for version in (13, 17, 21):
        proto = to_onnx(graph, version)
        assert proto.opset_import[0].version == version
        assert load_onnx(proto).graph == graph
    b = Builder()
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    gelu = b.graph([b.add(REGISTRY["Gelu"](), [x], ["y"], "late")])
    with pytest.raises(UnsupportedError, match=r"opset 17 cannot express it: it has no Gelu") as e:
        to_onnx(gelu, 17)
    assert "late" in str(e.value)


def test_nodes_of_one_origin_get_names_of_their_own():
    b = Builder()
    value = b.input("x", TensorType.parse("float32[2, 3]"))
    for kind, name in (("Relu", "layer"), ("Exp", "layer"), ("Abs", "layer_2"), ("Neg", "")):
        value = b.add(REGISTRY[kind](), [value], name=name)
    names = [node.name for node in to_onnx(b.graph([value])).graph.node]
    assert names == ["layer", "layer_3", "layer_2", ""]


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path):
    graph = load_onnx(small_network()).graph
    with pytest.raises(UsageError, match="cannot write"):
        write_onnx(graph, tmp_path / "missing" / "net.onnx")
    assert [p.name for p in write_onnx(graph, tmp_path / "net.onnx")] == ["net.onnx"]
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
