"""One small network of every format whose file leaves sizes open."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from onnx import helper
from tests.formats.small_files import (
    Files,
    keras_dense,
    saved_model,
    tf_conv,
    torch_conv,
)
from tests.frontends.from_coreml.coreml_models import network, setting
from tests.frontends.from_keras.h5_files import sequential
from tests.frontends.from_mxnet.mxnet_models import params_bytes, symbol
from tests.frontends.from_tflite.tflite_writer import T, const, one
from tests.frontends.onnx_models import model as onnx_model

Sizes = tuple[int, ...]


def _onnx() -> Files:
    kernel = np.random.default_rng(1).standard_normal((4, 3, 3, 2), dtype=np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    made = onnx_model(nodes, {"x": ["batch", 3, None, "width"]}, {"y": None}, {"w": kernel})
    return {"net.onnx": made.SerializeToString()}


def _tflite() -> Files:
    weights = const(np.arange(3, dtype=np.float32))
    x = T((1, 5, 3), signature=(-1, 5, 3))
    y = T((1, 5, 3), signature=(-1, 5, 3))
    return {"net.tflite": one("ADD", [x, weights], y)}


def _keras() -> Files:
    kernel = np.random.default_rng(1).standard_normal((3, 2, 3, 4)).astype(np.float32)
    config = {"filters": 4, "kernel_size": [3, 2], "strides": [2, 1], "use_bias": False}
    return {"net.h5": sequential([("Conv2D", config, [kernel])], [None, None, None, 3])}


def _coreml() -> Files:
    kernel = np.random.default_rng(1).uniform(-1, 1, (4, 3, 3, 2)).astype(np.float32)
    base = {"outputChannels": 4, "kernelChannels": 3, "kernelSize": (3, 2), "weights": kernel}
    layers = [("convolution", "c", ["x"], ["y"], setting(**base, valid=None))]
    made = network(layers, {"x": (1, 3, 9, 7)}, {"y": ()})
    ranges = made.description.input[0].type.multiArrayType.shapeRange.sizeRanges
    for low, high in ((1, -1), (3, 3), (5, 20), (4, -1)):
        ranges.add(lowerBound=low, upperBound=high)
    return {"net.mlmodel": made.SerializeToString()}


def _mxnet() -> Files:
    conv = {"kernel": "(3, 2)", "num_filter": "4", "stride": "(2, 1)", "no_bias": "True"}
    nodes = symbol(("null", "x", {}, []), ("null", "w", {}, []), ("Convolution", "y", conv, [0, 1]))
    kernel = np.random.default_rng(3).standard_normal((4, 3, 3, 2), dtype=np.float32)
    return {
        "net-symbol.json": json.dumps(nodes).encode(),
        "net-0000.params": params_bytes({"arg:w": kernel}),
    }


OPEN: dict[str, tuple[Callable[[], Files], str, tuple[bool, ...], Sizes]] = {
    "onnx": (_onnx, "x", (True, False, True, True), (2, 3, 9, 7)),
    "pt2": (lambda: torch_conv(("s0", 3, "s1", 5)), "x", (True, False, True, False), (2, 3, 9, 5)),
    "pb": (lambda: tf_conv((-1, -1, 8, 3)), "x", (True, True, False, False), (2, 9, 8, 3)),
    "SavedModel": (saved_model, "x", (True, False), (4, 5)),
    "tflite": (_tflite, "x0", (True, False, False), (2, 5, 3)),
    "h5": (_keras, "x", (True, True, True, False), (2, 9, 7, 3)),
    "h5 dense": (keras_dense, "x", (True, False), (4, 5)),
    "mlmodel": (_coreml, "x", (True, False, True, True), (2, 3, 9, 7)),
    "mxnet": (_mxnet, "x", (True, False, True, True), (2, 3, 9, 7)),
}
"""Files, the input, which of its sizes are open, and sizes that fit."""
