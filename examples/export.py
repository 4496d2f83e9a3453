"""Exports the example network to the formats of other frameworks, each by the framework's own tool.

    pip install torch==2.13.0 tensorflow coremltools
    python examples/export.py           # reads examples/digits/digits.onnx, writes beside it

Written are digits.pt2 (PyTorch), digits.keras and digits.h5 (Keras), digits.pb (TensorFlow,
frozen), digits.tflite (TensorFlow Lite, which folds the BatchNorms) and digits.mlmodel (CoreML).
The networks of Keras, TensorFlow and TFLite are channels-last. `verax check
examples/digits/digits.onnx FILE` says of each that it is the same function.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from train import COLUMNS, FOLDER, ROWS, DigitNet

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
BATCH_NORMS = {
    "weight": "scale",
    "bias": "shift",
    "running_mean": "mean",
    "running_var": "variance",
}
"""torch's names of a BatchNorm's numbers -> those in the ONNX file."""


def weights(path: Path) -> dict[str, np.ndarray]:
    """The trained numbers by name."""
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


class Digits(nn.Module):
    """The trained network with both outputs as the ONNX file has them."""

    def __init__(self, numbers: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.net = DigitNet()
        state = self.net.state_dict()
        for key in state:
            layer, _, name = key.rpartition(".")
            stored = numbers.get(
                f"{layer}.{BATCH_NORMS.get(name, name) if '_bn' in layer else name}"
            )
            if stored is not None:
                state[key] = torch.from_numpy(stored.copy())
        self.net.load_state_dict(state)
        self.eval()

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, drawing = self.net(image)
        return logits.softmax(1), drawing.sigmoid()


def to_torch(module: Digits, target: Path) -> None:
    """A program of torch.export with an open batch."""
    sizes = {"image": {0: torch.export.Dim("batch", max=1024)}}
    image = (torch.zeros(2, 1, ROWS, COLUMNS),)
    program = torch.export.export(module, image, dynamic_shapes=sizes)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    torch.export.save(program, target)


def to_coreml(module: Digits, target: Path) -> None:
    """A neural network specification for one image."""
    import coremltools

    image = torch.zeros(1, 1, ROWS, COLUMNS)
    traced = torch.jit.trace(module, image)
    model = coremltools.convert(
        traced,
        convert_to="neuralnetwork",
        inputs=[coremltools.TensorType("image", image.shape)],
        outputs=[coremltools.TensorType("probabilities"), coremltools.TensorType("drawing")],
    )
    model.save(str(target))


def keras_network(numbers: dict[str, np.ndarray]) -> Any:
    """The same network in Keras, channels-last."""
    import keras
    from keras import layers

    def conv(x: Any, name: str, padding: str = "same", stride: int = 1) -> Any:
        w = numbers[f"{name}.weight"].transpose(2, 3, 1, 0)
        biases = [numbers[f"{name}.bias"]] if f"{name}.bias" in numbers else []
        size, channels = w.shape[:2], w.shape[3]
        layer = layers.Conv2D(channels, size, stride, padding, use_bias=bool(biases), name=name)
        y = layer(x)
        layer.set_weights([w, *biases])
        return y

    def norm(x: Any, name: str) -> Any:
        layer = layers.BatchNormalization(epsilon=1e-5, name=name)
        y = layer(x)
        layer.set_weights([numbers[f"{name}.{k}"] for k in ("scale", "shift", "mean", "variance")])
        return y

    def up(x: Any, name: str, output_padding: tuple[int, int], activation: str) -> Any:
        """torch crops one element at the beginning and 1 - output_padding at the end."""
        w = numbers[f"{name}.weight"].transpose(2, 3, 1, 0)
        layer = layers.Conv2DTranspose(w.shape[2], w.shape[:2], 2, "valid", name=name)
        y = layer(x)
        layer.set_weights([w, numbers[f"{name}.bias"]])
        crop = tuple((1, 1 - p) for p in output_padding)
        return layers.Activation(activation)(layers.Cropping2D(crop)(y))

    image = keras.Input((ROWS, COLUMNS, 1), name="image")
    x = layers.ReLU()(norm(conv(image, "stem"), "stem_bn"))
    x = layers.ReLU(6.0)(norm(conv(x, "down1", stride=2), "down1_bn"))
    layer = layers.DepthwiseConv2D((3, 5), padding="same", use_bias=False, name="depthwise")
    y = layer(x)
    layer.set_weights([numbers["depthwise.weight"].transpose(2, 3, 0, 1)])
    y = layers.ReLU()(norm(y, "depthwise_bn"))
    y = norm(conv(y, "pointwise"), "pointwise_bn")
    x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.ReLU()(norm(conv(x, "down2", stride=2), "down2_bn"))
    x = layers.ReLU()(conv(x, "down3", stride=2))
    dense = layers.Dense(10, "softmax", name="classify")
    probabilities = dense(layers.GlobalAveragePooling2D()(x))
    dense.set_weights([numbers["classify.weight"].T, numbers["classify.bias"]])
    y = up(x, "up1", (1, 0), "relu")
    y = up(y, "up2", (1, 1), "relu")
    return keras.Model(image, [probabilities, up(y, "up3", (1, 1), "sigmoid")], name="digits")


def to_tensorflow(net: Any, folder: Path) -> None:
    """A frozen graph, and a TFLite file for one image."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    spec = tf.TensorSpec([None, ROWS, COLUMNS, 1], tf.float32, name="image")
    concrete = tf.function(lambda image: net(image, training=False)).get_concrete_function(spec)
    frozen = convert_variables_to_constants_v2(concrete).graph.as_graph_def()
    (folder / "digits.pb").write_bytes(frozen.SerializeToString(deterministic=True))
    one = tf.TensorSpec([1, ROWS, COLUMNS, 1], tf.float32, name="image")
    single = tf.function(lambda image: net(image, training=False)).get_concrete_function(one)
    single = convert_variables_to_constants_v2(single)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([single])
    (folder / "digits.tflite").write_bytes(converter.convert())


def main() -> int:
    warnings.simplefilter("ignore")
    numbers = weights(FOLDER / "digits.onnx")
    module = Digits(numbers)
    to_torch(module, FOLDER / "digits.pt2")
    to_coreml(module, FOLDER / "digits.mlmodel")
    net = keras_network(numbers)
    net.save(FOLDER / "digits.keras")
    net.save(FOLDER / "digits.h5")
    to_tensorflow(net, FOLDER)
    for path in sorted(FOLDER.glob("digits.*")):
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
