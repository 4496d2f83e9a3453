"""Small Keras models of several layers, inputs or outputs, and of operations, made with Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.frontends.from_keras.keras_operations import OPERATIONS

ROWS, OTHER, SHORT, VECTOR, IMAGE = (4, 6), (3, 6), (2, 6), (5,), (9, 8, 3)
Builder = Callable[..., Any]
"""From keras and the inputs to an output or several."""


def recurrent(kind: str, *, states: int, **options: Any) -> Builder:
    """A layer that gives its states, one that is given them and runs backwards, and one that gives
    its last output; steps are few, so that the last one shows the first."""

    def build(keras: Any, x: Any, z: Any) -> Any:
        layer = getattr(keras.layers, kind)
        made = layer(5, return_state=True, return_sequences=True, **options)(x)
        given = made[1] if states == 1 else made[1:]
        again = layer(5, return_sequences=True, go_backwards=True)(z, initial_state=given)
        return [*made, again, layer(6, **options)(z)]

    return build


def both_ways(keras: Any, x: Any) -> Any:
    layers = keras.layers
    sequence = {"return_sequences": True}
    mean = layers.Bidirectional(layers.GRU(5, **sequence), merge_mode="ave")(x)
    whole = layers.Bidirectional(layers.LSTM(3, return_state=True))(x)
    apart = layers.Bidirectional(layers.SimpleRNN(2, **sequence), merge_mode=None)(x)
    own = layers.Bidirectional(
        layers.GRU(7, reset_after=False), backward_layer=layers.LSTM(4, go_backwards=True)
    )(x)
    return [mean, *whole, *apart, own]


def over_time(keras: Any, x: Any) -> Any:
    layers = keras.layers
    inner = keras.Sequential(
        [keras.Input((6, 2)), layers.Conv1D(3, 2), layers.BatchNormalization(), layers.Flatten()],
        name="inner",
    )
    y = layers.TimeDistributed(inner)(layers.Concatenate()([layers.Reshape((4, 6, 1))(x)] * 2))
    steps = layers.TimeDistributed(layers.Reshape((3, 5)))(y)
    return layers.TimeDistributed(layers.LSTM(4, return_sequences=True))(steps)


def attended(keras: Any, x: Any, z: Any) -> Any:
    layers = keras.layers
    y, scores = layers.MultiHeadAttention(2, 3, value_dim=4)(
        x, value=z, key=z, return_attention_scores=True
    )
    own = layers.MultiHeadAttention(3, 2, use_bias=False, output_shape=5)(
        x, x, use_causal_mask=True
    )
    grouped = layers.GroupQueryAttention(3, 4, 2)(x, z)
    return [y, scores, own, grouped]


def simply_attended(keras: Any, x: Any, z: Any) -> Any:
    layers = keras.layers
    return [
        layers.Attention(use_scale=True)([x, z]),
        layers.Attention(score_mode="concat", use_scale=True)([x, z, z]),
        *layers.Attention()([x, z], return_attention_scores=True, use_causal_mask=True),
        layers.AdditiveAttention()([x, z]),
        layers.AdditiveAttention(use_scale=False)([z, x]),
    ]


def dotted(keras: Any, x: Any, z: Any, v: Any) -> Any:
    layers = keras.layers
    vector = layers.Dense(6)(v)
    return [
        layers.Dot(axes=2)([x, z]),
        layers.Dot(axes=(2, 1), normalize=True)([x, vector]),
        layers.Dot(axes=1)([vector, layers.Dense(6)(vector)]),
        layers.Add()([x, vector]),
    ]


def arithmetic(keras: Any, x: Any, z: Any) -> Any:
    ops = keras.ops
    mean = ops.mean(x, axis=-1, keepdims=True)
    return [
        1.0 / (ops.relu(x) + ops.exp(mean) * 2 + 3),
        ops.where(x > 0.25, x - 1, -x) ** 2,
        ops.clip(x, 0.125, 0.5) + ops.maximum(x, 0) * ops.sigmoid(x),
        ops.sum(ops.square(x), axis=(1, 2)),
        ops.max(x, axis=1) / (ops.min(ops.abs(x), axis=1) + 1),
        ops.softmax(ops.matmul(x, ops.transpose(z, (0, 2, 1))), axis=1),
        ops.gelu(x) + ops.leaky_relu(x, 0.3) + ops.silu(x),
        ops.einsum("btf,bsf->bts", x, z),
        ops.normalize(x, axis=-1, order=2),
        ops.argmax(x, axis=2),
    ]


def moved(keras: Any, x: Any, z: Any) -> Any:
    ops = keras.ops
    both = ops.concatenate([x, z], axis=1)
    first, second, third = ops.split(both, [2, 3], axis=1)
    a, b = ops.split(x, 2, axis=-1)
    return [
        ops.reshape(both, (-1, 3, 14)),
        ops.transpose(x, (0, 2, 1))[:, 1:-1:2, None],
        x[:, -1, ..., ::-1],
        ops.squeeze(ops.expand_dims(first, 1), 1) * second,
        ops.stack([a, b], axis=1),
        ops.roll(x, 1, axis=1) + ops.flip(x, axis=2),
        ops.pad(third, ((0, 0), (1, 2), (0, 3))),
        ops.repeat(ops.tile(x, (1, 2, 1)), 2, axis=2),
        ops.swapaxes(ops.take(x, [2, 0], axis=1), 1, 2),
        ops.unstack(x, axis=1)[2],
    ]


def pictured(keras: Any, x: Any) -> Any:
    layers, ops = keras.layers, keras.ops
    y = layers.Resizing(7, 11)(layers.RandomFlip()(layers.CenterCrop(6, 5)(x)))
    y = layers.RandomContrast(0.2)(layers.RandomZoom(0.3)(y))
    return [
        y,
        layers.Resizing(4, 11, crop_to_aspect_ratio=True)(x),
        ops.image.resize(x, (5, 17)),
        layers.AdaptiveAveragePooling2D((3, 5))(x),
        layers.AdaptiveMaxPooling2D((2, 3), data_format="channels_first")(x),
        ops.nn.depth_to_space(ops.nn.space_to_depth(x[:, 1:], 4), 2),
    ]


def ranked(keras: Any, x: Any) -> Any:
    """A recurrent layer written as its cell, and normalised layers."""
    layers = keras.layers
    y = layers.RNN(layers.GRUCell(5), return_sequences=True)(x)
    y = layers.SpectralNormalization(layers.Dense(3))(y)
    return [y, layers.RNN(layers.LSTMCell(2, recurrent_activation="hard_sigmoid"))(x)]


def nested(keras: Any, x: Any, image: Any) -> Any:
    """Models in models: several levels, two outputs, called twice with the first call's outputs
    used, over time; layers of composed weights, and layers of one name in different models."""
    layers = keras.layers

    def block(name: str, channels: int) -> Any:
        i = keras.Input((None, None, channels))
        y = layers.BatchNormalization(name=f"bn_{name}")(layers.Conv2D(5, 3, name=f"c_{name}")(i))
        return keras.Model(i, y, name=name)

    i = keras.Input((9, 8, 3))
    deep = keras.Model(i, block("second", 5)(block("first", 3)(i)), name="deep")
    i = keras.Input((4, 6))
    y = layers.LayerNormalization(name="norm")(layers.MultiHeadAttention(2, 3, name="query")(i, i))
    pair = keras.Model(i, [y, i * 2.0], name="pair")
    tail = keras.Sequential([keras.Input((4, 6)), layers.Bidirectional(layers.GRU(3, name="gru"))],
                            name="tail")  # fmt: skip
    first, double = pair(x)
    again, _ = pair(first)
    frames = layers.Reshape((3, 3, 8, 3))(image)
    return [
        layers.GlobalAveragePooling2D()(deep(image)),
        tail(layers.Dense(6, name="query")(again)),
        double,
        layers.TimeDistributed(block("frame", 3))(frames),
    ]


CLASSES, ANCHORS = 4, 3
"""Of the detector: classes, and anchors per position."""


def anchors_of(sizes: list[tuple[int, int]]) -> np.ndarray:
    """Centres and sides of the anchors of some maps in parts of the picture, [anchors, 4]."""
    found = []
    for level, (height, width) in enumerate(sizes):
        for y in range(height):
            for x in range(width):
                for k in range(ANCHORS):
                    side = 0.2 * (level + 1) * (1 + 0.3 * k)
                    centre = [(y + 0.5) / height, (x + 0.5) / width]
                    found.append([*centre, side, side * (0.8 + 0.2 * k)])
    return np.array(found, np.float32)


def detector(keras: Any, x: Any) -> Any:
    """A detector of the SSD kind: two maps, scores, corners of boxes around known anchors. Keras
    goes no further: it has no suppression of doubles."""
    layers, ops = keras.layers, keras.ops
    maps = [layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(x)]
    maps.append(layers.Conv2D(5, 3, strides=2, padding="same", activation="relu")(maps[0]))
    scores, offsets = [], []
    for i, level in enumerate(maps):
        score = layers.Conv2D(ANCHORS * CLASSES, 3, padding="same", name=f"scores{i}")(level)
        offset = layers.Conv2D(ANCHORS * 4, 3, padding="same", name=f"offsets{i}")(level)
        scores.append(layers.Reshape((-1, CLASSES))(score))
        offsets.append(layers.Reshape((-1, 4))(offset))
    classes = layers.Softmax(name="classes")(layers.Concatenate(axis=1)(scores))
    offset = layers.Concatenate(axis=1)(offsets)
    anchors = anchors_of([(m.shape[1], m.shape[2]) for m in maps])
    centres = offset[..., :2] * (anchors[:, 2:] * 0.1) + anchors[:, :2]
    sides = ops.exp(offset[..., 2:] * 0.2) * anchors[:, 2:]
    return [classes, ops.concatenate([centres - sides / 2, centres + sides / 2], axis=-1)]


GRAPHS: dict[str, tuple[tuple[tuple[int, ...], ...], Builder]] = {
    "LSTM": ((OTHER, SHORT), recurrent("LSTM", states=2)),
    "LSTM without bias": ((OTHER, SHORT), recurrent("LSTM", states=2, use_bias=False)),
    "GRU": ((OTHER, SHORT), recurrent("GRU", states=1)),
    "GRU before": ((OTHER, SHORT), recurrent("GRU", states=1, reset_after=False)),
    "GRU without bias": ((OTHER, SHORT), recurrent("GRU", states=1, use_bias=False)),
    "SimpleRNN": ((OTHER, SHORT), recurrent("SimpleRNN", states=1, activation="relu")),
    "Bidirectional": ((SHORT,), both_ways),
    "TimeDistributed": ((ROWS,), over_time),
    "MultiHeadAttention": ((ROWS, OTHER), attended),
    "Attention": ((ROWS, OTHER), simply_attended),
    "Dot": ((ROWS, OTHER, VECTOR), dotted),
    "arithmetic": ((ROWS, OTHER), arithmetic),
    "movement": ((ROWS, OTHER), moved),
    "pictures": ((IMAGE,), pictured),
    "nested": ((ROWS, IMAGE), nested),
    "detector": ((IMAGE,), detector),
    "cells": ((SHORT,), ranked),
    **OPERATIONS,
}
"""Shapes of the inputs without batch, and what is computed from them."""


def graph(keras: Any, label: str) -> Any:
    """The model, with weights as Keras draws them."""
    shapes, build = GRAPHS[label]
    inputs = [keras.Input(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    return keras.Model(inputs, build(keras, *inputs))
