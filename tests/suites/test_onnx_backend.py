"""The ONNX backend interface over both engines."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax.onnx_backend as backend
from verax.base.errors import InputError, ModelError, UnsupportedError, UsageError

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
ENGINES = ["reference", "compiler"]


def network(nodes, inputs, outputs):
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def floats(name, dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_runs_by_order_and_by_name(engine):
    nodes = [helper.make_node("Sub", ["a", "b"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    model = network(
        nodes, [floats("a", ["n", 3]), floats("b", [3])], [floats("y", None), floats("z", None)]
    )
    ready = backend.prepare(model, engine=engine)
    for inputs in ([X, X[0]], {"b": X[0], "a": X}):
        y, z = ready.run(inputs)
        assert np.array_equal(y, X - X[0]) and np.array_equal(z, np.maximum(X - X[0], 0))
        assert y.dtype == z.dtype == np.float32
    assert ready.run([X, X[0]]).z.shape == (2, 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_shape_given_as_an_input_is_followed_at_each_run(engine):
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [None])
    model = network(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], [floats("x", [2, 3]), shape],
        [floats("y", None)],
    )  # fmt: skip
    ready = backend.prepare(model, engine=engine)
    for dims in ((3, 2), (6,), (1, 2, 3)):
        assert ready.run([X, np.array(dims)])[0].shape == dims


def test_a_single_node_runs():
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)
    assert np.array_equal(backend.run_node(node, [X])[0], np.where(X < 0, X * 0.5, X))
    assert np.array_equal(
        backend.run_node(helper.make_node("Softmax", ["x"], ["y"]), [X], opset_version=11)[0],
        backend.run_node(helper.make_node("Softmax", ["x"], ["y"], axis=1), [X])[0],
    )


def test_what_cannot_be_done_is_said_in_words():
    model = network([helper.make_node("StringNormalizer", ["x"], ["y"])], [floats("x", [2])],
                    [floats("y", None)])  # fmt: skip
    with pytest.raises(UnsupportedError, match="StringNormalizer"):
        backend.prepare(model)
    assert not backend.is_compatible(model)
    relu = network(
        [helper.make_node("Relu", ["x"], ["y"])], [floats("x", [2, 3])], [floats("y", None)]
    )
    assert backend.is_compatible(relu)
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")
    with pytest.raises(UsageError):
        backend.prepare(relu, "CUDA")
    with pytest.raises(UsageError):
        backend.prepare(relu, engine="magic")
    with pytest.raises(InputError):
        backend.prepare(relu).run([X, X])
    with pytest.raises(InputError):
        backend.prepare(relu).run([X.astype(np.float64)])
    with pytest.raises(InputError):
        backend.prepare(relu).run([X[:1]])


def test_it_is_a_backend_of_onnx():
    assert issubclass(backend.VeraxBackend, onnx.backend.base.Backend)
    assert isinstance(backend.prepare(network([helper.make_node("Relu", ["x"], ["y"])],
        [floats("x", [1])], [floats("y", None)])), onnx.backend.base.BackendRep)  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1 << 20, 1 << 40])
def test_a_model_that_asks_for_absurd_memory_is_refused(engine, size):
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["t"]),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    model = network(nodes, [floats("x", [1])], [floats("y", None)])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([size, size]), "s"))
    with pytest.raises((InputError, ModelError)):
        backend.prepare(model, engine=engine).run([np.ones(1, np.float32)])
