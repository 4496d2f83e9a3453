"""Writes networks.npz: small networks of TensorFlow's converter in every kind of quantisation, with
an input and what LiteRT's reference kernels give for it.

Run as a module where TensorFlow 2.21, Keras 3 and LiteRT are installed; the tests read the file.
Arrays: "NAME/KIND.tflite" (bytes), "NAME/KIND.in", "NAME/KIND.out" (one input, one output).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L
from tests.frontends.from_tflite.tflite_peer import litert

TARGET = Path(__file__).with_name("networks.npz")
KINDS = ("float32", "float16", "dynamic", "int8", "int16")
LITE = tf.lite.OpsSet


def normalised(x: Any, act: str | None = "relu6") -> Any:
    x = L.BatchNormalization(epsilon=1e-3)(x)
    return L.Activation(act)(x) if act else x


def mobile(act: str) -> keras.Model:
    """Inverted residuals with squeeze and excitation, as in MobileNetV3 and EfficientNet."""
    x = inputs = L.Input((17, 14, 3))
    x = normalised(L.Conv2D(8, 3, 2, "same", use_bias=False)(x), act)
    for size, stride, out in ((3, 1, 8), (5, 2, 12), (3, 1, 12)):
        y = normalised(L.Conv2D(2 * x.shape[-1], 1, use_bias=False)(x), act)
        y = normalised(L.DepthwiseConv2D(size, stride, "same", use_bias=False)(y), act)
        s = L.GlobalAveragePooling2D(keepdims=True)(y)
        s = L.Conv2D(5, 1, activation="relu")(s)
        s = L.Conv2D(y.shape[-1], 1, activation="hard_sigmoid")(s)
        y = normalised(L.Conv2D(out, 1, use_bias=False)(L.Multiply()([y, s])), None)
        x = L.Add()([x, y]) if x.shape == y.shape else y
    x = L.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, L.Softmax()(L.Dense(7)(x)))


def painter() -> keras.Model:
    """An encoder and decoder: transposed convolutions, resizing, joins, leaky slopes, tanh."""
    x = inputs = L.Input((12, 16, 3))
    a = L.PReLU(shared_axes=(1, 2), alpha_initializer="uniform")(L.Conv2D(6, 3, padding="same")(x))
    b = L.LeakyReLU(negative_slope=0.2)(
        L.Conv2D(9, 3, 2, "valid")(L.ZeroPadding2D(((0, 1), (1, 0)))(a))
    )
    c = L.MaxPooling2D(3, 2, "same")(b)
    c = L.DepthwiseConv2D(3, dilation_rate=1, depth_multiplier=2, padding="same")(c)
    d = L.Conv2DTranspose(9, 3, 2, "same", activation="relu")(c)
    d = L.Concatenate()([d, b])
    d = L.AveragePooling2D(2, 1, "same")(L.Conv2D(5, 3, padding="same", dilation_rate=2)(d))
    d = L.UpSampling2D(2, interpolation="bilinear")(d)
    d = L.Concatenate()([d, L.Minimum()([a, L.Maximum()([a, a])])])
    return keras.Model(inputs, L.Conv2D(4, 3, padding="same", activation="tanh")(d))


def reader() -> keras.Model:
    """One block of a transformer over patches: products of activations, softmax, normalisation."""
    x = inputs = L.Input((12, 8, 3))
    x = L.Reshape((6, 12))(L.Conv2D(12, 4, 4)(x))
    heads, width = 3, 4
    y = L.LayerNormalization(epsilon=1e-3)(x)
    q, k, v = (L.Permute((2, 1, 3))(L.Reshape((6, heads, width))(L.Dense(12)(y))) for _ in range(3))
    scores = L.Softmax()(L.Rescaling(0.5)(Product(transpose_b=True)([q, k])))
    y = L.Reshape((6, 12))(L.Permute((2, 1, 3))(Product()([scores, v])))
    x = L.Add()([x, L.Dense(12)(y)])
    y = L.Dense(20, activation="gelu")(L.LayerNormalization(epsilon=1e-3)(x))
    x = L.Add()([x, L.Dense(12)(y)])
    return keras.Model(inputs, L.Activation("sigmoid")(L.Dense(5)(L.Flatten()(x))))


class Product(L.Layer):
    """The product of two stacks of matrices."""

    def __init__(self, transpose_b: bool = False) -> None:
        super().__init__()
        self.transpose_b = transpose_b

    def call(self, operands: Any) -> Any:
        return tf.matmul(*operands, transpose_b=self.transpose_b)


def detector() -> keras.Model:
    """Two heads of a detector joined to rows of (box, scores)."""
    x = inputs = L.Input((24, 16, 3))
    rows = []
    for out in (10, 12, 14):
        x = normalised(L.SeparableConv2D(out, 3, 2, "same", use_bias=False)(x))
        rows.append(L.Reshape((-1, 7))(L.Conv2D(14, 3, padding="same")(x)))
    joined = L.Concatenate(axis=1)(rows[1:])
    scores = L.Activation("sigmoid")(L.Cropping1D((0, 0))(joined)[:, :, 4:])
    return keras.Model(inputs, L.Concatenate(axis=2)([joined[:, :, :4], scores]))


NETWORKS: dict[str, Callable[[], keras.Model]] = {
    "mobile": lambda: mobile("relu6"),
    "mobile_swish": lambda: mobile("silu"),
    "mobile_hard_swish": lambda: mobile("hard_swish"),
    "painter": painter,
    "reader": reader,
    "detector": detector,
}


def made(name: str) -> keras.Model:
    """The network with seeded weights, none of them where training starts."""
    keras.utils.set_random_seed(7)
    model, rng = NETWORKS[name](), np.random.default_rng(7)
    for v in model.variables:
        if "moving_variance" in v.path or "gamma" in v.path:
            v.assign(rng.uniform(0.5, 1.5, v.shape))
        elif any(word in v.path for word in ("moving_mean", "beta", "bias")):
            v.assign(rng.normal(0, 0.2, v.shape))
        elif "kernel" in v.path:
            v.assign(v * 1.4)
    return model


def images(model: keras.Model, count: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(11)
    for _ in range(count):
        yield rng.uniform(-1, 1, (1, *model.input_shape[1:])).astype(np.float32)


def converted(model: keras.Model, kind: str) -> bytes:
    c = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind != "float32":
        c.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        c.target_spec.supported_types = [tf.float16]
    if kind in ("int8", "int16"):
        wide = LITE.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        c.representative_dataset = lambda: ([x] for x in images(model, 8))
        c.target_spec.supported_ops = [wide if kind == "int16" else LITE.TFLITE_BUILTINS_INT8]
        c.inference_input_type = c.inference_output_type = tf.dtypes.as_dtype(kind)
    return c.convert()


def main() -> None:
    found: dict[str, np.ndarray] = {}
    for name in NETWORKS:
        model = made(name)
        x = np.concatenate(list(images(model, 2)))
        for kind in KINDS:
            try:
                data = converted(model, kind)
            except Exception as error:  # the converter names what it cannot quantise
                print(f"{name} {kind}: {str(error).splitlines()[0][:150]}")
                continue
            given = x
            if kind.startswith("int"):
                interpreter = tf.lite.Interpreter(model_content=data)
                scale, zero = interpreter.get_input_details()[0]["quantization"]
                info = np.iinfo(kind)
                given = np.clip(np.rint(x / scale) + zero, info.min, info.max).astype(kind)
            (input_name,) = (
                d["name"] for d in tf.lite.Interpreter(model_content=data).get_input_details()
            )
            (output,) = litert(data, {input_name: given}).values()
            key = f"{name}/{kind}"
            found[f"{key}.tflite"] = np.frombuffer(data, np.uint8)
            found[f"{key}.in"], found[f"{key}.out"] = given, output
            print(key, len(data), output.shape, output.std())
    np.savez_compressed(TARGET, **found)


if __name__ == "__main__":
    main()
