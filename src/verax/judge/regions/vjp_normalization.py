"""Vector-Jacobian rules of normalisations and softmax (see `vjp`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.ir.operator import Operator
from verax.judge.regions.vjp_step import Array, Step
from verax.ops.sums.response_normalization import neighbour_sums


def batch_normalization(step: Step, gradients: Sequence[Array]) -> list[Array | None]:
    x, scale, _, _, variance = step.inputs
    if any(step.wanted[1:]):
        raise NotImplementedError
    factor = scale / np.sqrt(variance + step.op.epsilon)
    return step.spread({0: gradients[0] * factor.reshape(1, -1, *(1,) * (x.ndim - 2))})


def _standardised(x: Array, axes: tuple[int, ...], epsilon: float, g: Array) -> Array:
    """Through (x - mean) / sqrt(variance + epsilon) over `axes`."""
    d = x - x.mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt((d * d).mean(axis=axes, keepdims=True) + epsilon)
    z = d * inverse
    mean_g, mean_gz = (v.mean(axis=axes, keepdims=True) for v in (g, g * z))
    return inverse * (g - mean_g - z * mean_gz)


def normalization(step: Step, gradients: Sequence[Array]) -> list[Array | None]:
    """Instance, layer and group normalisation, and mean-variance normalisation, through x."""
    op, x = step.op, step.inputs[0]
    if any(step.wanted[1:]):
        raise NotImplementedError
    g, scale = gradients[0], (*step.inputs, np.ones(1))[1]
    if op.kind == "LayerNormalization":
        return step.spread({0: _standardised(x, _trailing(op, x), op.epsilon, g * scale)})
    if op.kind == "MeanVarianceNormalization":
        axes = tuple(sorted(a % x.ndim for a in op.axes))
        return step.spread({0: _standardised(x, axes, 0.0, g)})
    groups = op.num_groups if op.kind == "GroupNormalization" else x.shape[1]
    repeats = x.shape[1] // len(scale)
    per_channel = np.repeat(scale, repeats).reshape(1, -1, *(1,) * (x.ndim - 2))
    shape = (x.shape[0], groups, -1, *x.shape[2:])
    grouped, cotangent = x.reshape(shape), (g * per_channel).reshape(shape)
    found = _standardised(grouped, tuple(range(2, grouped.ndim)), op.epsilon, cotangent)
    return step.spread({0: found.reshape(x.shape)})


def _trailing(op: Operator, x: Array) -> tuple[int, ...]:
    return tuple(range(op.axis % x.ndim, x.ndim))  # type: ignore[attr-defined]


def rms_normalization(step: Step, gradients: Sequence[Array]) -> list[Array | None]:
    x, scale = step.inputs
    if step.wanted[1]:
        raise NotImplementedError
    axes = _trailing(step.op, x)
    inverse = 1 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + step.op.epsilon)
    g, z = gradients[0] * scale, x * inverse
    return step.spread({0: inverse * (g - z * (g * z).mean(axis=axes, keepdims=True))})


def softmax(step: Step, gradients: Sequence[Array]) -> list[Array | None]:
    y, g, axes = step.outputs[0], gradients[0], step.op.axes(step.outputs[0].ndim)
    if step.op.kind == "LogSoftmax":
        return [g - np.exp(y) * g.sum(axis=axes, keepdims=True)]
    return [y * (g - (g * y).sum(axis=axes, keepdims=True))]


def response_normalization(step: Step, gradients: Sequence[Array]) -> list[Array | None]:
    op, x, g = step.op, step.inputs[0], gradients[0]
    before, after = op.reach
    base = op.bias + op.alpha / op.size * neighbour_sums(x * x, before, after)
    inner = neighbour_sums(g * x * base ** (-op.beta - 1), after, before)
    return [g * base**-op.beta - 2 * op.alpha / op.size * op.beta * x * inner]


def lp_normalization(step: Step, gradients: Sequence[Array]) -> list[Array | None]:
    op, x, g = step.op, step.inputs[0], gradients[0]
    total = np.sum(np.abs(x) ** op.p, axis=op.axis, keepdims=True) + op.epsilon
    norm = np.maximum(total ** (1 / op.p), op.floor)
    norm = np.where(norm == 0, np.inf, norm)
    moves = total ** (1 / op.p) >= op.floor
    inner = np.sum(g * x, axis=op.axis, keepdims=True) * moves
    slope = np.sign(x) / norm**2 if op.p == 1 else x / norm**3
    return [g / norm - slope * inner]
