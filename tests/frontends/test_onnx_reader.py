"""Reading untrusted ONNX bytes: every damage is a clear error, nothing crashes."""

import random
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model, one_node, small_network, value

import verax
from verax.base.errors import ModelError, UnsupportedError, UsageError, VeraxError
from verax.frontends.onnx import load_onnx

RELU = helper.make_node("Relu", ["x"], ["y"])
BOX = {"x": [2, 3]}, {"y": [2, 3]}


def refusal(proto, kind=ModelError) -> str:
    with pytest.raises(kind) as error:
        load_onnx(proto)
    assert type(error.value) is kind
    return str(error.value)


def test_a_small_network_is_read_with_symbolic_batch():
    loaded = load_onnx(small_network())
    assert {n: str(t) for n, t in loaded.inputs.items()} == {"x": "float32[batch, 3, 7, 4]"}
    assert {n: str(t) for n, t in loaded.outputs.items()} == {"y": "float32[batch, 5]"}
    assert loaded.format == "ONNX, opset 17"


def test_bytes_path_and_message_give_the_same_graph(tmp_path):
    proto = small_network()
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    graph = load_onnx(proto).graph
    assert load_onnx(path).graph == graph == load_onnx(proto.SerializeToString()).graph
    assert load_onnx(path).source == str(path)


def test_every_truncation_of_a_model_is_refused_or_read():
    data = small_network().SerializeToString()
    outcomes = set()
    for length in range(0, len(data), 7):
        try:
            load_onnx(data[:length])
            outcomes.add("read")
        except VeraxError as error:
            outcomes.add(type(error).__name__)
    assert "ModelError" in outcomes and outcomes <= {"ModelError", "UnsupportedError", "read"}


def test_thousands_of_mutations_end_in_a_graph_or_a_clear_error():
    rng, data = random.Random(0), small_network().SerializeToString()
    refused, start = 0, time.process_time()
    for _ in range(4000):
        mutated = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 6))):
            i = rng.randrange(len(mutated))
            kind = rng.random()
            if kind < 0.6:
                mutated[i] = rng.choice((0, 1, 127, 128, 255, mutated[i] ^ (1 << rng.randrange(8))))
            elif kind < 0.8:
                del mutated[i : i + rng.randrange(1, 9)]
            else:
                mutated[i:i] = rng.randbytes(rng.randrange(1, 5))
        try:
            load_onnx(bytes(mutated))
        except VeraxError as error:
            refused += 1
            assert error.cause
    assert refused > 1000
    assert time.process_time() - start < 60


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"not a model", bytes(range(256))])
def test_other_bytes_are_no_model(data):
    assert "not an ONNX model" in refusal(data)


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        load_onnx(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="not a regular file"):
        load_onnx(tmp_path)


def test_a_value_read_before_its_definition_and_a_cycle_are_named():
    a = helper.make_node("Add", ["x", "b"], ["a"], name="first")
    b = helper.make_node("Relu", ["a"], ["b"], name="second")
    text = refusal(model([a, b], {"x": [2]}, {"b": [2]}))
    assert "'b' is read before" in text and "second" in text and "cycle" in text


def test_a_missing_initialiser_is_named():
    node = helper.make_node("MatMul", ["x", "weights"], ["y"])
    assert "'weights' is read, but no" in refusal(model([node], {"x": [2, 3]}, {"y": [2, 4]}))


def test_a_value_defined_twice_is_refused():
    assert "'y' is defined twice" in refusal(model([RELU, RELU], *BOX))
    node = helper.make_node("Relu", ["x"], ["x"])
    assert "'x' is defined twice" in refusal(model([node], {"x": [2]}, {"x": [2]}))


def test_duplicate_inputs_outputs_and_initialisers_are_refused():
    for part in ("input", "output", "initializer"):
        proto = model([RELU], *BOX, constants={"c": np.zeros(1, np.float32)})
        entries = getattr(proto.graph, part)
        entries.append(entries[0])
        assert "named twice" in refusal(proto)


def test_an_undefined_output_is_refused():
    assert "nothing defines the output 'z'" in refusal(model([RELU], {"x": [2]}, {"z": [2]}))


