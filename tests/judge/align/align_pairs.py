"""ONNX networks in pairs: one in the usual form, and ways to write it otherwise or to spoil it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tests.frontends.onnx_models import model

from verax.frontends.onnx import load_onnx
from verax.ir.graph import Graph

Arrays = dict[str, np.ndarray]


def weights(seed: int = 0) -> Arrays:
    """Weights of `net`: 3 x 12 x 10 images to 5 scores and 4 boxes."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return (random.standard_normal(shape) * scale).astype(np.float32)

    def spread(count: int, low: float, high: float) -> np.ndarray:
        return random.uniform(low, high, count).astype(np.float32)

    return {
        "w1": normal(8, 3, 3, 3),
        "b1": spread(8, -0.2, 0.2),
        "gamma": spread(8, 0.5, 1.5),
        "beta": spread(8, -0.4, 0.4),
        "mean": spread(8, -0.3, 0.3),
        "variance": spread(8, 0.2, 0.9),
        "w2": normal(6, 8, 3, 3),
        "w3": normal(5, 180),
        "w4": normal(4, 180),
        "b4": spread(4, -0.3, 0.3),
    }


def net(
    arrays: Arrays | None = None,
    *,
    prefix: str = "",
    batch: Any = "n",
    pads: tuple[int, ...] = (0, 0, 1, 1),
    explicit_pad: bool = False,
    folded: bool = False,
    relu_first: bool = False,
    epsilon: float = 1e-5,
) -> Graph:
    """Two convolutions, BatchNorm, a skip connection and two heads; the same function however it
    is written. prefix: of every name; relu_first: the second convolution reads another value;
    epsilon: of the folded BatchNorm."""
    w = dict(arrays or weights())
    p = prefix
    nodes = []
    x = p + "x"
    if explicit_pad:
        w["pads"] = np.array([0, 0, *pads[:2], 0, 0, *pads[2:]])
        nodes.append(helper.make_node("Pad", [x, p + "pads"], [p + "padded"], p + "pad"))
        x, pads = p + "padded", (0, 0, 0, 0)
    if folded:
        w["w1"], w["b1"] = fold(w, epsilon)
    first = [x, p + "w1", p + "b1"]
    nodes.append(
        helper.make_node("Conv", first, [p + "c1"], p + "conv1", strides=[2, 2], pads=pads)
    )
    normed = p + "c1"
    if not folded:
        norm = [normed, *(p + v for v in ("gamma", "beta", "mean", "variance"))]
        normed = p + "n1"
        nodes.append(helper.make_node("BatchNormalization", norm, [normed], p + "bn"))
    nodes += [
        helper.make_node("Relu", [normed], [p + "r1"], p + "relu1"),
        helper.make_node(
            "Conv",
            [normed if relu_first else p + "r1", p + "w2"],
            [p + "c2"],
            p + "conv2",
            pads=[1, 1, 1, 1],
        ),
        helper.make_node("Sigmoid", [p + "c2"], [p + "s2"], p + "sigmoid"),
        helper.make_node("Mul", [p + "c2", p + "s2"], [p + "m2"], p + "swish"),
        helper.make_node("Flatten", [p + "m2"], [p + "f"], p + "flatten"),
        helper.make_node("Gemm", [p + "f", p + "w3"], [p + "l"], p + "dense", transB=1),
        helper.make_node("Softmax", [p + "l"], [p + "scores"], p + "softmax"),
        helper.make_node(
            "Gemm", [p + "f", p + "w4", p + "b4"], [p + "boxes"], p + "regress", transB=1
        ),
    ]
    used = {name for node in nodes for name in node.input}
    constants = {p + k: v for k, v in w.items() if p + k in used}
    outputs = {p + "scores": [batch, 5], p + "boxes": [batch, 4]}
    return read(model(nodes, {p + "x": [batch, 3, 12, 10]}, outputs, constants))


def fold(w: Mapping[str, np.ndarray], epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of the first convolution with BatchNorm folded, rounded to float32."""
    scale = (w["gamma"] / np.sqrt(w["variance"] + np.float32(epsilon))).astype(np.float32)
    bias = (w["b1"] - w["mean"]) * scale + w["beta"]
    return w["w1"] * scale[:, None, None, None], bias.astype(np.float32)


def channels_last(
    arrays: Arrays | None = None, *, bgr: bool = False, swapped: bool = False, scaled: bool = False
) -> Graph:
    """`net` as TensorFlow would have it: NHWC input, flattened in that order, other names.

    bgr: the input's channels are in the other order; swapped: boxes come in the order [1, 0, 3, 2];
    scaled: the input is 0..255 and divided inside.
    """
    w = dict(arrays or weights())
    if bgr:
        w["w1"] = w["w1"][:, ::-1].copy()
    for name in ("w3", "w4"):
        count = w[name].shape[0]
        w[name] = w[name].reshape(count, 6, 6, 5).transpose(2, 3, 1, 0).reshape(180, count).copy()
    if swapped:
        w["w4"], w["b4"] = w["w4"][:, [1, 0, 3, 2]].copy(), w["b4"][[1, 0, 3, 2]].copy()
    nodes = []
    image = "image"
    if scaled:
        w["by"] = np.float32(1 / 255)
        nodes.append(helper.make_node("Mul", [image, "by"], ["scaled"], "scale"))
        image = "scaled"
    norm = ["t1", "gamma", "beta", "mean", "variance"]
    nodes += [
        helper.make_node("Transpose", [image], ["t0"], "t0", perm=[0, 3, 1, 2]),
        helper.make_node(
            "Conv", ["t0", "w1", "b1"], ["t1"], "conv2d", strides=[2, 2], pads=[0, 0, 1, 1]
        ),
        helper.make_node("BatchNormalization", norm, ["t2"], "norm"),
        helper.make_node("Relu", ["t2"], ["t3"], "activation"),
        helper.make_node("Conv", ["t3", "w2"], ["t4"], "conv2d_1", pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["t4"], ["t5"], "t5", perm=[0, 2, 3, 1]),
        helper.make_node("Sigmoid", ["t5"], ["t6"], "gate"),
        helper.make_node("Mul", ["t5", "t6"], ["t7"], "gated"),
        helper.make_node("Reshape", ["t7", "shape"], ["t8"], "flat"),
        helper.make_node("MatMul", ["t8", "w4"], ["t9"], "matmul"),
        helper.make_node("Add", ["t9", "b4"], ["out_b"], "biased"),
        helper.make_node("MatMul", ["t8", "w3"], ["t10"], "matmul_1"),
        helper.make_node("Softmax", ["t10"], ["out_a"], "probabilities"),
    ]
    w["shape"] = np.array([-1, 180])
    outputs = {"out_b": [2, 4], "out_a": [2, 5]}
    return read(model(nodes, {"image": [2, 12, 10, 3]}, outputs, w))


def read(made: onnx.ModelProto) -> Graph:
    """The graph of an ONNX model."""
    graph: Graph = load_onnx(made).graph
    return graph
