"""A line of -inf, as the scores of a query that may attend to nothing: what each runtime that is
here gives is what is read (the table is in docs/formats.md)."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.onnx import load_onnx

BATCH, HEADS, QUERIES, KEYS, FEATURES = 2, 3, 5, 7, 8


def lines() -> np.ndarray:
    x = np.random.default_rng(51).standard_normal((4, 6)).astype(np.float32)
    x[1] = x[2, 1:] = -np.inf
    return x


def softmax_file() -> bytes:
    x, y = (helper.make_tensor_value_info(n, 1, [4, 6]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "net", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def by_onnx_runtime(file: bytes, feeds: dict[str, np.ndarray]) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def by_openvino(file: bytes, feeds: dict[str, np.ndarray]) -> np.ndarray:
    openvino = pytest.importorskip("openvino", reason="openvino is not installed")
    core = openvino.Core()
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(file, b""), "CPU", hint)
    return np.array(compiled(feeds)[0])


@pytest.mark.parametrize("run", [by_onnx_runtime, by_openvino])
def test_softmax_of_onnx_is_nan(run) -> None:  # type: ignore[no-untyped-def]
    feeds = {"x": lines()}
    given, meant = run(softmax_file(), feeds), verax.reference(load_onnx(softmax_file()), feeds)
    assert np.isnan(given[1]).all() and np.isfinite(given[[0, 2, 3]]).all()
    np.testing.assert_allclose(meant["y"], given, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("is_reference", [True, False])
def test_softmax_of_tensorflow_lite_is_nan(
    is_reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "from_tflite"))
    peer, writer = (importlib.import_module(f"tflite_{n}") for n in ("peer", "writer"))
    file = writer.one("SOFTMAX", [writer.T((4, 6))], writer.T((4, 6)), beta=1.0)
    model = importlib.import_module("verax.frontends.tflite").load_tflite(file)
    feeds = {next(iter(model.inputs)): lines()}
    (given,) = peer.litert(file, feeds, reference=is_reference).values()
    assert np.isnan(given[1]).all() and np.isfinite(given[[0, 2, 3]]).all()
    np.testing.assert_allclose(verax.reference(model, feeds)["y"], given, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "float32"])
@pytest.mark.parametrize("version", [23, 24])
def test_attention_of_onnx_gives_zeros(version: int, kind: str) -> None:
    keep = np.random.default_rng(52).random((BATCH, 1, QUERIES, KEYS)) < 0.6
    keep[..., 3] = True
    keep[1, :, 2:4] = False
    mask = keep if kind == "bool" else np.where(keep, 0, -np.inf).astype(np.float32)
    g = np.random.default_rng(53)
    sizes = {"q": QUERIES, "k": KEYS, "v": KEYS}
    shapes = {n: (BATCH, HEADS, size, FEATURES) for n, size in sizes.items()}
    feeds = {n: g.standard_normal(s).astype(np.float32) for n, s in shapes.items()} | {"m": mask}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    node, y = helper.make_node("Attention", list(feeds), ["y"]), onnx.ValueInfoProto(name="y")
    y.type.tensor_type.elem_type = 1
    graph = helper.make_graph([node], "net", inputs, [y])
    opsets = [helper.make_opsetid("", version)]
    file = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    given = by_onnx_runtime(file, feeds)
    assert not given[1, :, 2:4].any() and given[0].any()
    model = load_onnx(file)
    found = [verax.reference(model, feeds), verax.compile(model, opt_level=1).run(feeds)]
    for answer in found:
        np.testing.assert_allclose(answer["y"], given, rtol=2e-6, atol=2e-6)


def test_which_key_a_query_stands_at_must_be_said() -> None:
    """ONNX Runtime's last query sees every key then, and no text says where the others stand."""
    g = np.random.default_rng(54)
    feeds = {n: g.standard_normal((2, s, 24)).astype(np.float32) for n, s in zip("qkv", (5, 7, 7))}
    inputs = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in feeds.items()]
    node = helper.make_node(
        "MultiHeadAttention", list("qkv"), ["y"], domain="com.microsoft",
        num_heads=3, unidirectional=1,
    )  # fmt: skip
    y = helper.make_tensor_value_info("y", 1, [2, 5, 24])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_graph([node], "net", inputs, [y])
    with pytest.raises(UnsupportedError, match="5 queries and 7 keys"):
        load_onnx(helper.make_model(made, opset_imports=opsets, ir_version=8))
