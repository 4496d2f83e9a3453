"""Networks with values of 8 and 4 bits are judged node by node: honest runs of ONNX Runtime pass, a
planted step of one number is found."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from verax.frontends.onnx import load_onnx
from verax.ir.types import DType
from verax.judge.check import check
from verax.judge.protocol import as_declared
from verax.onnx_format.dtypes import CODES
from verax.records.verdict import Kind
from verax.runners.arrays import ArraysRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def network(kind: str) -> bytes:
    """Weights in blocks, values between two quantisers and through a cast and back, in `kind`."""
    rng = np.random.default_rng(11)
    dtype = np.dtype(getattr(ml_dtypes, kind))
    weights = rng.integers(-7, 8, (16, 12)).astype(np.float32)
    weights = (weights + 8 if kind == "uint4" else weights).astype(dtype)
    constants = {
        "wq": weights,
        "ws": rng.uniform(0.05, 0.1, (2, 12)).astype(np.float32),
        "s": np.float32(0.3),
        "z": np.zeros((), dtype),
        "v": rng.normal(0, 0.3, (12, 5)).astype(np.float32),
    }
    make = helper.make_node
    nodes = [
        make("DequantizeLinear", ["wq", "ws"], ["w"], axis=0, block_size=8),
        make("MatMul", ["x", "w"], ["h"]),
        make("QuantizeLinear", ["h", "s", "z"], ["q"]),
        make("DequantizeLinear", ["q", "s", "z"], ["d"]),
        make("Cast", ["d"], ["c"], to=CODES[DType(kind)]),
        make("Cast", ["c"], ["e"], to=TensorProto.FLOAT),
        make("MatMul", ["e", "v"], ["y"]),
    ]
    if not kind.startswith("float"):
        nodes[4:6] = [make("Identity", ["d"], ["e"])]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [6, 16]), ("y", [6, 5]))
    ]
    stored = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    opsets = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()


def drawn() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).normal(size=(6, 16)).astype(np.float32)}


@pytest.mark.parametrize("kind", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2"])
def test_onnxruntime_is_seen_at_every_node_and_passes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(network(kind))
    graph = load_onnx(path).graph
    subject = OnnxRuntimeRunner(path, isolated=False)
    verdict = check(graph, subject, drawn())
    assert verdict.kind in (Kind.identical, Kind.rounding)
    judged = {f.value for f in verdict.nodes}
    assert judged >= {"w", "h", "q", "d", "e", "y"}, judged
    assert all(f.kind in (Kind.identical, Kind.rounding) for f in verdict.nodes)


@pytest.mark.parametrize("kind", ["int4", "float8_e4m3fn"])
def test_a_number_one_step_off_is_a_mistake(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(network(kind))
    graph = load_onnx(path).graph
    keep = [v for node in graph.nodes for v in node.outputs]
    values = OnnxRuntimeRunner(path, isolated=False).run(graph, drawn(), keep)
    q = as_declared(graph, "q", values["q"]).copy()
    place = np.unravel_index(np.argmin(np.abs(q.astype(np.float64) - 2)), q.shape)
    q[place] = q[place].astype(np.float64) + (1 if kind == "int4" else 0.25)
    verdict = check(graph, ArraysRunner({**values, "q": q}), drawn())
    wrong = {f.value for f in verdict.nodes if f.kind is Kind.mistake}
    assert "q" in wrong


@pytest.mark.parametrize("kind", ["int4", "float8_e4m3fn"])
def test_what_stands_for_an_array_is_taken_for_it(kind: str) -> None:
    graph = load_onnx(network(kind)).graph
    declared = graph.types["q"].dtype
    numbers = np.array([[1, 2, 0, 1]]).astype(declared.numpy)
    recorded = numbers.view("V1")
    found = as_declared(graph, "q", recorded)
    assert found.dtype == declared.counted
    np.testing.assert_array_equal(found.astype(float), numbers.astype(float))
    if declared.is_float:
        for other in (numbers.view(np.uint8), numbers.astype(np.float32)):
            shown = as_declared(graph, "q", other)
            np.testing.assert_array_equal(shown.view(np.uint8), numbers.view(np.uint8))
        strange = np.float32([[0.3]])
        assert as_declared(graph, "q", strange) is strange