def test_an_initialiser_among_the_inputs_is_a_constant():
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    loaded = load_onnx(model([node], {"x": [2, 3], "w": [2, 3]}, {"y": [2, 3]}, {"w": w}))
    assert list(loaded.inputs) == ["x"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"raw_data": b"\0" * 23}, "23 bytes are stored for float32"),
        ({"dims": [2, -3]}, "negative"),
        ({"dims": [1 << 40, 1 << 40]}, "absurdly large"),
        ({"dims": [1 << 30]}, "24 bytes are stored"),
        ({"data_type": 99}, "99 is not an element type"),
        ({"data_type": 0}, "0 is not an element type"),
    ],
)
def test_tensors_that_lie_about_their_size_are_refused(change, message):
    proto = model([RELU], *BOX)
    fields = {"name": "w", "dims": [2, 3], "data_type": 1, "raw_data": b"\0" * 24, **change}
    proto.graph.initializer.append(TensorProto(**fields))
    assert message in refusal(proto)


def test_typed_fields_are_counted_and_ranged():
    proto = model([RELU], *BOX)
    proto.graph.initializer.append(TensorProto(name="w", dims=[3], data_type=1, float_data=[1, 2]))
    assert "2 elements are stored" in refusal(proto)
    proto.graph.initializer[0].CopyFrom(
        TensorProto(name="w", dims=[1], data_type=TensorProto.INT8, int32_data=[300])
    )
    assert "do not fit int8" in refusal(proto)


def test_every_element_type_arrives_bit_for_bit():
    rng = np.random.default_rng(1)
    for dtype in ("float16", "float32", "float64", "int8", "uint16", "int64", "uint64", "bool"):
        array = rng.integers(0, 2, (3, 2)).astype(dtype)
        raw = numpy_helper.from_array(array, "w")
        typed = helper.make_tensor("w", raw.data_type, array.shape, array.ravel().tolist())
        for tensor in (raw, typed):
            proto = model([helper.make_node("Identity", ["w"], ["y"])], {}, {})
            proto.graph.output.append(onnx.ValueInfoProto(name="y"))
            proto.graph.initializer.append(tensor)
            found = load_onnx(proto).graph.constants["w"]
            assert found.dtype == array.dtype and np.array_equal(found, array)


def test_bytes_that_are_no_bool_become_true():
    proto = model([RELU], *BOX)
    tensor = TensorProto(name="b", dims=[3], data_type=TensorProto.BOOL, raw_data=b"\0\1\2")
    proto.graph.initializer.append(tensor)
    assert load_onnx(proto).graph.constants["b"].tolist() == [False, True, True]


def test_declared_inputs_must_be_sane():
    assert "a dimension is -3" in refusal(model([RELU], {"x": [2, -3]}, {"y": None}))
    huge = {"x": [1 << 40, 1 << 40]}
    assert "absurdly large" in refusal(model([RELU], huge, {"y": None}))


def test_unsupported_operators_are_listed_at_once_with_counts():
    nodes = [
        helper.make_node("StringNormalizer", ["", "", "x"], ["a"]),
        helper.make_node("NoSuchOp", ["a"], ["b"]),
        helper.make_node("NoSuchOp", ["b"], ["c"]),
        helper.make_node("Thing", ["c"], ["y"], domain="my.domain"),
    ]
    text = refusal(model(nodes, *BOX), UnsupportedError)
    assert "NoSuchOp (2), StringNormalizer (1), my.domain::Thing (1)" in text


@pytest.mark.parametrize("opset", [1, 5, 99])
def test_unknown_opsets_are_refused(opset):
    assert f"opset {opset} is not supported" in refusal(
        model([RELU], *BOX, opset=opset), UnsupportedError
    )


@pytest.mark.parametrize("code", [TensorProto.COMPLEX64, TensorProto.COMPLEX128])
def test_other_element_types_are_refused_by_name(code):
    proto = model([RELU], {}, {"y": None})
    proto.graph.input.append(value("x", [2], code))
    assert TensorProto.DataType.Name(code) in refusal(proto, UnsupportedError)


