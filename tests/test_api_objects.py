"""What the Python interface takes besides files and models, as far as that needs no framework."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import verax
from verax.base.arrays import as_array, as_arrays
from verax.base.errors import InputError, ModelError, UsageError
from verax.export.onnx.writer import to_bytes
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.pytrees import leaf_names
from verax.frontends.torch.module_calls import calls_of, module_of_value
from verax.frontends.torch.output_names import with_keys
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.records.verdict import Kind

X = np.random.default_rng(31).standard_normal((3, 5)).astype(np.float32)


def network() -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    return b.graph([b.add(Relu(), [x], ["y"], "relu")])


class Tensor:
    """What the interface knows of a tensor of PyTorch."""

    def __init__(self, array: np.ndarray, dtype: str = "torch.float32") -> None:
        self.array, self.dtype, self.steps = array, dtype, [""]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def step() -> Tensor:
            self.steps.append(name)
            return self

        return step

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.array.view(dtype))

    def numpy(self) -> np.ndarray:
        return self.array

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


def test_tensors_are_taken_without_their_gradients() -> None:
    tensor: Any = Tensor(X)
    assert as_array(tensor) is X
    assert tensor.steps[1:3] == ["detach", "cpu"]
    exe = verax.compile(network())
    np.testing.assert_array_equal(exe(tensor), np.maximum(X, 0))
    np.testing.assert_array_equal(verax.reference(network(), {"x": tensor})["y"], np.maximum(X, 0))
    dump: Any = {"x": tensor, "y": Tensor(np.maximum(X, 0))}
    assert verax.check(network(), dump).kind is Kind.identical
    assert verax.check(network(), lambda x: Tensor(np.maximum(x, 0)), {"x": tensor}).kind in (
        Kind.identical,
    )


def test_bfloat16_keeps_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16=np.int16))  # type: ignore[arg-type]
    array = X.astype(ml_dtypes.bfloat16)
    found = as_array(Tensor(array, "torch.bfloat16"))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.view(np.int16), array.view(np.int16))


def test_what_holds_no_array_is_refused_by_name() -> None:
    class Sparse(Tensor):
        def numpy(self) -> np.ndarray:
            raise TypeError("can't convert Sparse layout tensor to numpy.\nmore")

    ragged: Any = [[1.0], [2.0, 3.0]]
    for value in (Sparse(X), ragged):
        with pytest.raises(InputError, match="cannot be read as an array") as caught:
            as_arrays({"x": value})
        assert caught.value.place == "input 'x'"
    exe = verax.compile(network())
    with pytest.raises(InputError, match="input 'x'"):
        exe.run({"x": ragged})


def test_an_onnx_program_of_torch_is_a_model() -> None:
    proto = onnx.ModelProto.FromString(to_bytes(network()))
    kind = type("ONNXProgram", (), {"__module__": "torch.onnx._internal", "model_proto": proto})
    model = verax.load(kind())
    assert model.graph.nodes == network().nodes
    assert verax.check(network(), kind(), {"x": X}).kind is Kind.identical


def test_example_inputs_belong_to_modules() -> None:
    for model in (onnx.ModelProto.FromString(to_bytes(network())), to_bytes(network())):
        with pytest.raises(UsageError, match="tells its inputs itself"):
            verax.load(model, inputs=(X,))


def test_a_compiled_program_is_no_network() -> None:
    with pytest.raises(UsageError, match="does not say what is right"):
        verax.check(verax.compile(network()), "verax:O1")


def test_outputs_are_named_by_the_keys_that_lead_to_them() -> None:
    leaf = '{"type": null, "context": null, "children_spec": []}'
    nested = f'{{"type": "builtins.tuple", "context": "null", "children_spec": [{leaf}, {leaf}]}}'
    tree = (
        '[1, {"type": "builtins.dict", "context": "[\\"a\\", \\"b\\", 3]", '
        f'"children_spec": [{leaf}, {nested}, {leaf}]}}]'
    )
    assert leaf_names(tree) == ["a", "b.0", "b.1", "3"]
    assert leaf_names(f"[1, {nested}]") == ["", ""]
    context = '"[[\\"p\\"], [\\"q\\"]]"'
    data = f'{{"type": "D", "context": {context}, "children_spec": [{leaf}]}}'
    assert leaf_names(f"[1, {data}]") == ["p"]
    for damaged in ("", "[1]", "[1, 2]", "[1, {}]", '[1, {"type": 1}]', "[" * 5000):
        with pytest.raises(ModelError, match="damaged"):
            leaf_names(damaged)


def named(keys: list[str]) -> ForeignModel:
    """x -> a -> b; outputs b, x, under these keys."""
    nodes = (ForeignNode("f", ("x",), ("a",)), ForeignNode("g", ("a",), ("b",)))
    values = tuple(ForeignValue(n, None, None) for n in ("x", "b"))
    model = ForeignModel(
        "net", values[:1], values[::-1], nodes, {}, {"b": values[1]}, {}, {},
        modules={"a": ("first", 0), "b": ("last", 1)},
    )  # fmt: skip
    return with_keys(model, keys)


def test_keys_replace_the_names_of_nodes() -> None:
    found = named(["out", "in"])
    assert [v.name for v in found.outputs] == ["out", "in"]
    assert [n.outputs for n in found.nodes] == [("a",), ("out",), ("in",)]
    assert found.nodes[2].inputs == ("x",)
    assert found.modules == {"a": ("first", 0), "out": ("last", 1)}
    assert list(found.declared) == ["out"]
    assert named(["", ""]) == named([])


def test_a_key_that_is_taken_stays_apart() -> None:
    assert [v.name for v in named(["x", ""]).outputs] == ["x.out", "x"]
    assert [v.name for v in named(["k", "k"]).outputs] == ["k", "k.out"]
    found = named(["a", ""])
    assert [n.outputs for n in found.nodes] == [("a.inner",), ("a",)]
    assert found.nodes[1].inputs == ("a.inner",)


def test_calls_of_modules_are_read_from_the_stack() -> None:
    stack = "L__self__,,M;L__self___b@1,b,Blk;140406217029840@2,b.relu,torch.nn.ReLU"
    assert calls_of(stack) == (("b", 1), ("b.relu", 2))
    assert calls_of(None) == calls_of("") == calls_of("nonsense") == ()


def test_what_leaves_one_call_is_what_the_module_gave() -> None:
    nodes = [
        ForeignNode("f", ("x",), ("p",)),
        ForeignNode("g", ("p",), ("q",)),
        ForeignNode("f", ("q",), ("r",)),
        ForeignNode("h", ("r",), ("s",)),
        ForeignNode("k", ("r", "s"), ("t",)),
    ]
    block0, block1 = ("block", 0), ("block", 1)
    stacks = [(block0, ("block.f", 0)), (block0,), (block1, ("block.f", 1)), (block1,), ()]
    # The second call gives two values (r and s are read outside): which of them is not told.
    expected = {"p": ("block.f", 0), "q": block0, "r": ("block.f", 1)}
    assert module_of_value(nodes, stacks, ["t"]) == expected
    assert module_of_value(nodes, stacks, ["t"], sizes={"s"})["r"] == ("block.f", 1)
    assert "t" not in module_of_value(nodes, stacks, ["t"])
