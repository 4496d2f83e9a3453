"""Keras layers that normalize: by stored statistics, or by those of the tensor itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas, layers
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.shapes import inverse
from verax.frontends.keras.rows import (
    TRAINING,
    array_of,
    data_input,
    only_input,
    row,
    weights,
)
from verax.frontends.keras.table_operations import axes_of


@row("BatchNormalization")
def batch_normalization(c: Conversion) -> Result:
    """Weights: gamma where `scale`, beta where `center`, mean, variance."""
    a = c.attributes
    c.irrelevant(
        "momentum", "renorm_momentum", "renorm_clipping", "virtual_batch_size", reason=TRAINING
    )
    a.irrelevant("fused", "it chooses a kernel")
    a.expect("renorm", False)
    scale, center = a.flag("scale", True), a.flag("center", True)
    *parameters, mean, variance = weights(c, 2 + scale + center)
    size = array_of(c, mean).size
    gamma = parameters.pop(0) if scale else c.constant(np.ones(size, np.float32))
    beta = parameters.pop(0) if center else c.constant(np.zeros(size, np.float32))
    x = data_input(c, 2 + scale + center)
    return _with_channels_second(
        c,
        "BatchNormalization",
        x,
        [gamma, beta, mean, variance],
        _one_axis(c),
        epsilon=a.scalar("epsilon", 1e-3),
    )


def _with_channels_second(
    c: Conversion, kind: str, x: str, parameters: list[str], axis: int, **fields: Any
) -> Result:
    """As `layers.with_channels_second`; where nothing is moved, handed on as the layer's output."""
    y = layers.with_channels_second(c, kind, x, parameters, axis, **fields)
    return c.same(c.append(y)) if axis == 1 else y


def _one_axis(c: Conversion) -> int:
    """`axis`, a number or a list of one, counted from the front."""
    axis, rank = c.attributes.get("axis", -1), c.rank()
    axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
    if type(axis) is not int or not -rank <= axis < rank or axis % rank == 0:
        c.attributes.refuse("axis", "one axis other than the batch is supported")
    return int(axis) % rank


def _several_axes(c: Conversion) -> tuple[int, ...]:
    """`axis`, a number or several in ascending order, counted from the front."""
    axis, rank = c.attributes.get("axis", -1), c.rank()
    stated = axis if isinstance(axis, tuple) else (axis,)
    if not stated or any(type(a) is not int or not -rank <= a < rank for a in stated):
        c.attributes.refuse("axis", "axes of the tensor are supported")
    axes = tuple(a % rank for a in sorted(stated))  # weights lie in the order of the given numbers
    if list(axes) != sorted(set(axes)):
        c.attributes.refuse("axis", "axes from both ends")
    return axes


def _over_axes(c: Conversion, kind: str, parameters: list[str], **fields: Any) -> Result:
    """A normalization over some axes, which are moved to the end and back."""
    axes, rank = _several_axes(c), c.rank()
    perm = (*(i for i in range(rank) if i not in axes), *axes)
    still = perm == tuple(range(rank))
    x = c.required(0) if still else c.add("Transpose", [c.required(0)], perm=perm)
    y = c.add(kind, [x, *parameters], axis=-len(axes), **fields)
    if still:
        return c.same(y)
    return c.result("Transpose", [y], perm=inverse(perm))


def _sizes(c: Conversion) -> tuple[int, ...]:
    """Sizes of the axes that are normalized, as the weights have them."""
    return c.known_sizes(0, _several_axes(c))


@row("LayerNormalization")
def layer_normalization(c: Conversion) -> Result:
    """Over some axes. With rms_scaling, x / sqrt(variance + epsilon) gamma."""
    a = c.attributes
    scaled = a.flag("rms_scaling")
    scale, center = a.flag("scale", True) or scaled, a.flag("center", True) and not scaled
    parameters = weights(c, scale + center)
    data_input(c, scale + center)
    epsilon, shape = a.scalar("epsilon", 1e-3), _sizes(c)
    for value in parameters:
        if array_of(c, value).shape != shape:
            raise ModelError(f"weights {array_of(c, value).shape} for {shape}", place=c.node.place)
    gamma = parameters.pop(0) if scale else c.constant(np.ones(shape, np.float32))
    if scaled:
        return _by_deviation(c, gamma, epsilon)
    beta = parameters.pop(0) if center else c.constant(np.zeros(shape, np.float32))
    return _over_axes(c, "LayerNormalization", [gamma, beta], epsilon=epsilon)


