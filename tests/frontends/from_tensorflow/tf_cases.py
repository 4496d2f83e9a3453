"""Graphs of TensorFlow operators, every attribute away from its default at least once.

Needs TensorFlow, which makes the graphs and answers them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
nn, raw = tf.nn, tf.raw_ops


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal float32 numbers."""
    random = np.random.default_rng([seed, *shape])
    return random.standard_normal(shape).astype(np.float32)


def frozen(function: Callable[..., Any], inputs: tuple[np.ndarray, ...]) -> tuple[bytes, list[Any]]:
    """The frozen graph of a function, and TensorFlow's answers."""
    graph = tf.Graph()
    with graph.as_default():
        holders = [
            tf.compat.v1.placeholder(tf.as_dtype(x.dtype), x.shape, f"x{i}")
            for i, x in enumerate(inputs)
        ]
        made = function(*holders)
        made = list(made) if isinstance(made, tuple | list) else [made]
        made = [tf.identity(y, f"y{i}") for i, y in enumerate(made)]
        with tf.compat.v1.Session(graph=graph) as session:
            answers = session.run(made, dict(zip(holders, inputs)))
    return graph.as_graph_def().SerializeToString(), answers


IMAGE, X, Y = draw(2, 7, 9, 4), draw(2, 3, 5), draw(2, 3, 5, seed=1)
W = draw(3, 2, 4, 5)
SMALL = draw(2, 4, 5, 3, 2)


def conv(**options: Any) -> Callable[[Any], Any]:
    given = {"strides": [1, 2, 1, 1], "padding": "SAME", **options}
    return lambda x: raw.Conv2D(input=x, filter=tf.constant(W), **given)


def bn(**options: Any) -> Callable[[Any], Any]:
    numbers = [np.abs(draw(4, seed=i)) + 0.1 for i in range(4)]
    names = ("scale", "offset", "mean", "variance")
    return lambda x: raw.FusedBatchNormV3(
        x=x, **{n: tf.constant(v) for n, v in zip(names, numbers)}, is_training=False, **options
    )[0]


def pooled(kind: Any, **options: Any) -> Callable[[Any], Any]:
    given = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 3, 1], "padding": "SAME", **options}
    return lambda x: kind(**{"input" if kind is raw.MaxPool else "value": x}, **given)


