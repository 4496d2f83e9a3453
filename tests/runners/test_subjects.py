"""Subjects of every kind: recorded, called, run in a child process, and our own."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from verax.base.errors import InputError, UsageError
from verax.base.process.processes import SubjectError
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import Runner, check
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind
from verax.runners.arrays import ArraysRunner, load_npz
from verax.runners.functions import FunctionRunner
from verax.runners.network import NetworkRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.openvino import OpenVinoRunner
from verax.runners.registry import RUNNERS
from verax.runners.subjects.factory import runner_of

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)


def network() -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[n, 5]"))
    h = b.add(MatMul(), [x, b.constant(W, "w")], ["h"], "matmul")
    return b.graph([b.add(Relu(), [h], ["y"], "relu")])


def answers() -> dict[str, np.ndarray]:
    h = X @ W
    return {"h": h, "y": np.maximum(h, 0)}


@pytest.mark.parametrize("name", ["reference", "reference:promised", "verax:O0", "verax:O1"])
def test_own_runners_are_rounding_with_inner_values(name: str) -> None:
    runner = runner_of(name, threads=1)
    assert isinstance(runner, Runner)
    verdict = check(network(), runner, {"x": X})
    assert verdict.kind is Kind.rounding
    assert [f.value for f in verdict.nodes] == ["h", "y"]
    assert name in RUNNERS


def test_recorded_values_carry_their_inputs(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **{"in:x": X, **{f"out:{k}": v for k, v in answers().items()}})
    verdict = check(network(), load_npz(path))
    assert (verdict.kind, verdict.inputs[0].origin) == (Kind.rounding, "stored with a.npz")
    assert verdict.method == "every node on its own inputs"


def test_plain_names_do_as_well_and_any_subset() -> None:
    assert check(network(), ArraysRunner({"x": X, "y": answers()["y"]})).kind is Kind.rounding
    assert check(network(), ArraysRunner({"y": answers()["y"]}), {"x": X}).kind is Kind.rounding


def test_recorded_values_without_inputs_are_refused() -> None:
    with pytest.raises(InputError, match="without the input x"):
        check(network(), ArraysRunner(answers()))


def test_recorded_values_of_another_input_are_refused() -> None:
    with pytest.raises(InputError, match="another input"):
        check(network(), ArraysRunner({"x": X, **answers()}), {"x": X + 1})


def test_values_of_another_network_are_refused() -> None:
    with pytest.raises(UsageError, match="no value of this network"):
        check(network(), ArraysRunner({"other": X}), {"x": X})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x80\x04K*.", b"\x93NUMPY\x01"])
def test_damaged_npz_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="npz"):
        load_npz(path)


def test_an_empty_npz_has_no_answer(tmp_path: Path) -> None:
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(UsageError, match="no answer"):
        load_npz(tmp_path / "empty.npz")


def test_functions_give_arrays_or_dictionaries() -> None:
    plain = FunctionRunner(lambda x: np.maximum(x @ W, 0))
    named = FunctionRunner(lambda x: {"h": x @ W, "y": np.maximum(x @ W, 0)}, "named")
    assert check(network(), plain, {"x": X}).method == "outputs only"
    assert check(network(), named, {"x": X}).method == "every node on its own inputs"


def test_a_torch_module_is_a_subject() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    linear = torch.nn.Linear(5, 4, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(W.T.copy()))
    module = torch.nn.Sequential(linear, torch.nn.ReLU())
    assert check(network(), runner_of(module), {"x": X}).kind is Kind.rounding


def test_a_function_that_raises_or_gives_too_much_is_an_error() -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("by zero")

    with pytest.raises(UsageError, match="ZeroDivisionError: by zero"):
        check(network(), FunctionRunner(broken), {"x": X})
    with pytest.raises(UsageError, match="2 arrays"):
        check(network(), FunctionRunner(lambda x: (x, x)), {"x": X})


@pytest.mark.parametrize(
    "garbage", [np.array(["a"]), np.array([{}, 1], dtype=object), np.zeros((3, 4), complex)]
)
def test_what_is_no_number_is_refused(garbage: np.ndarray) -> None:
    with pytest.raises(UsageError, match="no real numbers"):
        check(network(), ArraysRunner({"y": garbage}), {"x": X})


def test_other_number_types_are_taken_for_their_values() -> None:
    wide = {"y": np.maximum(X @ W, 0).astype(np.float64)}
    assert check(network(), ArraysRunner(wide), {"x": X}).kind is Kind.rounding
    whole = {"y": np.maximum(X @ W, 0).astype(np.int32)}
    assert check(network(), ArraysRunner(whole), {"x": X}).kind is Kind.mistake


def test_an_empty_batch_is_judged() -> None:
    x = np.zeros((0, 5), np.float32)
    assert check(network(), runner_of("reference"), {"x": x}).kind is Kind.identical


def test_unknown_runners_are_refused_with_what_exists() -> None:
    with pytest.raises(UsageError, match="is 'onnxruntime' meant"):
        runner_of("onnxruntme")
    with pytest.raises(UsageError, match="no such file"):
        runner_of("nowhere.npz")
    with pytest.raises(UsageError, match="cannot be judged"):
        runner_of(3)


def test_onnx_runtime_in_a_child_shows_inner_values() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    verdict = check(network(), runner_of("onnxruntime", threads=1), {"x": X})
    assert verdict.kind is Kind.rounding
    assert [f.value for f in verdict.nodes] == ["h", "y"]
    assert verdict.subject["version"]


def test_openvino_in_float32_is_rounding_and_in_bfloat16_is_named() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    verdicts = {}
    for precision in ("f32", "bf16"):
        runner = OpenVinoRunner(writer=to_bytes, precision=precision, threads=1)
        verdicts[precision] = check(network(), runner, {"x": X})
    assert verdicts["f32"].kind is Kind.rounding
    if verdicts["bf16"].kind is Kind.rounding:
        pytest.skip("this processor cannot be made to compute in bfloat16")
    assert verdicts["bf16"].kind is Kind.precision
    assert "bf16" in verdicts["bf16"].reasons[0]


def test_a_file_is_run_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    path = tmp_path / "net.onnx"
    path.write_bytes(to_bytes(network()))
    runner = runner_of(path, threads=1)
    assert runner.name == "onnxruntime:net.onnx"
    assert check(network(), runner, {"x": X}).kind is Kind.rounding
    path.write_bytes(b"\x08\x09 not a model")
    with pytest.raises(SubjectError):
        check(network(), runner, {"x": X})


def relu_file(*shape: int) -> bytes:
    """A Relu from z to out, as ONNX."""
    info = helper.make_tensor_value_info
    node = helper.make_node("Relu", ["z"], ["out"])
    types = [info(n, TensorProto.FLOAT, shape) for n in ("z", "out")]
    graph = helper.make_graph([node], "g", types[:1], types[1:])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def test_a_model_with_other_inputs_is_an_error() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with pytest.raises(SubjectError, match="takes the inputs z"):
        OnnxRuntimeRunner(relu_file(4, 7)).run(network(), {"x": X})


def test_other_names_are_matched_where_that_is_clear_and_said() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    b = Builder("relu")
    graph = b.graph([b.add(Relu(), [b.input("x", TensorType.parse("float32[3, 5]"))], ["y"])])
    runner = OnnxRuntimeRunner(relu_file(3, 5))
    verdict = check(graph, runner, {"x": X})
    assert verdict.kind is Kind.identical
    assert verdict.subject["inputs renamed"] == "x as z"
    assert verdict.subject["outputs renamed"] == "out as y"


def test_a_network_of_other_names_is_a_subject() -> None:
    b = Builder("other")
    x = b.input("image", TensorType.parse("float32[batch, 5]"))
    h = b.add(MatMul(), [x, b.constant(W, "weights")], ["features"], "first")
    other = b.graph([b.add(Relu(), [h], ["scores"], "last")])
    verdict = check(network(), NetworkRunner(other), {"x": X})
    assert verdict.kind is Kind.rounding
    assert verdict.subject["inputs renamed"] == "x as image"
    assert verdict.subject["outputs renamed"] == "scores as y"


def test_a_hanging_subject_is_stopped() -> None:
    runner = OnnxRuntimeRunner(writer=to_bytes, timeout=0.02)
    with pytest.raises(SubjectError, match=r"no answer in 0\.02 s"):
        runner.run(network(), {"x": X})


def test_a_crashing_subject_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that dies by a signal, as a runtime with a segmentation fault does."""
    bad = tmp_path / "onnxruntime.py"
    bad.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SubjectError, match="SIGSEGV"):
        OnnxRuntimeRunner(writer=to_bytes).run(network(), {"x": X})
    assert onnx.__version__
