"""The families of `keras.applications`, each at its smallest, with weights that keep every layer
alive: kernels of the size that keeps the variance, normalisations away from the identity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

FAMILIES: dict[str, int] = {
    "VGG16": 32, "ResNet50": 32, "ResNet50V2": 32, "MobileNet": 32, "MobileNetV2": 32,
    "MobileNetV3Small": 32, "MobileNetV3Large": 32, "DenseNet121": 32, "EfficientNetB0": 48,
    "EfficientNetV2B0": 48, "EfficientNetV2S": 48, "InceptionV3": 75, "InceptionResNetV2": 75,
    "Xception": 71, "NASNetMobile": 32, "ConvNeXtTiny": 32,
}  # fmt: skip
"""By the side of the picture, the least that the family takes."""


def application(keras: Any, name: str) -> Any:
    """The network for 7 classes, without its softmax, which would hide most differences."""
    side = FAMILIES[name]
    options = {"alpha": 0.25} if name == "MobileNet" else {}
    made = getattr(keras.applications, name)(
        weights=None, input_shape=(side, side, 3), classes=7, classifier_activation=None, **options
    )
    return enlivened(made, pictures(name, LEARNT))


def enlivened(model: Any, images: np.ndarray) -> Any:
    """The model with all weights drawn, and the statistics of BatchNormalization learnt from a step
    of training, so that signals neither grow nor fade."""
    rng = np.random.default_rng(23)
    for layer in model.layers:
        layer.set_weights([_drawn(rng, v.path.split("/")[-1], v.shape) for v in layer.weights])
        if hasattr(layer, "finalize_state"):  # Normalization keeps what follows from its weights
            layer.finalize_state()
        if type(layer).__name__ == "BatchNormalization":
            layer.momentum = 0.0
    model(images, training=True)
    for layer in model.layers:
        if hasattr(layer, "momentum"):
            layer.momentum = 0.99
    return model


def _drawn(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    if "kernel" in kind:
        fan = math.prod(shape[:-2]) if kind == "depthwise_kernel" else math.prod(shape[:-1])
        found = rng.normal(0.0, math.sqrt(2.0 / fan), shape)
    elif kind in ("bias", "beta", "moving_mean"):
        found = rng.normal(0.0, 0.1, shape)
    else:  # scales, variances
        found = rng.uniform(0.6, 1.4, shape)
    return found.astype(np.float32)


def pictures(name: str, count: int) -> np.ndarray:
    """The first of 16 smooth pictures, [count, side, side, 3], as the family expects numbers."""
    side, rng = FAMILIES[name], np.random.default_rng(5)
    y, x = np.mgrid[:side, :side][..., None] / side
    waves = [
        np.sin(9 * a * x + 7 * b * y + 3 * c) for a, b, c in rng.uniform(-1, 1, (LEARNT, 3, 3))
    ]
    noise = rng.uniform(-20, 20, (LEARNT, side, side, 3))
    bytes_ = 128 + np.stack(waves) * np.array([90.0, 70.0, 50.0]) + noise
    found = bytes_ if name.startswith(OF_BYTES) else bytes_ / 128 - 1
    return found[:count].astype(np.float32)


LEARNT = 16
"""Pictures that the statistics are learnt from."""
OF_BYTES = ("MobileNetV3", "EfficientNet", "ConvNeXt")
"""Families that take 0 to 255; others take -1 to 1."""