def resized(kind: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda x: kind(images=x, size=tf.constant([5, 13]), **options)


def upsampled(size: list[int], **options: Any) -> Callable[[Any], Any]:
    filters = draw(3, 2, 6, 4)
    given = {"strides": [1, 2, 3, 1], "padding": "SAME", **options}
    return lambda x: raw.Conv2DBackpropInput(
        input_sizes=tf.constant(size), filter=tf.constant(filters), out_backprop=x, **given
    )


CASES: dict[str, tuple[Any, ...]] = {
    "conv_same": (conv(), IMAGE),
    "conv_valid": (conv(padding="VALID", dilations=[1, 2, 3, 1], strides=[1] * 4), IMAGE),
    "conv_explicit": (conv(padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0]), IMAGE),
    "conv_grouped": (lambda x: nn.conv2d(x, draw(3, 2, 2, 6), 1, "SAME"), IMAGE),
    "conv_dilated": (lambda x: nn.atrous_conv2d(x, draw(3, 3, 4, 5), 2, "SAME"), IMAGE),
    "depthwise": (lambda x: nn.depthwise_conv2d(x, draw(3, 2, 4, 3), [1, 2, 2, 1], "SAME"), IMAGE),
    "conv3d": (lambda x: nn.conv3d(x, draw(3, 2, 2, 2, 5), [1, 2, 1, 1, 1], "SAME"), SMALL),
    "conv_transpose": (upsampled([2, 14, 26, 6]), IMAGE),
    "conv_transpose_valid": (upsampled([2, 15, 26, 6], padding="VALID"), IMAGE),
    "bias": (lambda x: nn.bias_add(x, draw(4)), IMAGE),
    "bias_first": (lambda x: nn.bias_add(x, draw(7), data_format="NCHW"), IMAGE),
    "batch_norm": (bn(epsilon=0.02), IMAGE),
    "max_pool": (pooled(raw.MaxPool), IMAGE),
    "avg_pool": (pooled(raw.AvgPool), IMAGE),
    "avg_pool_valid": (pooled(raw.AvgPool, padding="VALID"), IMAGE),
    "max_pool3d": (lambda x: nn.max_pool3d(x, 2, 2, "SAME"), SMALL),
    "lrn": (lambda x: nn.lrn(x, 1, 1.5, 0.2, 0.6), IMAGE),
    "matmul": (lambda a, b: tf.matmul(a, b, transpose_b=True), draw(3, 4), draw(5, 4)),
    "batch_matmul": (lambda a, b: tf.matmul(a, b, adjoint_a=True), draw(2, 4, 3), draw(2, 4, 5)),
    "einsum": (lambda a, b: tf.einsum("bij,bkj->bik", a, b), draw(2, 3, 4), draw(2, 5, 4)),
    "activations": (
        lambda x: [
            nn.relu(x),
            nn.relu6(x * 9),
            nn.elu(x),
            nn.selu(x),
            nn.leaky_relu(x, 0.3),
            tf.sigmoid(x),
            tf.tanh(x),
            nn.softplus(x),
            nn.softsign(x),
        ],
        X,
    ),
    "functions": (
        lambda x: [
            tf.exp(x),
            tf.abs(x),
            -x,
            tf.floor(x),
            tf.math.ceil(x),
            tf.round(x * 3),
            tf.sign(x),
            tf.math.erf(x),
            tf.math.erfc(x),
            tf.sin(x),
            tf.cos(x),
            tf.square(x),
        ],
        X,
    ),
    "positive_functions": (
        lambda x: [tf.sqrt(x), tf.math.log(x), tf.math.rsqrt(x), 1 / x, tf.math.log1p(x)],
        np.abs(X) + 0.2,
    ),
    "arithmetic": (
        lambda x, y: [
            x + y,
            x - y,
            x * y,
            x / (tf.abs(y) + 1),
            tf.maximum(x, y),
            tf.minimum(x, y),
            tf.math.squared_difference(x, y),
            x // 0.7,
            x % 0.7,
            tf.add_n([x, x * 2, x]),
        ],
        X,
        draw(5),
    ),
    "integers": (lambda x: [x // 4, x % 4, x + 2], np.arange(-9, 9, dtype=np.int32).reshape(3, 6)),
    "comparisons": (
        lambda x, y: [x < y, x <= y, x > y, x >= y, tf.equal(x, y), tf.not_equal(x, y)],
        X,
        Y,
    ),
    "logic": (lambda x: [(x > 0) & (x < 1), (x > 1) | (x < 0), ~(x > 0)], X),
    "select": (lambda x, y: [tf.where(x > y, x, y), raw.Select(condition=x > y, x=x, y=y)], X, Y),
    "select_rows": (lambda x, y: raw.Select(condition=tf.constant([True, False]), x=x, y=y), X, Y),
    "clip": (lambda x: tf.clip_by_value(x, -0.5, 0.25), X),
    "clip_and_pad": (
        lambda x: raw.Pad(
            input=raw.ClipByValue(t=x, clip_value_min=-0.5, clip_value_max=0.25),
            paddings=tf.constant([[0, 1], [2, 0], [0, 3]]),
        ),
        X,
    ),
    "cast": (lambda x: [tf.cast(x * 4, tf.int32), tf.cast(x, tf.float64)], X),
    "reductions": (
        lambda x: [
            tf.reduce_mean(x, [1, 2]),
            tf.reduce_sum(x, 0, True),
            tf.reduce_max(x, -1),
            tf.reduce_min(x),
            tf.reduce_prod(x, 1),
        ],
        X,
    ),
    "any_all": (lambda x: [tf.reduce_any(x > 1, 1), tf.reduce_all(x > -2, 2, True)], X),
    "arg": (lambda x: [tf.argmax(x, 1), tf.argmin(x, -1, tf.int32)], X),
    "softmax": (lambda x: [nn.softmax(x), nn.log_softmax(x)], X),
    "cumulative": (
        lambda x: [
            tf.cumsum(x, 1, True, False),
            tf.cumsum(x, 2, False, True),
            tf.math.cumprod(x, 1),
        ],
        X,
    ),
    "top_k": (lambda x: nn.top_k(x, 2), X),
    "reshape": (lambda x: tf.reshape(x, [5, -1]), X),
    "squeeze": (lambda x: [tf.squeeze(x), tf.squeeze(x, [1])], draw(2, 1, 3, 1)),
    "expand_transpose": (lambda x: tf.transpose(tf.expand_dims(x, 1), [3, 1, 0, 2]), X),
    "concat": (lambda x, y: [tf.concat([x, y], -1), tf.stack([x, y], 1)], X, Y),
    "split": (lambda x: [*tf.split(x, 3, 1), *tf.split(x, [1, -1, 2], 2)], X),
    "unstack": (lambda x: tf.unstack(x, axis=1), X),
    "slice": (lambda x: tf.slice(x, [0, 1, 2], [2, -1, 2]), X),
    "strided_slice": (
        lambda x: [x[:, ::-2, 1:-1], x[1, ..., tf.newaxis, -2], x[..., :3], x[0, 1]],
        X,
    ),
    "pad": (
        lambda x: [
            tf.pad(x, [[0, 0], [1, 2], [3, 0]], constant_values=1.5),
            tf.pad(x, [[0, 0], [1, 2], [0, 1]], "REFLECT"),
            tf.pad(x, [[0, 0], [1, 1], [0, 1]], "SYMMETRIC"),
        ],
        X,
    ),
    "tile": (lambda x: [tf.tile(x, [1, 2, 1]), tf.broadcast_to(x, [4, 2, 3, 5])], X),
    "gather": (lambda x: [tf.gather(x, [[2, 0]], axis=1), tf.gather_nd(x, [[1, 2], [0, 0]])], X),
    "reverse": (lambda x: tf.reverse(x, [0, 2]), X),
    "one_hot": (
        lambda x: tf.one_hot(x, 5, 2.5, -1.0, axis=1),
        np.array([[0, 4], [2, 7]], np.int32),
    ),
    "shapes": (
        lambda x: tf.reshape(x, tf.stack([tf.shape(x)[0], tf.size(x) // tf.shape(x)[0]])),
        X,
    ),
    "fill": (lambda x: x + tf.fill([3, 5], 0.5) + tf.ones_like(x) * tf.zeros_like(x), X),
    "bilinear": (resized(raw.ResizeBilinear), IMAGE),
    "bilinear_half": (resized(raw.ResizeBilinear, half_pixel_centers=True), IMAGE),
    "bilinear_aligned": (resized(raw.ResizeBilinear, align_corners=True), IMAGE),
    "nearest": (resized(raw.ResizeNearestNeighbor), IMAGE),
    "nearest_half": (resized(raw.ResizeNearestNeighbor, half_pixel_centers=True), IMAGE),
    "nearest_aligned": (resized(raw.ResizeNearestNeighbor, align_corners=True), IMAGE),
    "space_to_depth": (lambda x: nn.space_to_depth(x, 2), draw(2, 4, 6, 3)),
    "depth_to_space": (lambda x: nn.depth_to_space(x, 2), draw(2, 4, 6, 8)),
    "space_to_batch": (lambda x: tf.space_to_batch(x, [2, 3], [[1, 0], [2, 1]]), draw(2, 5, 6, 3)),
    "batch_to_space": (lambda x: tf.batch_to_space(x, [2, 3], [[1, 0], [2, 1]]), draw(12, 3, 4, 3)),
}
