"""Honest sums of a region in an order that its weights make worse than others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.records.verdict import Kind

SIZE, FILTERS = 64, 24


def network() -> onnx.ModelProto:
    """Channels last around a convolution of 3 x 3 and a bounded rectifier. Filter 0 holds the
    first half of its window against the second: its sums pixel by pixel grow large and vanish, its
    sums colour by colour stay small."""
    rng = np.random.default_rng(81)
    w = 0.05 * rng.standard_normal((FILTERS, 3, 3, 3)).astype(np.float32)
    sign = np.where(np.arange(9) < 4, 1.0, -0.8).reshape(3, 3)
    w[0] = (6.0 * sign * (1 + 0.02 * rng.standard_normal((3, 3, 3)))).astype(np.float32)
    constants = {
        "w": w,
        "b": rng.uniform(1, 2, FILTERS).astype(np.float32),
        "low": np.float32(0),
        "high": np.float32(6),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w", "b"], ["c"], strides=[2, 2], pads=[0, 0, 1, 1]),
        helper.make_node("Clip", ["c", "low", "high"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=[0, 2, 3, 1]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE, SIZE, 3])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(np.asarray(a), k) for k, a in constants.items()]
    graph = helper.make_graph(nodes, "net", [given], [made], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def pixel_by_pixel(x: np.ndarray, proto: onnx.ModelProto, fused: bool) -> np.ndarray:
    """The network in float32, as TFLite's kernels sum: row, column, colour, then the bias. fused:
    products are rounded with the sum, not before."""
    w, b = (numpy_helper.to_array(proto.graph.initializer[i]) for i in (0, 1))
    padded = np.pad(x[0], ((0, 1), (0, 1), (0, 0)))
    out = (SIZE - 2) // 2 + 1
    acc = np.zeros((out, out, FILTERS), np.float32)
    for i in range(3):
        for j in range(3):
            for c in range(3):
                seen = padded[i : i + 2 * out : 2, j : j + 2 * out : 2, c, None]
                wide = seen.astype(np.float64) * w[:, c, i, j]
                acc = (acc + (wide if fused else wide.astype(np.float32))).astype(np.float32)
    return np.clip(acc + b, 0, 6)[None]


def image() -> np.ndarray:
    rng = np.random.default_rng(82)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    waves = [0.5 + 0.2 * np.sin(5 * rows + 3 * columns * (c + 1)) for c in range(3)]
    noise = 0.02 * rng.standard_normal((SIZE, SIZE, 3))
    return (np.stack(waves, -1) + noise).astype(np.float32)[None]


@pytest.mark.parametrize("fused", [False, True])
def test_an_honest_order_is_never_a_mistake(fused: bool) -> None:
    proto, x = network(), image()
    found = verax.check(verax.load(proto), {"y": pixel_by_pixel(x, proto, fused)}, {"x": x})
    assert found.kind is Kind.rounding, found.reasons


def test_a_weight_off_by_two_hundredths_is_a_mistake() -> None:
    proto, x = network(), image()
    wrong = network()
    w = numpy_helper.to_array(wrong.graph.initializer[0]).copy()
    w[5, 1, 2, 0] *= 1.02
    wrong.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "w"))
    found = verax.check(verax.load(proto), {"y": pixel_by_pixel(x, wrong, False)}, {"x": x})
    assert found.kind is Kind.mistake
