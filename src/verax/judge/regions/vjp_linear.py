"""Vector-Jacobian rules of convolutions, products, pools, reductions and resampling (see `vjp`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.judge.regions.vjp_step import Array, VjpStep, derivative_of, unbroadcast
from verax.ops.images.resize import Resize
from verax.ops.sums.linear import Gemm
from verax.ops.windows.pooling import AveragePool, MaxPool
from verax.ops.windows.windows import over_spatial

# Convolutions and products


@derivative_of("Conv")
def convolution(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Through x: each tap's weights, transposed, spread every output back where the tap read."""
    x, w = step.inputs[:2]
    op, g = step.op, step.op.groups
    windows = op.geometry(w.shape[2:]).windows(x.shape[2:])
    by_input: dict[int, Array] = {}
    if step.needed[0]:
        by_input[0] = np.zeros(x.shape)
        for tap in windows.overlaps():
            back = _mixed(w[over_spatial(tap.position)], gradients[0], g)
            by_input[0][tap.input] += back[tap.output]
    if step.needed[1]:
        seen, n = windows.padded(x), x.shape[0]
        out = gradients[0].reshape(n, g, w.shape[0] // g, -1)
        slope = np.empty(w.shape)
        for position in windows.positions():
            tapped = seen.tap(position).reshape(n, g, w.shape[1], -1)
            slope[over_spatial(position)] = np.einsum("ngol,ngcl->goc", out, tapped).reshape(
                w.shape[:2]
            )
        by_input[1] = slope
    if len(step.inputs) > 2 and step.needed[2]:
        by_input[2] = _over_channels(gradients[0])
    return step.spread(by_input)


def _mixed(tap: Array, gradient: Array, groups: int) -> Array:
    """One tap [out, in / groups] transposed, times the gradient [n, out, *spatial]."""
    n, out, spatial = gradient.shape[0], tap.shape[0], gradient.shape[2:]
    if groups == out and tap.shape[1] == 1:
        return tap.reshape(1, out, *(1,) * len(spatial)) * gradient
    matrix = tap.reshape(groups, out // groups, tap.shape[1]).swapaxes(1, 2)
    mixed = np.matmul(matrix, gradient.reshape(n, groups, out // groups, -1))
    return mixed.reshape(n, groups * tap.shape[1], *spatial)


@derivative_of("ConvTranspose")
def transposed_convolution(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Through x: each input position gathers, tap by tap, what it was spread to."""
    x, w = step.inputs[:2]
    g = step.op.groups
    windows = step.op.spatial(*(step.ev.inputs[:2]))
    by_input: dict[int, Array] = {}
    if step.needed[1]:
        slope = np.zeros(w.shape)
        for tap in windows.transposed.overlaps():
            seen = gradients[0][tap.input].reshape(x.shape[0], g, w.shape[1], -1)
            read = x[tap.output].reshape(x.shape[0], g, x.shape[1] // g, -1)
            product = np.einsum("ngcl,ngol->gco", read, seen).reshape(w.shape[:2])
            slope[over_spatial(tap.position)] += product
        by_input[1] = slope
    if step.needed[0]:
        total = np.zeros(x.shape)
        for tap in windows.transposed.overlaps():
            seen = gradients[0][tap.input]
            matrix = w[over_spatial(tap.position)].reshape(g, x.shape[1] // g, -1)
            product = np.matmul(matrix, seen.reshape(x.shape[0], g, w.shape[1], -1))
            total[tap.output] += product.reshape(*x.shape[:2], *seen.shape[2:])
        by_input[0] = total
    if len(step.inputs) > 2 and step.needed[2]:
        by_input[2] = _over_channels(gradients[0])
    return step.spread(by_input)


def _over_channels(gradient: Array) -> Array:
    return gradient.sum(axis=tuple(a for a in range(gradient.ndim) if a != 1))


@derivative_of("Gemm")
def gemm(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    op: Gemm = step.op
    a, b, c = (*step.inputs, None)[:3]
    left, right = (a.T if op.trans_a else a), (b.T if op.trans_b else b)
    by_input, (g,) = {}, gradients
    if step.needed[0]:
        da = op.alpha * (g @ right.T)
        by_input[0] = da.T if op.trans_a else da
    if step.needed[1]:
        db = op.alpha * (left.T @ g)
        by_input[1] = db.T if op.trans_b else db
    if c is not None and step.needed[2]:
        by_input[2] = op.beta * unbroadcast(g, c.shape)
    return step.spread(by_input)


@derivative_of("MatMul")
def matmul(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    a, b = step.inputs
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    g = gradients[0].reshape(*batch, left.shape[-2], right.shape[-1])
    by_input = {}
    if step.needed[0]:
        product = np.matmul(g, right.swapaxes(-1, -2))
        by_input[0] = unbroadcast(product, left.shape).reshape(a.shape)
    if step.needed[1]:
        product = np.matmul(left.swapaxes(-1, -2), g)
        by_input[1] = unbroadcast(product, right.shape).reshape(b.shape)
    return step.spread(by_input)


# Pools, reductions, resampling


@derivative_of("AveragePool")
def average_pool(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    op: AveragePool = step.op
    windows = op.windows(step.inputs[0].shape)
    share = gradients[0] / windows.counts(include_pad=op.count_include_pad)
    total = np.zeros(step.inputs[0].shape)
    for tap in windows.overlaps():
        total[tap.input] += share[tap.output]
    return [total]


@derivative_of("MaxPool")
def max_pool(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    op: MaxPool = step.op
    x, y = step.inputs[0], step.outputs[0]
    windows = op.windows(x.shape)
    total, left = np.zeros(x.shape), gradients[0].copy()
    for tap in windows.overlaps():
        hit = x[tap.input] == y[tap.output]
        total[tap.input] += np.where(hit, left[tap.output], 0.0)
        left[tap.output][hit] = 0.0
    return [total]


@derivative_of("GlobalAveragePool")
def global_average(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    x = step.inputs[0]
    return [np.broadcast_to(gradients[0] / np.prod(x.shape[2:]), x.shape)]


def _extremum_mask(x: Array, extremum: Array, axes: tuple[int, ...]) -> Array:
    """1 at the elements equal to the extremum, divided by their count."""
    hit = x == extremum
    return hit / np.maximum(1, hit.sum(axis=axes, keepdims=True))


@derivative_of("GlobalMaxPool")
def global_maximum(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    x = step.inputs[0]
    return [gradients[0] * _extremum_mask(x, step.outputs[0], tuple(range(2, x.ndim)))]


SLOPES: dict[str, Callable[[Array, Array, tuple[int, ...], int], Any]] = {
    "ReduceSum": lambda x, y, axes, n: 1.0,
    "ReduceMean": lambda x, y, axes, n: 1.0 / n,
    "ReduceMax": lambda x, y, axes, n: _extremum_mask(x, y, axes),
    "ReduceMin": lambda x, y, axes, n: _extremum_mask(x, y, axes),
    "ReduceL1": lambda x, y, axes, n: np.sign(x),
    "ReduceL2": lambda x, y, axes, n: x / np.where(y == 0, 1.0, y),
    "ReduceSumSquare": lambda x, y, axes, n: 2 * x,
    "ReduceLogSum": lambda x, y, axes, n: np.exp(-y),
    "ReduceLogSumExp": lambda x, y, axes, n: np.exp(x - y),
}
"""Reductions -> derivative of y by each x, from x, y (axes kept), the axes and their count."""


@derivative_of(*SLOPES)
def reduction(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    x, *optional = step.inputs
    axes = step.op.reduced_axes(x.ndim, optional[0] if optional else None)
    reduced_shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    y, g = step.outputs[0].reshape(reduced_shape), gradients[0].reshape(reduced_shape)
    slope = SLOPES[step.op.kind](x, y, axes, int(np.prod([x.shape[a] for a in axes])))
    return step.spread({0: np.broadcast_to(g * np.nan_to_num(slope), x.shape)})


@derivative_of("Resize")
def resize(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Axis by axis backwards: every tap spreads its weight back."""
    op: Resize = step.op
    x, gradient = step.inputs[0], gradients[0]
    roi, scales, sizes = (*step.inputs[1:], None, None, None)[:3]
    for axis, table in reversed(op.tables(x.shape, roi, scales, sizes, "float64")):
        matrix = np.zeros((x.shape[axis], len(table.positions)))
        weights = np.ones(table.positions.shape) if table.weights is None else table.weights
        outputs = np.arange(len(table.positions))
        for k in range(table.positions.shape[1]):
            np.add.at(matrix, (table.positions[:, k], outputs), weights[:, k] * ~table.outside)
        resampled = np.tensordot(matrix, gradient, (1, axis))
        gradient = np.moveaxis(resampled, 0, axis)
    return step.spread({0: gradient})