def _by_deviation(c: Conversion, gamma: str, epsilon: float) -> Result:
    """x / sqrt(variance + epsilon) gamma: the mean stays."""
    axes, x = _several_axes(c), c.required(0)
    at = c.ints(axes)
    left = c.add("Sub", [x, c.add("ReduceMean", [x, at], keepdims=True)])
    variance = c.add("ReduceMean", [c.add("Mul", [left, left]), at], keepdims=True)
    root = c.add("Sqrt", [c.add("Add", [variance, c.constant(epsilon, np.float32)])])
    sizes = [d if i in axes else 1 for i, d in enumerate(c.type(0).dims)]
    shaped = c.constant(array_of(c, gamma).reshape([int(str(n)) for n in sizes]))
    return c.result("Mul", [c.add("Div", [x, root]), shaped])


@row("RMSNormalization")
def rms_normalization(c: Conversion) -> Result:
    """x / sqrt(mean(x^2) + epsilon) scale."""
    parameters = weights(c, 1)
    data_input(c, 1)
    if array_of(c, parameters[0]).shape != _sizes(c):
        raise ModelError(f"weights {array_of(c, parameters[0]).shape}", place=c.node.place)
    epsilon = c.scalar("epsilon", 1e-6)
    return _over_axes(c, "RMSNormalization", parameters, epsilon=epsilon)


@row("UnitNormalization")
def unit_normalization(c: Conversion) -> Result:
    return formulas.over_norm(c, only_input(c), axes_of(c, "axis", -1) or (), UNIT_EPSILON)


UNIT_EPSILON = 1e-12
SMALLEST_DEVIATION = 1e-7
"""What Normalization divides by at least."""


@row("Normalization")
def normalization(c: Conversion) -> Result:
    """(x - mean) / max(sqrt(variance), 1e-7), or its inverse. Statistics [*axes kept] are weights
    (the third of which says how many values were seen) or in the configuration."""
    a = c.attributes
    axis = a.get("axis", -1)
    axes = sorted(i % c.rank() for i in (axis if isinstance(axis, tuple) else (axis,)))
    if len(set(axes)) != len(axes) or 0 in axes:
        a.refuse("axis", "different axes other than the batch are supported")
    if a.has("mean") or a.has("variance"):
        weights(c, 0)
        mean, variance = (np.array(a.get(n), np.float32) for n in ("mean", "variance"))
    else:
        mean, variance, _ = (array_of(c, w) for w in weights(c, 3))
        if mean.ndim != len(axes):
            raise ModelError(f"axis {axis} does not fit {mean.shape}", place=c.node.place)
    x, sizes_ = c.cast(c.required(0), "float32"), [1] * c.rank()
    if mean.shape != variance.shape or mean.ndim > len(axes):
        raise ModelError(f"axis {axis} does not fit {mean.shape}", place=c.node.place)
    for i, size in zip(axes[len(axes) - mean.ndim :], mean.shape):
        sizes_[i] = size
    deviation = np.maximum(np.sqrt(variance), np.float32(SMALLEST_DEVIATION))
    center, scale = (c.constant(v.reshape(sizes_), np.float32) for v in (mean, deviation))
    if a.flag("invert"):
        return c.result("Add", [c.add("Mul", [x, scale]), center])
    return c.result("Div", [c.add("Sub", [x, center]), scale])


@row("GroupNormalization")
def group_normalization(c: Conversion) -> Result:
    """Statistics over groups of channels and all positions; -1 groups: one per channel."""
    a = c.attributes
    scale, center = a.flag("scale", True), a.flag("center", True)
    parameters = weights(c, scale + center)
    x, axis = data_input(c, scale + center), _one_axis(c)
    size = c.known_size(0, axis, "the scale")
    gamma = parameters.pop(0) if scale else c.constant(np.ones(size, np.float32))
    beta = parameters.pop(0) if center else c.constant(np.zeros(size, np.float32))
    groups = a.integer("groups", 32)
    return _with_channels_second(
        c,
        "GroupNormalization",
        x,
        [gamma, beta],
        axis,
        num_groups=size if groups == -1 else groups,
        epsilon=a.scalar("epsilon", 1e-3),
    )
