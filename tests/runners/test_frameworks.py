"""Foreign frameworks as subjects, each on a file or an object of its own.

The same small network is written in every format; what the framework makes of it has to be rounding
under our meaning of it, and to show its inner values by name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verax.base.errors import MissingPackageError, UsageError
from verax.base.process.processes import SubjectError
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind
from verax.runners.command import CommandRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.pytorch.torch_objects import module_path
from verax.runners.registry import RUNNERS
from verax.runners.subjects.factory import runner_of
from verax.runners.tensorflow_file import TensorFlowRunner
from verax.runners.torch_file import TorchFileRunner

X = np.random.default_rng(7).standard_normal((3, 5)).astype(np.float32)
W = np.random.default_rng(8).standard_normal((5, 4)).astype(np.float32)
B = np.random.default_rng(9).standard_normal(4).astype(np.float32)
IMAGE = np.random.default_rng(10).standard_normal((2, 3, 9, 7)).astype(np.float32)
KERNEL = np.random.default_rng(11).standard_normal((4, 3, 3, 2)).astype(np.float32)


def dense(product: str = "product", total: str = "total", out: str = "out") -> Graph:
    """relu(x W + b), with these names."""
    b = Builder("dense")
    x = b.input("x", TensorType.parse("float32[n, 5]"))
    h = b.add(MatMul(), [x, b.constant(W, "w")], [product], product)
    h = b.add(Add(), [h, b.constant(B, "b")], [total], total)
    return b.graph([b.add(Relu(), [h], [out], out)])


def convolution(inner: str, out: str, node: str = "") -> Graph:
    b = Builder("convolution")
    x = b.input("x", TensorType.parse("float32[2, 3, 9, 7]"))
    h = b.add(Conv(), [x, b.constant(KERNEL, "w")], [inner], node)
    return b.graph([b.add(Relu(), [h], [out], "relu")])


def torch_network() -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    conv = torch.nn.Conv2d(3, 4, (3, 2), bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.from_numpy(KERNEL.copy()))
    inner = torch.nn.Sequential(conv, torch.nn.ReLU())
    return torch.nn.Sequential(inner).eval()


@pytest.mark.parametrize(("value", "node"), [("0.0", "n"), ("h", "/0/0.0/Conv")])
def test_a_module_is_watched_by_the_names_of_its_parts(value: str, node: str) -> None:
    runner = runner_of(torch_network())
    verdict = check(convolution(value, "y", node), runner, {"x": IMAGE})
    assert (verdict.kind, verdict.method) == (Kind.rounding, "every node on its own inputs")
    assert verdict.subject["mode"] == "evaluation"


def test_scopes_of_exported_nodes_are_module_paths() -> None:
    assert module_path("/layer1/layer1.0/conv1/Conv") == "layer1.0.conv1"
    assert module_path("/head/Gemm") == "head"
    assert module_path("Conv_12") == ""


def test_an_exported_program_is_watched_by_its_nodes(tmp_path: Path) -> None:
    module = torch_network()
    torch = pytest.importorskip("torch", reason="torch is not installed")
    program = torch.export.export(module, (torch.from_numpy(IMAGE),))
    nodes = [n.name for n in program.graph.nodes if n.op == "call_function"]
    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    graph = convolution(*nodes)
    for runner in (runner_of(program), TorchFileRunner(path, isolated=False)):
        verdict = check(graph, runner, {"x": IMAGE})
        assert (verdict.kind, verdict.method) == (Kind.rounding, "every node on its own inputs")
    renamed = convolution("h", "y")
    verdict = check(renamed, runner_of(program), {"x": IMAGE})
    assert (verdict.kind, verdict.method) == (Kind.rounding, "outputs only")
    assert verdict.subject["outputs renamed"] == f"{nodes[-1]} as y"
    assert runner_of("torch", source=path).name == "torch:net.pt2"


@pytest.mark.slow
def test_torch_compile_is_a_subject(tmp_path: Path) -> None:
    module = torch_network()
    torch = pytest.importorskip("torch", reason="torch is not installed")
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(module, (torch.from_numpy(IMAGE),)), path)
    runner = runner_of(f"torch-compiled:{path}", threads=1)
    verdict = check(convolution("h", "y"), runner, {"x": IMAGE})
    assert (verdict.kind, verdict.subject["mode"]) == (Kind.rounding, "compiled")


def tensorflow() -> Any:
    return pytest.importorskip("tensorflow", reason="tensorflow is not installed")


def test_a_frozen_graph_is_watched_by_its_tensors(tmp_path: Path) -> None:
    tf = tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 5], name="x")
        h = tf.matmul(x, tf.constant(W), name="product")
        tf.nn.relu(tf.add(h, tf.constant(B), name="total"), name="out")
    path = tmp_path / "net.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    runner = TensorFlowRunner(path, isolated=False)
    for names in (("product", "total", "out"), ("product:0", "total:0", "out:0")):
        verdict = check(dense(*names), runner, {"x": X})
        assert (verdict.kind, verdict.method) == (Kind.rounding, "every node on its own inputs")


@pytest.mark.slow
def test_a_saved_model_and_a_tflite_file_are_subjects(tmp_path: Path) -> None:
    tf = tensorflow()

    class Net(tf.Module):  # type: ignore[misc,name-defined]
        @tf.function(input_signature=[tf.TensorSpec([3, 5], tf.float32, name="x")])
        def serve(self, x: Any) -> dict[str, Any]:
            h = tf.add(tf.matmul(x, tf.constant(W), name="product"), tf.constant(B), name="total")
            return {"out": tf.nn.relu(h, name="last")}

    net = Net()
    folder = tmp_path / "saved"
    tf.saved_model.save(net, str(folder), signatures={"serving_default": net.serve})
    verdict = check(dense("product", "total"), runner_of(f"tensorflow:{folder}"), {"x": X})
    assert verdict.kind is Kind.rounding
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    path = tmp_path / "net.tflite"
    path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert())
    runner = runner_of(f"litert:{path}", threads=1)
    verdict = check(dense(), runner, {"x": X})
    assert verdict.kind is Kind.rounding
    assert "as out" in verdict.subject["outputs renamed"]


@pytest.mark.slow
def test_tvm_is_a_subject() -> None:
    pytest.importorskip("tvm", reason="apache-tvm is not installed")
    verdict = check(dense(), runner_of("tvm"), {"x": X})
    assert (verdict.kind, verdict.method) == (Kind.rounding, "every node on its own inputs")
    assert verdict.subject["version"] != "unknown"


def test_session_options_of_onnx_runtime_can_be_set() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = {"enable_mem_pattern": False, "session.set_denormal_as_zero": "1"}
    runner = OnnxRuntimeRunner(writer=to_bytes, level="basic", options=options, isolated=False)
    verdict = check(dense(), runner, {"x": X})
    assert verdict.kind is Kind.rounding
    assert verdict.subject["enable_mem_pattern"] == "False"
    bad = OnnxRuntimeRunner(writer=to_bytes, options={"no_such": 1})
    with pytest.raises(SubjectError, match="no session option 'no_such'"):
        bad.run(dense(), {"x": X})


def test_a_program_may_be_given_the_network_as_onnx() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    code = (
        "import sys, numpy as np, onnxruntime as o; s = o.InferenceSession(sys.argv[2]); "
        "r = s.run(None, dict(np.load(sys.argv[1]))); "
        "np.savez(sys.argv[3], **{v.name: a for v, a in zip(s.get_outputs(), r)})"
    )
    runner = runner_of(f"cmd:{sys.executable} -c '{code}' {{input}} {{model}} {{output}}")
    assert isinstance(runner, CommandRunner)
    assert runner.capabilities.truncates
    assert check(dense(), runner, {"x": X}).kind is Kind.rounding


def test_inputs_of_any_name_reach_a_program() -> None:
    b = Builder("odd")
    names = ["file", "scope/x:0", "with space"]
    odd = [b.input(n, TensorType.parse("float32[3, 5]")) for n in names]
    graph = b.graph([b.add(Add(), [b.add(Add(), odd[:2]), odd[2]], ["sum"])])
    code = "import sys, numpy as np; np.savez(sys.argv[2], sum=sum(np.load(sys.argv[1]).values()))"
    inputs = {n: X * np.float32(i + 1) for i, n in enumerate(names)}
    assert (
        check(graph, runner_of(f'cmd:{sys.executable} -c "{code}"'), inputs).kind is Kind.identical
    )


def test_a_missing_package_is_answered_with_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    runner = OnnxRuntimeRunner(writer=to_bytes, isolated=False)
    with pytest.raises(MissingPackageError) as caught:
        runner.run(dense(), {"x": X})
    assert caught.value.next_step == "pip install onnxruntime"


@pytest.mark.parametrize("name", ["torch", "litert", "tensorflow"])
def test_bare_names_need_a_file_of_theirs(name: str) -> None:
    with pytest.raises(UsageError, match="runs model files"):
        runner_of(name)
    with pytest.raises(UsageError, match="suffix"):
        runner_of(name, source=__file__)


def test_every_runner_by_name_can_be_made_without_its_package() -> None:
    for name in RUNNERS:
        if name.partition("-")[0] not in ("torch", "litert", "tensorflow"):
            assert runner_of(name).name.startswith(name.partition(":")[0])
