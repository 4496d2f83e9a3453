"""Small Keras models, one per layer and option, made with Keras itself. Dimensions differ pairwise.

Weights are drawn, statistics of BatchNormalization too, so that no layer is near an identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.frontends.from_keras.keras_graphs import GRAPHS, graph

IMAGE = (9, 8, 3)
LINE = (11, 3)
CUBE = (5, 6, 7, 2)
Maker = Callable[[Any], Any]
"""From keras.layers to a layer, or to a function of one tensor."""


LAYERS: dict[str, tuple[tuple[int, ...], Maker]] = {
    "Conv1D": (LINE, lambda L: L.Conv1D(4, 3, strides=2, padding="same", activation="relu")),
    "Conv1D causal": (LINE, lambda L: L.Conv1D(4, 3, padding="causal", dilation_rate=2)),
    "Conv2D same": (IMAGE, lambda L: L.Conv2D(4, (3, 2), strides=2, padding="same")),
    "Conv2D valid": (
        IMAGE,
        lambda L: L.Conv2D(4, (2, 3), dilation_rate=(3, 2), use_bias=False, activation="elu"),
    ),
    "Conv2D groups": ((9, 8, 6), lambda L: L.Conv2D(4, (3, 2), groups=2, activation="softmax")),
    "Conv3D": (CUBE, lambda L: L.Conv3D(3, (2, 3, 1), strides=(1, 2, 3), padding="same")),
    "DepthwiseConv1D": (LINE, lambda L: L.DepthwiseConv1D(3, depth_multiplier=2)),
    "DepthwiseConv2D": (
        IMAGE,
        lambda L: L.DepthwiseConv2D((3, 2), depth_multiplier=2, strides=2, padding="same"),
    ),
    "SeparableConv1D": (LINE, lambda L: L.SeparableConv1D(4, 3, depth_multiplier=2)),
    "SeparableConv2D": (
        IMAGE,
        lambda L: L.SeparableConv2D(5, (3, 2), padding="same", activation="tanh"),
    ),
    "Conv1DTranspose": (LINE, lambda L: L.Conv1DTranspose(4, 3, strides=2, padding="same")),
    "Conv2DTranspose same": (
        IMAGE,
        lambda L: L.Conv2DTranspose(4, (3, 2), strides=(2, 3), padding="same"),
    ),
    "Conv2DTranspose valid": (
        IMAGE,
        lambda L: L.Conv2DTranspose(4, (3, 2), strides=(2, 3), activation="relu"),
    ),
    "Conv2DTranspose output_padding": (
        IMAGE,
        lambda L: L.Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=(1, 0)),
    ),
    "Conv2DTranspose valid, output_padding": (
        IMAGE,
        lambda L: L.Conv2DTranspose(4, 3, strides=3, output_padding=(1, 2)),
    ),
    "Conv3DTranspose": (CUBE, lambda L: L.Conv3DTranspose(3, (2, 3, 2), strides=(1, 2, 2))),
    "MaxPooling1D": (LINE, lambda L: L.MaxPooling1D(3, padding="same")),
    "MaxPooling2D": (IMAGE, lambda L: L.MaxPooling2D((3, 2), strides=2, padding="same")),
    "MaxPooling3D": (CUBE, lambda L: L.MaxPooling3D(2)),
    "AveragePooling1D": (LINE, lambda L: L.AveragePooling1D(3, strides=2, padding="same")),
    "AveragePooling2D": (IMAGE, lambda L: L.AveragePooling2D((3, 2), 2, padding="same")),
    "AveragePooling2D valid": (IMAGE, lambda L: L.AveragePooling2D((2, 3))),
    "AveragePooling3D": (CUBE, lambda L: L.AveragePooling3D((2, 1, 3))),
    "GlobalMaxPooling1D": (LINE, lambda L: L.GlobalMaxPooling1D()),
    "GlobalAveragePooling2D": (IMAGE, lambda L: L.GlobalAveragePooling2D(keepdims=True)),
    "GlobalAveragePooling1D": (LINE, lambda L: L.GlobalAveragePooling1D()),
    "GlobalMaxPooling3D": (CUBE, lambda L: L.GlobalMaxPooling3D()),
    "AdaptiveAveragePooling1D": (LINE, lambda L: L.AdaptiveAveragePooling1D(4)),
    "AdaptiveAveragePooling3D": (CUBE, lambda L: L.AdaptiveAveragePooling3D((3, 4, 2))),
    "AdaptiveMaxPooling1D": (LINE, lambda L: L.AdaptiveMaxPooling1D(4)),
    "AdaptiveMaxPooling3D": (CUBE, lambda L: L.AdaptiveMaxPooling3D((3, 4, 2))),
    "GlobalAveragePooling3D": (CUBE, lambda L: L.GlobalAveragePooling3D()),
    "GlobalMaxPooling2D first": (
        IMAGE,
        lambda L: L.GlobalMaxPooling2D(data_format="channels_first"),
    ),
    "Dense": ((7,), lambda L: L.Dense(5, activation="gelu")),
    "Dense with a layer": ((7,), lambda L: L.Dense(5, activation=L.LeakyReLU(0.15))),
    "Dense of rank 3": ((4, 7), lambda L: L.Dense(5, use_bias=False, activation="softplus")),
    "Dense of rank 3, biased": ((4, 7), lambda L: L.Dense(5, activation="selu")),
    "BatchNormalization": (IMAGE, lambda L: L.BatchNormalization(epsilon=0.01)),
    "BatchNormalization plain": (IMAGE, lambda L: L.BatchNormalization(scale=False)),
    "BatchNormalization axis": (IMAGE, lambda L: L.BatchNormalization(axis=2, center=False)),
    "BatchNormalization of rows": ((7,), lambda L: L.BatchNormalization()),
    "LayerNormalization": ((4, 7), lambda L: L.LayerNormalization(epsilon=0.01)),
    "LayerNormalization plain": ((4, 7), lambda L: L.LayerNormalization(scale=False)),
    "GroupNormalization": (
        (5, 4, 6),
        lambda L: L.GroupNormalization(groups=3, epsilon=0.01),
    ),
    "GroupNormalization per channel": (
        (5, 4, 6),
        lambda L: L.GroupNormalization(groups=-1, center=False),
    ),
    "Normalization": (IMAGE, lambda L: L.Normalization()),
    "Normalization inverted": (IMAGE, lambda L: L.Normalization(axis=(2, 3), invert=True)),
    "LayerNormalization of several axes": (
        (5, 4, 6),
        lambda L: L.LayerNormalization(axis=[1, 3], epsilon=0.02),
    ),
    "GroupNormalization axis": (
        (4, 6, 5),
        lambda L: L.GroupNormalization(groups=2, axis=1),
    ),
    "RMSNormalization": ((4, 7), lambda L: L.RMSNormalization(epsilon=0.01)),
    "UnitNormalization": ((4, 7, 3), lambda L: L.UnitNormalization(axis=2)),
    "Normalization stated": (
        IMAGE,
        lambda L: L.Normalization(mean=[0.5, 1.25, -0.75], variance=[0.25, 2.0, 3.0]),
    ),
    "ReLU": (IMAGE, lambda L: L.ReLU(max_value=1.5, negative_slope=0.1)),
    "ReLU above": (IMAGE, lambda L: L.ReLU(threshold=0.5, negative_slope=0.25, max_value=2.0)),
    "LeakyReLU": (IMAGE, lambda L: L.LeakyReLU(negative_slope=0.15)),
    "PReLU": (IMAGE, lambda L: L.PReLU(shared_axes=[1, 2])),
    "PReLU whole": (IMAGE, lambda L: L.PReLU()),
    "ELU": (IMAGE, lambda L: L.ELU(alpha=0.7)),
    "Softmax": (IMAGE, lambda L: L.Softmax(axis=1)),
    "Softmax of several axes": (IMAGE, lambda L: L.Softmax(axis=(1, 3))),
    "EinsumDense": (
        (4, 7),
        lambda L: L.EinsumDense("abc,cde->abde", (None, 3, 5), bias_axes="de", activation="tanh"),
    ),
    "Flatten": (IMAGE, lambda L: L.Flatten()),
    "Flatten first": (IMAGE, lambda L: L.Flatten(data_format="channels_first")),
    "Reshape": (IMAGE, lambda L: L.Reshape((6, -1, 4))),
    "Permute": (IMAGE, lambda L: L.Permute((3, 1, 2))),
    "RepeatVector": ((7,), lambda L: L.RepeatVector(3)),
    "UpSampling1D": (LINE, lambda L: L.UpSampling1D(3)),
    "UpSampling2D": (IMAGE, lambda L: L.UpSampling2D((2, 3))),
    "UpSampling2D bicubic": (IMAGE, lambda L: L.UpSampling2D((2, 4), interpolation="bicubic")),
    "UpSampling2D bicubic thirds": (
        IMAGE, lambda L: L.UpSampling2D((3, 2), interpolation="bicubic")
    ),
    "UpSampling2D bilinear": (IMAGE, lambda L: L.UpSampling2D((2, 3), interpolation="bilinear")),
    "UpSampling3D": (CUBE, lambda L: L.UpSampling3D((1, 2, 3))),
    "ZeroPadding1D": (LINE, lambda L: L.ZeroPadding1D((1, 2))),
    "ZeroPadding2D": (IMAGE, lambda L: L.ZeroPadding2D(((1, 2), (0, 3)))),
    "ZeroPadding2D first": (IMAGE, lambda L: L.ZeroPadding2D(2, data_format="channels_first")),
    "ZeroPadding3D": (CUBE, lambda L: L.ZeroPadding3D((1, 0, 2))),
    "Cropping1D": (LINE, lambda L: L.Cropping1D((1, 2))),
    "Cropping2D": (IMAGE, lambda L: L.Cropping2D(((1, 2), (0, 3)))),
    "Cropping3D": (CUBE, lambda L: L.Cropping3D((1, 0, 2))),
    "Rescaling": (IMAGE, lambda L: L.Rescaling(0.25, offset=-1.5)),
    "Dropout": (IMAGE, lambda L: L.Dropout(0.4)),
    **{
        f"Activation {name}": (LINE, lambda L, name=name: L.Activation(name))
        for name in ("relu", "relu6", "sigmoid", "hard_sigmoid", "tanh", "silu", "softsign", "gelu",
                     "exponential", "leaky_relu", "celu", "log_sigmoid",
                     "hard_tanh", "hard_shrink", "soft_shrink", "tanh_shrink", "squareplus",
                     "sparse_sigmoid", "hard_silu", "mish", "log_softmax", "linear")
    },
}  # fmt: skip
"""Shape without batch, and the layer."""

BY_DEVIATION: tuple[tuple[int, ...], Maker] = (
    (5, 4, 6),
    lambda L: L.LayerNormalization(axis=2, rms_scaling=True),
)
"""x over its deviation, in which an error of the mean cannot be seen."""

MERGES: dict[str, Maker] = {
    "Add": lambda L: L.Add(),
    "Subtract": lambda L: L.Subtract(),
    "Multiply": lambda L: L.Multiply(),
    "Average": lambda L: L.Average(),
    "Maximum": lambda L: L.Maximum(),
    "Minimum": lambda L: L.Minimum(),
    "Concatenate": lambda L: L.Concatenate(axis=2),
}


def of(keras: Any, label: str) -> Any:
    """The model of one layer, with drawn weights."""
    layers = keras.layers
    if label in GRAPHS:
        return with_weights(graph(keras, label), 0.4)
    if label in MERGES:
        a = keras.Input((4, 7), name="a")
        b = keras.Input((4, 7 if label != "Concatenate" else 5), name="b")
        axis_two = MERGES[label](layers)
        inputs, output = [a, b], axis_two([a, b])
    else:
        shape, maker = LAYERS[label]
        inputs = keras.Input(shape, name="x")
        output = maker(layers)(inputs)
    return with_weights(keras.Model(inputs, output))


def shared_and_nested(keras: Any) -> Any:
    """A layer called twice, a nested model called twice, numbers, two outputs."""
    layers = keras.layers
    block = keras.Sequential(
        [keras.Input((6,)), layers.Dense(6, activation="relu"), layers.BatchNormalization()],
        name="block",
    )
    x = keras.Input((9, 8, 3), name="x")
    y = layers.Conv2D(6, 3, name="c")(x)
    z = layers.Conv2D(6, 3, name="d", activation="sigmoid")(x)
    y = layers.GlobalAveragePooling2D()(layers.Add()([y, z]))
    twice = layers.Dense(6, name="twice")
    y = block(twice(twice(y)) * 0.5) - block(y)
    return with_weights(keras.Model(x, [y, layers.Dense(2, name="last")(y)], name="net"))


def sequential(keras: Any) -> Any:
    layers = keras.layers
    return with_weights(
        keras.Sequential(
            [
                keras.Input((9, 8, 3)),
                layers.Conv2D(4, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(5, activation="sigmoid"),
            ]
        )
    )


def with_weights(model: Any, spread: float = 0.2) -> Any:
    """The model with all weights drawn; those of variances positive."""
    rng = np.random.default_rng(17)
    drawn = []
    for variable in model.weights:
        values = rng.normal(0.0, spread, variable.shape)
        drawn.append(np.abs(values) + 0.2 if "variance" in variable.path else values)
    model.set_weights([v.astype(np.float32) for v in drawn])
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):  # Normalization keeps what follows from its weights
            layer.finalize_state()
    return model
