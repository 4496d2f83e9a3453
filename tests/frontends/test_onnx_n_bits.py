"""MatMulNBits, the weights that language models are exported with: 4 or 8 bits in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.model import Model
from verax.frontends.onnx import load_onnx
from verax.reference.evaluate import evaluate

N, K = 7, 48


def packed(rows: np.ndarray, bits: int) -> np.ndarray:
    """Numbers (n, count), low bits first, each row in whole bytes."""
    if bits == 8:
        return rows
    rows = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2)))
    return np.asarray(rows[:, ::2] | rows[:, 1::2] << 4)


def model(
    bits: int = 4, size: int = 16, zero: bool = False, bias: bool = False, k: int = K, **more: Any
) -> tuple[onnx.ModelProto, np.ndarray]:
    """A product of x [2, 3, k] and the weights [k, N] that it means, in float64."""
    r, blocks = np.random.default_rng(bits + size + k), -(-k // size)
    whole = r.integers(0, 1 << bits, (N, blocks * size)).astype(np.uint8)
    scales = r.uniform(0.01, 0.1, (N, blocks)).astype(np.float32)
    points = r.integers(0, 1 << bits, (N, blocks)).astype(np.uint8)
    held = {"q": packed(whole, bits).reshape(N, blocks, -1), "s": scales.reshape(-1)}
    held |= {"z": packed(points, bits).reshape(-1)} if zero else {}
    held |= {"b": r.standard_normal(N).astype(np.float32)} if bias else {}
    held |= more.pop("constants", {})
    names = ["x", "q", "s", *(n if n in held else "" for n in ("z", "g", "b"))]
    while not names[-1]:
        names.pop()
    fields = {"K": k, "N": N, "bits": bits, "block_size": size, "accuracy_level": 0} | more
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **fields)
    inputs = [helper.make_tensor_value_info("x", 1, [2, 3, k])]
    outputs = [helper.make_tensor_value_info("y", 1, [2, 3, N])]
    kept = [numpy_helper.from_array(a, n) for n, a in held.items()]
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "one", inputs, outputs, kept)
    made = helper.make_model(graph, opset_imports=sets, ir_version=10)
    offset = points if zero else np.full_like(points, 1 << (bits - 1))
    spread = [np.repeat(a.astype(np.float64), size, axis=1) for a in (offset, scales)]
    return made, ((whole - spread[0]) * spread[1])[:, :k].T


def loaded() -> Model:
    return load_onnx(model()[0])


CASES: list[dict[str, Any]] = [
    {}, {"zero": True, "bias": True}, {"bits": 8}, {"bits": 8, "zero": True, "size": 32},
    {"size": 32, "k": 40, "zero": True}, {"k": 33}, {"bias": True, "size": 16},
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_the_product_with_dequantised_weights(case: dict[str, Any]) -> None:
    made, weights = model(**case)
    x = np.random.default_rng(6).standard_normal((2, 3, len(weights))).astype(np.float32)
    (y,) = evaluate(load_onnx(made).graph, {"x": x}).values()
    bias = [numpy_helper.to_array(t) for t in made.graph.initializer if t.name == "b"]
    np.testing.assert_allclose(y, x.astype(np.float64) @ weights + sum(bias), rtol=1e-5, atol=1e-5)
    exe = verax.compile(made, opt_level=1, threads=1)
    np.testing.assert_allclose(exe.run({"x": x})["y"], y, rtol=1e-5, atol=1e-5)
    assert not exe.plan.on_reference


@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_onnx_runtime_agrees(case: dict[str, Any]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    made, weights = model(**case)
    x = np.random.default_rng(7).standard_normal((2, 3, len(weights))).astype(np.float32)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = session.run(None, {"x": x})
    (y,) = evaluate(load_onnx(made).graph, {"x": x}).values()
    np.testing.assert_allclose(given, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"constants": {"g": np.zeros(K, np.int32)}}, "g_idx"),
        ({"bits": 4, "N": N + 1}, "bytes"),
        ({"bits": 4, "K": 2 * K}, "bytes"),
        ({"constants": {"s": np.ones(5, np.float32)}}, "scales"),
        ({"constants": {"z": np.ones(N * 3, np.float32)}}, "zero points"),
    ],
)
def test_what_is_not_read_is_refused(case: dict[str, Any], why: str) -> None:
    made, _ = model(**case)
    with pytest.raises(UnsupportedError, match=why):
        load_onnx(made)
    made, _ = model()
    for attribute in made.graph.node[0].attribute:
        if attribute.name == "bits":
            attribute.i = 3
    with pytest.raises(UnsupportedError, match="3 bits"):
        load_onnx(made)
