"""Vector-Jacobian rules of normalizations and softmax (see `vjp`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.ir.operator import Operator
from verax.judge.regions.vjp_step import Array, VjpStep, derivative_of, unbroadcast
from verax.ops.sums.response_normalization import neighbor_sums


@derivative_of("BatchNormalization")
def batch_normalization(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Sensitivities of x, scale and bias; in training mode by the batch's own statistics, where the
    inputs mean and variance have none."""
    x, scale, _, mean, variance = step.inputs
    training, epsilon, g = step.op.training_mode, step.op.epsilon, gradients[0]
    if any(step.needed[3:]) and not training:
        raise NotImplementedError
    axes, channels = (0, *range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))
    factor = scale.reshape(channels)
    by_input: dict[int, Array] = {}
    if step.needed[0] and training:
        by_input[0] = _standardised(x, axes, epsilon, g * factor)
    elif step.needed[0]:
        by_input[0] = g * factor / np.sqrt(variance + epsilon).reshape(channels)
    if step.needed[1]:
        z = _standard(x, axes, epsilon)
        if not training:
            z = (x - mean.reshape(channels)) / np.sqrt(variance + epsilon).reshape(channels)
        by_input[1] = (g * z).sum(axis=axes)
    if step.needed[2]:
        by_input[2] = g.sum(axis=axes)
    return step.spread(by_input)


def _standard(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    d = x - x.mean(axis=axes, keepdims=True)
    return d / np.sqrt((d * d).mean(axis=axes, keepdims=True) + epsilon)


def _standardised(x: Array, axes: tuple[int, ...], epsilon: float, g: Array) -> Array:
    """Gradient of (x - mean) / sqrt(variance + epsilon) over `axes`, for the cotangent g."""
    d = x - x.mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt((d * d).mean(axis=axes, keepdims=True) + epsilon)
    z = d * inverse
    mean_g, mean_gz = (v.mean(axis=axes, keepdims=True) for v in (g, g * z))
    return inverse * (g - mean_g - z * mean_gz)


@derivative_of(
    *("InstanceNormalization", "GroupNormalization"),
    *("LayerNormalization", "MeanVarianceNormalization"),
)
def normalization(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Instance, layer and group normalization, and mean-variance normalization, through x, scale
    and bias."""
    op, x = step.op, step.inputs[0]
    g, scale, bias = gradients[0], *(*step.inputs[1:], np.ones(1), None)[:2]
    if op.kind == "MeanVarianceNormalization":
        axes = tuple(sorted(a % x.ndim for a in op.axes))
        return step.spread({0: _standardised(x, axes, 0.0, g)})
    if op.kind == "LayerNormalization":
        axes = _trailing(op, x)
        by_input = {0: _standardised(x, axes, op.epsilon, g * scale)}
        if any(step.needed[1:2]):
            by_input[1] = unbroadcast(g * _standard(x, axes, op.epsilon), scale.shape)
        if bias is not None and any(step.needed[2:3]):
            by_input[2] = unbroadcast(g, bias.shape)
        return step.spread(by_input)
    groups = op.num_groups if op.kind == "GroupNormalization" else x.shape[1]
    repeats = x.shape[1] // len(scale)
    per_channel = np.repeat(scale, repeats).reshape(1, -1, *(1,) * (x.ndim - 2))
    shape = (x.shape[0], groups, -1, *x.shape[2:])
    grouped, cotangent = x.reshape(shape), (g * per_channel).reshape(shape)
    within = tuple(range(2, grouped.ndim))
    back = _standardised(grouped, within, op.epsilon, cotangent)
    by_input = {0: back.reshape(x.shape)}
    if any(step.needed[1:2]):
        z = _standard(grouped, within, op.epsilon).reshape(x.shape)
        by_input[1] = _over_channels(g * z).reshape(-1, repeats).sum(1)
    if any(step.needed[2:3]):
        by_input[2] = _over_channels(g).reshape(-1, repeats).sum(1)
    return step.spread(by_input)


def _over_channels(gradient: Array) -> Array:
    return gradient.sum(axis=(0, *range(2, gradient.ndim)))


def _trailing(op: Operator, x: Array) -> tuple[int, ...]:
    return tuple(range(op.axis % x.ndim, x.ndim))  # type: ignore[attr-defined]


@derivative_of("RMSNormalization")
def rms_normalization(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    x, scale = step.inputs
    if step.needed[1]:
        raise NotImplementedError
    axes = _trailing(step.op, x)
    inverse = 1 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + step.op.epsilon)
    g, z = gradients[0] * scale, x * inverse
    return step.spread({0: inverse * (g - z * (g * z).mean(axis=axes, keepdims=True))})


@derivative_of("Softmax", "LogSoftmax")
def softmax(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    y, g, axes = step.outputs[0], gradients[0], step.op.axes(step.outputs[0].ndim)
    if step.op.kind == "LogSoftmax":
        return [g - np.exp(y) * g.sum(axis=axes, keepdims=True)]
    return [y * (g - (g * y).sum(axis=axes, keepdims=True))]


@derivative_of("LRN")
def response_normalization(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    op, x, g = step.op, step.inputs[0], gradients[0]
    before, after = op.reach
    base = op.bias + op.alpha / op.size * neighbor_sums(x * x, before, after)
    inner = neighbor_sums(g * x * base ** (-op.beta - 1), after, before)
    return [g * base**-op.beta - 2 * op.alpha / op.size * op.beta * x * inner]


@derivative_of("LpNormalization")
def lp_normalization(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    op, x, g = step.op, step.inputs[0], gradients[0]
    total = np.sum(np.abs(x) ** op.p, axis=op.axis, keepdims=True) + op.epsilon
    norm = np.maximum(total ** (1 / op.p), op.floor)
    norm = np.where(norm == 0, np.inf, norm)
    moves = total ** (1 / op.p) >= op.floor
    inner = np.sum(g * x, axis=op.axis, keepdims=True) * moves
    slope = np.sign(x) / norm**2 if op.p == 1 else x / norm**3
    return [g / norm - slope * inner]
