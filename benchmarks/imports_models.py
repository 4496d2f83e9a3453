"""One network of about 100 MB in every format, for `imports.py`: a stack of 3x3 convolutions.

    python benchmarks/imports_models.py FORMAT FOLDER      # prints the path of what it wrote

Every maker writes its file with the format's own framework and needs a process of its own.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

CHANNELS, LAYERS, SIZE = 512, 11, 8
"""The first convolution has 3 input channels, all others CHANNELS."""
SEED = 20


def kernels() -> list[np.ndarray]:
    """Weights [out, in, 3, 3] of every layer."""
    rng = np.random.default_rng(SEED)
    widths = [3, *[CHANNELS] * LAYERS]
    return [rng.standard_normal((o, i, 3, 3), dtype=np.float32) / 64 for i, o in pairwise(widths)]


def onnx(folder: Path, external: bool = False) -> Path:
    import onnx as package
    from onnx import helper, numpy_helper

    nodes, weights, value = [], [], "x"
    for i, kernel in enumerate(kernels()):
        weights.append(numpy_helper.from_array(kernel, f"w{i}"))
        nodes.append(helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        value = f"r{i}"
    shapes = ([1, 3, SIZE, SIZE], [1, CHANNELS, SIZE, SIZE])
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in zip(("x", value), shapes))
    graph = helper.make_graph(nodes, "stack", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / ("external.onnx" if external else "net.onnx")
    package.save(model, path, save_as_external_data=external, location="external.bin")
    return path


def onnx_external(folder: Path) -> Path:
    return onnx(folder, external=True)


def torch(folder: Path) -> Path:
    import torch as package

    layers: list[Any] = []
    for kernel in kernels():
        conv = package.nn.Conv2d(kernel.shape[1], kernel.shape[0], 3, padding=1, bias=False)
        conv.weight.data = package.from_numpy(kernel)
        layers += [conv, package.nn.ReLU()]
    net = package.nn.Sequential(*layers).eval()
    program = package.export.export(net, (package.zeros(1, 3, SIZE, SIZE),))
    package.export.save(program, folder / "net.pt2")
    return folder / "net.pt2"


def mlmodel(folder: Path) -> Path:
    import coremltools as ct

    inputs = [("x", ct.models.datatypes.Array(3, SIZE, SIZE))]
    outputs = [("y", ct.models.datatypes.Array(CHANNELS, SIZE, SIZE))]
    builder = ct.models.neural_network.NeuralNetworkBuilder(inputs, outputs)
    value = "x"
    for i, kernel in enumerate(kernels()):
        out, channels = kernel.shape[:2]
        made = "y" if i == LAYERS - 1 else f"r{i}"
        builder.add_convolution(
            f"c{i}", channels, out, 3, 3, 1, 1, "same", 1, kernel.transpose(2, 3, 1, 0), None,
            False, input_name=value, output_name=f"c{i}",
        )  # fmt: skip
        builder.add_activation(f"r{i}", "RELU", f"c{i}", made)
        value = made
    ct.utils.save_spec(builder.spec, str(folder / "net.mlmodel"))
    return folder / "net.mlmodel"


def mlpackage(folder: Path) -> Path:
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb

    @mb.program(input_specs=[mb.TensorSpec((1, 3, SIZE, SIZE))])
    def program(x: Any) -> Any:
        for kernel in kernels():
            x = mb.relu(x=mb.conv(x=x, weight=kernel, pad_type="same"))
        return x

    precision = ct.precision.FLOAT32
    model = ct.convert(program, compute_precision=precision, skip_model_load=True)
    model.save(str(folder / "net.mlpackage"))
    return folder / "net.mlpackage"


def _stack() -> Any:
    """A TensorFlow function of the network, NHWC, with its variables."""
    import tensorflow as tf

    class Stack(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = [tf.Variable(k.transpose(2, 3, 1, 0)) for k in kernels()]

        @tf.function(input_signature=[tf.TensorSpec([1, SIZE, SIZE, 3], tf.float32, "x")])
        def __call__(self, x: Any) -> Any:
            for weight in self.weights:
                x = tf.nn.relu(tf.nn.conv2d(x, weight, 1, "SAME"))
            return x

    return Stack()


def graph_def(folder: Path) -> Path:
    from tensorflow.python.framework import convert_to_constants as freezing

    stack = _stack()
    concrete = stack.__call__.get_concrete_function()
    frozen = freezing.convert_variables_to_constants_v2(concrete).graph.as_graph_def()
    (folder / "net.pb").write_bytes(frozen.SerializeToString())
    return folder / "net.pb"


def saved_model(folder: Path) -> Path:
    import tensorflow as tf

    stack = _stack()
    tf.saved_model.save(stack, str(folder / "saved"), stack.__call__.get_concrete_function())
    return folder / "saved"


def tflite(folder: Path) -> Path:
    import tensorflow as tf

    stack = _stack()
    concrete = stack.__call__.get_concrete_function()
    data = tf.lite.TFLiteConverter.from_concrete_functions([concrete], stack).convert()
    (folder / "net.tflite").write_bytes(data)
    return folder / "net.tflite"


def keras(folder: Path, suffix: str = "keras") -> Path:
    import keras as package

    layers: list[Any] = [package.Input((SIZE, SIZE, 3), 1)]
    for kernel in kernels():
        layers.append(package.layers.Conv2D(kernel.shape[0], 3, padding="same", use_bias=False))
        layers.append(package.layers.ReLU())
    model = package.Sequential(layers)
    model.set_weights([k.transpose(2, 3, 1, 0) for k in kernels()])
    model.save(folder / f"net.{suffix}")
    return folder / f"net.{suffix}"


def keras_h5(folder: Path) -> Path:
    return keras(folder, "h5")


def mxnet(folder: Path) -> Path:
    """Written by hand: MXNet itself is no longer maintained. Arrays have the magic 0xF993FAC9."""
    nodes: list[dict[str, Any]] = [{"op": "null", "name": "data", "attrs": {}, "inputs": []}]
    last = 0
    parameters = {"num_filter": str(CHANNELS), "kernel": "(3, 3)", "pad": "(1, 1)"}
    for i in range(LAYERS):
        at = len(nodes)
        nodes += [
            {"op": "null", "name": f"w{i}", "attrs": {}, "inputs": []},
            {"op": "Convolution", "name": f"c{i}", "attrs": {**parameters, "no_bias": "True"},
             "inputs": [[last, 0, 0], [at, 0, 0]]},
            {"op": "Activation", "name": f"r{i}", "attrs": {"act_type": "relu"},
             "inputs": [[at + 1, 0, 0]]},
        ]  # fmt: skip
        last = at + 2
    symbol = {"nodes": nodes, "heads": [[last, 0, 0]]}
    (folder / "net-symbol.json").write_text(json.dumps(symbol))
    with (folder / "net-0000.params").open("wb") as file:
        file.write(struct.pack("<QQQ", 0x112, 0, LAYERS))
        for k in kernels():
            file.write(struct.pack("<IiI4qiii", 0xF993FAC9, 0, 4, *k.shape, 1, 0, 0))
            file.write(k.tobytes())
        file.write(struct.pack("<Q", LAYERS))
        for i in range(LAYERS):
            name = f"arg:w{i}".encode()
            file.write(struct.pack("<Q", len(name)) + name)
    return folder / "net-symbol.json"


MAKERS: dict[str, Callable[[Path], Path]] = {
    "onnx": onnx,
    "onnx external": onnx_external,
    "pt2": torch,
    "pb": graph_def,
    "SavedModel": saved_model,
    "tflite": tflite,
    "h5": keras_h5,
    "keras": keras,
    "mlmodel": mlmodel,
    "mlpackage": mlpackage,
    "mxnet": mxnet,
}

if __name__ == "__main__":
    print(MAKERS[sys.argv[1]](Path(sys.argv[2])))
