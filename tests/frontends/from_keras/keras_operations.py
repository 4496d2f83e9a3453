"""Small Keras models that hold the operations of `keras.ops` and the layers that pass values on.

Every function is called inside its domain, on values that differ along every axis.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Builder = Callable[..., Any]
"""From keras and the inputs to an output or several."""


def curves(keras: Any, x: Any) -> Any:
    ops = keras.ops
    part, inside = ops.sigmoid(x), ops.tanh(x) * 0.875  # in 0 .. 1, in -0.875 .. 0.875
    return [
        *(f(part) for f in (ops.log, ops.sqrt, ops.rsqrt)),
        ops.reciprocal(part + 0.5),
        *(f(inside) for f in (ops.arcsin, ops.arccos, ops.arctanh, ops.tan)),
        *(f(x) for f in (ops.arctan, ops.arcsinh, ops.sin, ops.cos, ops.sinh, ops.cosh)),
        ops.arccosh(part + 1.25),
        ops.erf(x),
    ]


def bent(keras: Any, x: Any) -> Any:
    """Activations as operations."""
    ops = keras.ops
    return [
        *(f(x) for f in (ops.relu6, ops.selu, ops.softplus, ops.softsign, ops.hard_sigmoid)),
        *(f(x) for f in (ops.hard_silu, ops.hard_tanh, ops.log_sigmoid, ops.tanh_shrink)),
        ops.elu(x, alpha=0.75),
        ops.celu(x, alpha=0.75),
        ops.log_softmax(x, axis=1),
    ]


def stepped(keras: Any, x: Any) -> Any:
    """Whole numbers of fractions, and signs."""
    ops = keras.ops
    return [
        *(f(x) for f in (ops.ceil, ops.floor, ops.round, ops.sign, ops.abs, ops.copy)),
        ops.stop_gradient(x),
        import_module("keras.src.ops.numpy").Abs()(x),  # `ops.abs` makes an Absolute
        ops.cast(x, "int32"),
    ]


def divided(keras: Any, x: Any) -> Any:
    """What is infinite, and what is no number: the judge leaves such a check undecided."""
    positive = keras.ops.relu(x)
    return [keras.ops.isinf(1.0 / positive), keras.ops.isnan(positive / positive)]


def scattered(keras: Any, x: Any) -> Any:
    """An error of the mean hardly changes a variance: the judge would call this check blind."""
    ops = keras.ops
    return [ops.var(x, axis=1), ops.std(x, axis=(1, 2), keepdims=True)]


def compared(keras: Any, x: Any, z: Any) -> Any:
    ops = keras.ops
    whole = ops.floor(x)
    other = ops.flip(whole, axis=2)  # an eighth of them equal
    less, equal = ops.less(whole, other), ops.equal(whole, other)
    return [
        less,
        equal,
        ops.less_equal(whole, other),
        ops.greater_equal(whole, other),
        ops.not_equal(whole, other),
        ops.logical_and(whole, ops.logical_not(less)),
        ops.logical_or(less, equal),
        ops.logical_xor(x > 0, less),
        ops.minimum(x, z[:, :1]),
        ops.divide(x, ops.exp(z[:, 1:2])),
        ops.divide(ops.cast(whole, "int32"), 3),
    ]


def gathered(keras: Any, x: Any) -> Any:
    """Reductions and what changes shapes."""
    ops = keras.ops
    return [
        ops.amax(x, axis=1),
        ops.amin(x, axis=(1, 2), keepdims=True),
        ops.argmin(x, axis=2),
        ops.prod(x, axis=1, keepdims=True),
        ops.logsumexp(x, axis=2),
        ops.cumsum(x, axis=1),
        ops.broadcast_to(ops.max(x, axis=(0, 1)), (3, 6)),
        ops.moveaxis(x, 1, 2),
        ops.moveaxis(ops.expand_dims(x, 1), (1, 2), (3, 1)),
        ops.ravel(x),
    ]


def looked_up(keras: Any, x: Any) -> Any:
    """Rows of a table, and layers that `keras.applications` keep for themselves."""
    layers, ops = keras.layers, keras.ops
    own = "keras.src.applications."
    layer_scale = import_module(f"{own}convnext").LayerScale
    custom = import_module(f"{own}inception_resnet_v2").CustomScaleLayer
    return [
        layers.Embedding(7, 5)(ops.argmax(x, axis=2)),
        layer_scale(0.5, 6)(x),
        custom(0.25)([x, ops.flip(x, axis=1)]),
    ]


def passed_on(keras: Any, x: Any, line: Any, cube: Any) -> Any:
    """Layers that change something in training only."""
    layers = keras.layers
    pictures = [
        layers.RandomColorJitter(brightness_factor=0.25),
        layers.RandomElasticTransform(),
        layers.RandomErasing(),
        layers.RandomGaussianBlur(),
        layers.RandomGrayscale(),
        layers.RandomHue(0.25),
        layers.RandomInvert(),
        layers.RandomPerspective(),
        layers.RandomRotation(0.25),
        layers.RandomShear(0.25, 0.125),
        layers.RandomTranslation(0.25, 0.125),
        layers.AugMix(),
        layers.CutMix(),
        layers.MixUp(),
        layers.RandAugment(),
        layers.SpatialDropout2D(0.25),
    ]
    lines = [
        layers.ActivityRegularization(l1=0.25, l2=0.125),
        layers.AlphaDropout(0.25),
        layers.GaussianDropout(0.25),
        layers.GaussianNoise(0.25),
        layers.Identity(),
        layers.SpatialDropout1D(0.25),
    ]
    for layer in pictures:
        x = layer(x)
    for layer in lines:
        line = layer(line)
    return [x, line, layers.SpatialDropout3D(0.25)(cube)]


def ranged(keras: Any, x: Any) -> Any:
    """More of them, of a range of values."""
    layers = keras.layers
    x = layers.RandomBrightness(0.25)(x)
    x = layers.RandomColorDegeneration(0.25)(x)
    x = layers.RandomPosterization(3)(x)
    x = layers.RandomSaturation(0.25)(x)
    return layers.RandomSharpness(0.25)(x)


OPERATIONS: dict[str, tuple[tuple[tuple[int, ...], ...], Builder]] = {
    "curves": (((4, 6),), curves),
    "bent": (((4, 6),), bent),
    "stepped": (((4, 6),), stepped),
    "divided": (((4, 6),), divided),
    "scattered": (((4, 6),), scattered),
    "compared": (((4, 6), (3, 6)), compared),
    "gathered": (((4, 6),), gathered),
    "looked up": (((4, 6),), looked_up),
    "passed on": (((9, 8, 3), (5, 4), (4, 3, 2, 5)), passed_on),
    "ranged": (((9, 8, 3),), ranged),
}
"""Shapes of the inputs without batch, and what is computed from them."""
NOT_IN_H5 = ("ranged",)
"""Keras 3.15 cannot save them so: it copies the configuration, whose tracked list it cannot."""