def test_a_recorded_element_type_that_contradicts_the_inferred_one_is_an_error():
    proto = model([RELU], *BOX)
    proto.graph.output[0].CopyFrom(value("y", [2, 3], TensorProto.INT64))
    assert "int64" in refusal(proto)


def test_a_recorded_size_settles_one_that_only_running_can_tell():
    node = helper.make_node("NonZero", ["x"], ["n"])
    cast = helper.make_node("Cast", ["n"], ["y"], to=1)
    proto = model([node, cast], {"x": [2, 3]}, {"y": [2, 4]})
    proto.graph.value_info.append(value("n", [2, 4], TensorProto.INT64))
    graph = load_onnx(proto).graph
    assert str(graph.types["n"]) == "int64[2, 4]" and str(graph.types["y"]) == "float32[2, 4]"


def test_names_of_dimensions_become_unique_symbols():
    inputs = {"x": ["batch size", "1st", None], "z": ["batch size", "for", "batch_size"]}
    nodes = [helper.make_node("Relu", [i], [o]) for i, o in (("x", "y"), ("z", "w"))]
    loaded = load_onnx(model(nodes, inputs, {"y": None, "w": None}))
    (a, b, c), (d, e, f) = (t.dims for t in loaded.inputs.values())
    assert a == d and len({str(s) for s in (a, b, c, e, f)}) == 5
    assert all(str(s).isidentifier() for s in (a, b, c, e, f))


def test_open_sizes_of_older_converters_are_open_each_for_itself():
    """paddle2onnx writes -1, and one "?" for sizes that differ."""
    loaded = load_onnx(model([RELU], {"x": [-1, 3, "?", "?"]}, {"y": [-1, 3, "?", "?"]}))
    dims = loaded.inputs["x"].dims
    assert dims[1] == 3 and len({str(d) for d in dims}) == 4
    x = np.random.default_rng(54).standard_normal((2, 3, 5, 7)).astype(np.float32)
    assert np.array_equal(verax.compile(loaded)(x), np.maximum(x, 0))


def test_shapes_can_be_given_by_input_or_by_name_of_a_dimension():
    proto = model([RELU], {"x": ["n", 3, "w"]}, {"y": ["n", 3, "w"]})
    assert str(load_onnx(proto, {"n": 4}).outputs["y"]) == "float32[4, 3, w]"
    assert str(load_onnx(proto, {"x": (4, 3, None)}).outputs["y"]) == "float32[4, 3, w]"
    for wrong in ({"x": (4, 2, 5)}, {"x": (4, 3)}, {"q": 3}):
        with pytest.raises(UsageError):
            load_onnx(proto, wrong)


def test_an_input_without_rank_needs_a_shape():
    proto = model([RELU], {"x": None}, {"y": None})
    with pytest.raises(UnsupportedError, match="give each shape"):
        load_onnx(proto)
    assert str(load_onnx(proto, {"x": (2, 5)}).outputs["y"]) == "float32[2, 5]"


@pytest.mark.parametrize(
    ("kind", "attributes", "arrays"),
    [
        ("Conv", {"strides": [0, 1]}, [(1, 2, 5, 5), (3, 2, 3, 3)]),
        ("Conv", {"group": 0}, [(1, 2, 5, 5), (3, 2, 3, 3)]),
        ("Conv", {"pads": [1, 2, 3]}, [(1, 2, 5, 5), (3, 2, 3, 3)]),
        ("MaxPool", {"kernel_shape": [9, 9]}, [(1, 2, 5, 5)]),
        ("Softmax", {"axis": 7}, [(2, 3)]),
        ("Transpose", {"perm": [0, 0]}, [(2, 3)]),
        ("Concat", {"axis": 1}, [(2, 3), (3, 3)]),
        ("DepthToSpace", {"blocksize": 0}, [(1, 4, 2, 2)]),
        ("Einsum", {"equation": "ij,jk->"}, [(2, 3), (4, 5)]),
        ("MatMul", {}, [(2, 3), (4, 5)]),
    ],
)
def test_nodes_that_make_no_sense_are_refused_by_name(kind, attributes, arrays):
    zeros = [np.zeros(s, np.float32) for s in arrays]
    assert kind in refusal(one_node(kind, zeros, 17, **attributes))
