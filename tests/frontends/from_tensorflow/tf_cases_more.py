"""Graphs of operators that fewer networks have: images, grids, layouts, leftovers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tf_cases import IMAGE, draw, nn, raw, tf

FIRST = draw(2, 4, 7, 9, seed=3)
"""A batch of images, channels first."""


def resized(kind: Any, *size: int, **options: Any) -> Callable[[Any], Any]:
    return lambda x: kind(images=x, size=tf.constant(size), **options)


def cropped(**options: Any) -> Callable[[Any], Any]:
    boxes = [[0.1, 0.2, 0.8, 0.9], [0.9, -0.2, 0.3, 1.25], [0.0, 0.0, 1.0, 1.0]]
    return lambda x: raw.CropAndResize(
        image=x, boxes=boxes, box_ind=[1, 0, 1], crop_size=[4, 6], **options
    )


def normed(x: Any, kind: Any, shape: str) -> Any:
    numbers = [np.abs(draw(4, seed=i)) + 0.1 for i in range(4)]
    names = ("scale", "offset", "mean", "variance")
    given = dict(zip(names, numbers))
    return kind(x=x, **given, epsilon=0.01, data_format=shape, is_training=False)[0]


def quantised(kind: Any, low: Any, high: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda x: kind(inputs=x, min=low, max=high, **options)


ARGS, VARS, PER_CHANNEL = (
    raw.FakeQuantWithMinMaxArgs,
    raw.FakeQuantWithMinMaxVars,
    raw.FakeQuantWithMinMaxVarsPerChannel,
)
RANGES = (
    np.array([-1.5, 0, -0.3, -2], np.float32),
    np.array([1.1, 0.7, 2.5, 0.1], np.float32),
)
CUBIC = raw.ResizeBicubic
MORE: dict[str, tuple[Any, ...]] = {
    "cubic": (resized(CUBIC, 5, 13), IMAGE),
    "cubic_half": (resized(CUBIC, 5, 13, half_pixel_centers=True), IMAGE),
    "cubic_half_big": (resized(CUBIC, 17, 18, half_pixel_centers=True), IMAGE),
    "cubic_aligned": (resized(CUBIC, 12, 5, align_corners=True), IMAGE),
    "cubic_bytes": (
        resized(CUBIC, 5, 13, half_pixel_centers=True),
        np.random.default_rng(0).integers(0, 256, (2, 7, 9, 3), np.uint8),
    ),
    "bilinear_bytes": (
        resized(raw.ResizeBilinear, 5, 13),
        np.random.default_rng(0).integers(0, 256, (2, 7, 9, 3), np.uint8),
    ),
    "crop": (cropped(extrapolation_value=0.75), IMAGE),
    "crop_nearest": (cropped(method="nearest"), IMAGE),
    "patches": (
        lambda x: [
            raw.ExtractImagePatches(
                images=x,
                ksizes=[1, 3, 2, 1],
                strides=[1, 2, 3, 1],
                rates=[1, 2, 1, 1],
                padding=rule,
            )
            for rule in ("SAME", "VALID")
        ],
        IMAGE,
    ),
    "fake_quant": (quantised(ARGS, -1.1, 2.3), IMAGE),
    "fake_quant_narrow": (quantised(VARS, -0.7, 1.3, num_bits=4, narrow_range=True), IMAGE),
    "fake_quant_channels": (quantised(PER_CHANNEL, *RANGES, num_bits=6), IMAGE),
    "norm_first": (lambda x: normed(x, raw.FusedBatchNormV3, "NCHW"), FIRST),
    "norm_old": (
        lambda x: [normed(x, k, "NHWC") for k in (raw.FusedBatchNorm, raw.FusedBatchNormV2)],
        IMAGE,
    ),
    "max_pool_explicit": (
        lambda x: raw.MaxPool(
            input=x,
            ksize=[1, 3, 2, 1],
            strides=[1, 2, 2, 1],
            padding="EXPLICIT",
            explicit_paddings=[0, 0, 1, 0, 0, 1, 0, 0],
        ),
        IMAGE,
    ),
    "max_pool_operands": (
        lambda x: raw.MaxPoolV2(input=x, ksize=[1, 3, 2, 1], strides=[1, 2, 1, 1], padding="SAME"),
        IMAGE,
    ),
    "block_old": (
        lambda x: [
            raw.SpaceToBatch(input=x, paddings=[[1, 0], [0, 1]], block_size=2),
            raw.BatchToSpace(
                input=raw.SpaceToBatch(input=x, paddings=[[1, 0], [0, 1]], block_size=2),
                crops=[[1, 1], [0, 1]],
                block_size=2,
            ),
        ],
        draw(2, 7, 9, 3),
    ),
    "block_uneven": (
        lambda x: tf.batch_to_space(tf.space_to_batch(x, [3], [[1, 2]]) * 2.0, [3], [[1, 2]]),
        draw(2, 6, 4, 3),
    ),
    "scatter": (
        lambda x: [
            tf.scatter_nd([[3], [1], [3]], x, [5, 4]),
            tf.tensor_scatter_nd_update(x, [[2], [0]], x[:2] * 2.0),
            tf.tensor_scatter_nd_add(x, [[2], [2]], x[:2]),
        ],
        draw(3, 4),
    ),
    "roll": (lambda x: tf.roll(x, [2, -4], [1, 0]), draw(3, 5)),
    "reverse_sequence": (
        lambda x: tf.reverse_sequence(x, [2, 4, 1], seq_axis=1, batch_axis=0),
        draw(3, 4, 2),
    ),
    "constants": (
        lambda x: [
            x * raw.LinSpace(start=0.3, stop=1.7, num=7),
            tf.transpose(x, tf.math.invert_permutation([1, 0])),
        ],
        draw(3, 7),
    ),
    "whole_division": (
        lambda x: [
            raw.TruncateDiv(x=x, y=tf.constant(4)),
            raw.TruncateMod(x=x, y=tf.constant(4)),
            raw.Mod(x=x, y=tf.constant(5)),
        ],
        np.arange(-9, 9, dtype=np.int32).reshape(3, 6),
    ),
    "no_nan": (
        lambda x, y: [
            raw.DivNoNan(x=x, y=y),
            raw.MulNoNan(x=1.0 / y, y=y),
            tf.math.is_finite(x / y),
            tf.math.is_inf(x / y),
            tf.math.is_nan(y / y),
        ],
        draw(3, 5),
        np.array([[0, 1, 2, 0, 4], [1, 0, 2, 3, 4], [-1, 2, 0, -2, 0.5]], np.float32),
    ),
    "norms": (
        lambda x: [raw.EuclideanNorm(input=x, axis=[0, 2], keep_dims=True), nn.l2_loss(x)],
        draw(3, 4, 2),
    ),
    "identities": (lambda x: raw.IdentityN(input=[x, tf.cast(x, tf.int32)]), draw(3, 4) * 5),
    "shapes_of_nodes": (
        lambda x: [
            raw.Shape(input=x, out_type=tf.int64),
            raw.Size(input=x),
            raw.Rank(input=x),
            raw.OnesLike(x=x) + raw.ZerosLike(x=x),
            tf.fill(raw.Shape(input=x), 0.5) * x,
        ],
        draw(3, 5),
    ),
    "rank_and_range": (
        lambda x: x + tf.cast(tf.rank(x) + tf.range(2, 12, 2), tf.float32),
        draw(3, 5),
    ),
    "trigonometry": (
        lambda x: [
            *(f(x) for f in (tf.tan, tf.asin, tf.acos, tf.atan, tf.sinh, tf.cosh, tf.atanh)),
            tf.asinh(x * 3.0),
            tf.acosh(x + 2.0),
            tf.math.expm1(x),
            tf.pow(x + 2.0, 1.7),
            raw.Inv(x=x + 2.0),
            raw.Reciprocal(x=x + 3.0),
            raw.Rint(x=x * 7.0),
            raw.Div(x=x, y=x + 2.0),
        ],
        np.tanh(draw(3, 5)),
    ),
    "wrapped": (
        lambda x: [
            tf.stop_gradient(x),
            tf.ensure_shape(x, [3, 5]),
            tf.debugging.check_numerics(x, "no"),
            raw.GuaranteeConst(input=x),
            raw.Snapshot(input=x),
            raw.PreventGradient(input=x),
            tf.compat.v1.placeholder_with_default(np.ones((3, 5), np.float32), [3, 5]) * x,
            raw.Concat(concat_dim=1, values=[x, x * 2.0]),
            raw.Gather(params=x, indices=[2, 0]),
            raw.Add(x=x, y=x),
        ],
        draw(3, 5),
    ),
    "avg_pool3d": (lambda x: nn.avg_pool3d(x, [2, 3, 1], [1, 2, 1], "SAME"), draw(2, 4, 5, 3, 2)),
    "conv3d_transpose": (
        lambda x: nn.conv3d_transpose(x, draw(2, 3, 1, 3, 2), [2, 8, 9, 3, 3], [2, 2, 1], "SAME"),
        draw(2, 4, 5, 3, 2),
    ),
    "batch_products": (
        lambda a, b: [
            raw.BatchMatMul(x=a, y=b, adj_y=True),
            raw.BatchMatMulV3(x=a, y=b, Tout=tf.float32, adj_y=True),
        ],
        draw(2, 3, 4),
        draw(2, 5, 4),
    ),
}
