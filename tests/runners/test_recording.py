"""`verax.record` keeps what a session or a module computes, as `check` takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.base.errors import InputError, UsageError
from verax.records.verdict import Kind

AGREE = (Kind.identical, Kind.rounding)
X = np.random.default_rng(21).standard_normal((2, 3, 9, 7)).astype(np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x [n, 3, 9, 7] -> conv -> relu -> mean -> y [n, 5], all named."""
    weights = np.random.default_rng(22).standard_normal((5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[0, 1, 1, 0]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("ReduceMean", ["r"], ["y"], "mean", axes=[2, 3], keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *X.shape[1:]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(weights, "w")])
    path = tmp_path_factory.mktemp("recording") / "net.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


@pytest.fixture
def runtime() -> Any:
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def test_a_session_is_recorded_with_all_its_values(
    runtime: Any, file: Path, tmp_path: Path
) -> None:
    session = runtime.InferenceSession(str(file))
    found = verax.record(session, {"x": X}, tmp_path / "seen.npz")
    assert list(found) == ["in:x", "out:c", "out:r", "out:y"]
    np.testing.assert_array_equal(found["in:x"], X)
    with np.load(tmp_path / "seen.npz") as stored:
        assert {k: v.tobytes() for k, v in stored.items()} == {
            k: v.tobytes() for k, v in found.items()
        }
    verdict = verax.check(file, tmp_path / "seen.npz")
    assert verdict.kind in AGREE and verdict.method == "every node on its own inputs"


def test_a_fault_in_a_record_is_blamed_on_its_node(runtime: Any, file: Path) -> None:
    found = verax.record(runtime.InferenceSession(str(file)), X)
    found["out:r"] = found["out:r"] + np.float32(0.125)
    blamed = {b.node for b in verax.check(file, found).blame}
    assert blamed == {"relu", "mean"}


def test_a_record_of_outputs_alone_says_so(runtime: Any, file: Path) -> None:
    session = runtime.InferenceSession(file.read_bytes())
    found = verax.record(session, X, inner=False)
    assert list(found) == ["in:x", "out:y"]
    assert found["out:y"].tobytes() == session.run(None, {"x": X})[0].tobytes()
    verdict = verax.check(file, found)
    assert verdict.kind in AGREE and verdict.method == "outputs only"
    assert any("only outputs were recorded" in n for n in verdict.notes)
    assert "only outputs were recorded" not in str(verax.check(file, verax.record(session, X)))


def test_a_session_itself_is_a_subject(runtime: Any, file: Path) -> None:
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(str(file), options)
    verdict = verax.check(file, session, X)
    assert verdict.kind in AGREE and verdict.method == "every node on its own inputs"
    assert verdict.subject["name"] == "onnxruntime:net.onnx"
    assert "CPUExecutionProvider" in verdict.subject["providers"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_module_is_recorded_by_hooks(dtype: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(23)
    net = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    net = net.to(getattr(torch, dtype)).eval()
    x = torch.randn(2, 7).to(getattr(torch, dtype))
    found = verax.record(net, (x,), tmp_path / "seen.npz")
    assert list(found) == ["in:input", "out:linear", "out:relu", "out:linear_1"]
    assert found["out:linear_1"].shape == (2, 3)
    model = verax.load(net, inputs=(x,))
    verdict = verax.check(model, tmp_path / "seen.npz")
    assert verdict.kind in AGREE and verdict.method == "every node on its own inputs"


def test_other_subjects_are_recorded_with_their_network(file: Path, tmp_path: Path) -> None:
    found = verax.record("verax:O0", X, model=file)
    assert list(found) == ["in:x", "out:c", "out:r", "out:y"]
    function = verax.record(lambda x: found["out:y"], X, tmp_path / "f.npz", model=file)
    assert list(function) == ["in:x", "out:y"]
    assert verax.check(file, tmp_path / "f.npz").kind in AGREE


def test_what_cannot_be_recorded_is_said(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which network"):
        verax.record(lambda x: x, X)
    with pytest.raises(UsageError, match=r"\.npz files"):
        verax.record("verax:O0", X, tmp_path / "a.json", model=file)
    with pytest.raises(UsageError, match="gave no value"):
        verax.record(lambda x: {"z": x}, X, model=file)
    with pytest.raises(InputError, match="by name"):
        verax.record("verax:O0", "x.npz", model=file)
