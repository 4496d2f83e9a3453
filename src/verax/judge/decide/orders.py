"""Own float32 runs of one node, as second opinions: other orders of summation, Winograd, FFT.
Plain NumPy, computed only when the sigma test has not accepted already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, Operator, as_tuple
from verax.judge.decide.orders_normalization import normalization_orders
from verax.numerics.error_model import U
from verax.numerics.statistics import FFT_TAPS
from verax.ops.windows.convolution import Conv
from verax.ops.windows.windows import over_spatial

Arrays = Sequence[Any]
SUMS = ("ReduceSum", "ReduceMean", "GlobalAveragePool")


def float32_runs(
    node: Node, ev: Evaluation, inputs: Arrays, output: int, *, promised: bool = True
) -> Iterator[np.ndarray]:
    """Output number `output` of the node on its declared inputs, in several float32 orders.

    promised: with `promised_run` as the last.
    """
    with np.errstate(all="ignore"):
        if isinstance(node.op, Conv) and inputs[0].dtype == np.float32:
            yield from _convolution_orders(node.op, inputs)
        elif node.op.kind == "MatMul":
            yield from _matmul_orders(inputs)
        elif node.op.kind in SUMS:
            yield from _mean_orders(node.op, ev, inputs)
        elif output == 0:
            yield from normalization_orders(node.op, inputs)
        narrow = Evaluation(ev.inputs, ev.outputs, np.dtype(np.float32))
        yield as_tuple(node.op.reference(narrow, *_as(inputs, np.float32)))[output]
    if promised:
        yield promised_run(node, ev, inputs, output)


def promised_run(node: Node, ev: Evaluation, inputs: Arrays, output: int) -> np.ndarray:
    """Output number `output` in the bit-exact order of the operator."""
    with np.errstate(all="ignore"):
        return as_tuple(node.op.canonical(ev, *inputs))[output]


def _as(inputs: Arrays, dtype: Any) -> list[Any]:
    return [x.astype(dtype) if x is not None and x.dtype.kind in "fV" else x for x in inputs]


def _convolution_orders(op: Conv, inputs: Arrays) -> Iterator[np.ndarray]:
    """Channel-major forwards and backwards, and channel-last without and with the bias first."""
    x, w, b = (*inputs, None)[:3]
    windows = op.geometry(w.shape[2:]).windows(x.shape[2:])
    padded, g = windows.padded(x), op.groups
    per_group, n = w.shape[1], x.shape[0]
    weights = w.reshape(g, w.shape[0] // g, *w.shape[1:])
    lanes = (1,) * windows.rank
    bias = np.zeros(w.shape[0], np.float32) if b is None else b
    bias = bias.reshape(1, g, -1, *lanes)
    channel_major = [(c, p) for c in range(per_group) for p in windows.positions()]
    channel_last = [(c, p) for p in windows.positions() for c in range(per_group)]
    orders = [(channel_major, 0), (channel_major[::-1], 0), (channel_last, 0)]
    for order, bias_first in [*orders, (channel_last, 1)] if b is not None else orders:
        acc = np.zeros((n, g, weights.shape[1], *windows.output), np.float32)
        acc += bias if bias_first else 0
        for c, position in order:
            seen = padded.tap(position).reshape(n, g, per_group, *windows.output)
            weight = weights[(slice(None), slice(None), c, *position)]
            acc += weight.reshape(1, *weight.shape, *lanes) * seen[:, :, c : c + 1]
        acc += 0 if bias_first else bias
        yield acc.reshape(n, w.shape[0], *windows.output)


def _matmul_orders(inputs: Arrays) -> Iterator[np.ndarray]:
    a, b = _as(inputs, np.float32)
    if a.ndim < 2 or b.ndim < 2:
        return
    for order in (range(a.shape[-1]), range(a.shape[-1] - 1, -1, -1)):
        acc: Any = np.float32(0)
        for k in order:
            acc = acc + a[..., k : k + 1] * b[..., k : k + 1, :]
        yield acc


def _mean_orders(op: Operator, ev: Evaluation, inputs: Arrays) -> Iterator[np.ndarray]:
    """One element after the other, over the axes that the output has lost, both ways."""
    x, shape = inputs[0].astype(np.float32), ev.outputs[0].shape
    if len(shape) != x.ndim or x.shape == shape or x.size == 0:
        return
    axes = tuple(a for a in range(x.ndim) if shape[a] != x.shape[a])
    remaining_axes = tuple(a for a in range(x.ndim) if a not in axes)
    flat = x.transpose(*remaining_axes, *axes).reshape(*(x.shape[a] for a in remaining_axes), -1)
    count = np.float32(1 if op.kind == "ReduceSum" else flat.shape[-1])
    for ordered in (flat, flat[..., ::-1]):
        yield np.add.accumulate(ordered, axis=-1)[..., -1].reshape(shape) / count


def winograd_applies(node: Node, inputs: Arrays) -> bool:
    """Whether Winograd's algorithm can compute the node: 3x3, stride 1, dilation 1, and sums over
    channels (nobody gains by it where groups have one)."""
    op = node.op
    return (
        isinstance(op, Conv)
        and (op.groups == 1 or inputs[1].shape[1] > 1)
        and inputs[0].ndim == 4
        and inputs[1].shape[2:] == (3, 3)
        and not {*op.strides, *op.dilations} - {1}
    )


def winograd_runs(node: Node, inputs: Arrays) -> dict[int, np.ndarray]:
    """Own runs by tile, F(2x2, 3x3) to F(6x6, 3x3), where `winograd_applies`.

    Of inputs near the largest float32, or the smallest, the transforms are those of numbers near 1,
    and what is not finite is taken as 0: the errors that they make are asked for, not an overflow.
    """
    op = node.op
    assert isinstance(op, Conv)
    x, w, b = (*_as(inputs, np.float32), None)[:3]
    windows = op.geometry(w.shape[2:]).windows(x.shape[2:])
    padded = np.nan_to_num(windows.pad(x), nan=0.0, posinf=0.0, neginf=0.0)
    exponent = np.frexp(np.abs(padded).max(initial=0))[1]
    padded = np.ldexp(padded, -exponent)
    runs = {}
    with np.errstate(all="ignore"):
        for tile in WINOGRAD_MATRICES:
            y = _winograd(padded, w, tile, op.groups)
            y = np.ldexp(y[:, :, : windows.output[0], : windows.output[1]], exponent)
            runs[tile] = y if b is None else y + b.reshape(1, -1, 1, 1)
    return runs


# Input, weight and output transforms of Lavin and Gray, "Fast Algorithms for Convolutional Neural
# Networks" (2016).
WINOGRAD_MATRICES: dict[int, tuple[list[list[float]], ...]] = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
    6: (
        [
            [1, 0, -21 / 4, 0, 21 / 4, 0, -1, 0],
            [0, 1, 1, -17 / 4, -17 / 4, 1, 1, 0],
            [0, -1, 1, 17 / 4, -17 / 4, -1, 1, 0],
            [0, 1 / 2, 1 / 4, -5 / 2, -5 / 4, 2, 1, 0],
            [0, -1 / 2, 1 / 4, 5 / 2, -5 / 4, -2, 1, 0],
            [0, 2, 4, -5 / 2, -5, 1 / 2, 1, 0],
            [0, -2, 4, 5 / 2, -5, -1 / 2, 1, 0],
            [0, -1, 0, 21 / 4, 0, -21 / 4, 0, 1],
        ],
        [
            [1, 0, 0],
            [-2 / 9, -2 / 9, -2 / 9],
            [-2 / 9, 2 / 9, -2 / 9],
            [1 / 90, 1 / 45, 2 / 45],
            [1 / 90, -1 / 45, 2 / 45],
            [32 / 45, 16 / 45, 8 / 45],
            [32 / 45, -16 / 45, 8 / 45],
            [0, 0, 1],
        ],
        [
            [1, 1, 1, 1, 1, 1, 1, 0],
            [0, 1, -1, 2, -2, 1 / 2, -1 / 2, 0],
            [0, 1, 1, 4, 4, 1 / 4, 1 / 4, 0],
            [0, 1, -1, 8, -8, 1 / 8, -1 / 8, 0],
            [0, 1, 1, 16, 16, 1 / 16, 1 / 16, 0],
            [0, 1, -1, 32, -32, 1 / 32, -1 / 32, 1],
        ],
    ),
}


def _winograd(padded: np.ndarray, w: np.ndarray, tile: int, groups: int) -> np.ndarray:
    """Valid 3x3 correlation of `padded` [n, c, h, w] in float32, cut up into output tiles."""
    b, g, a = (np.asarray(m, np.float32) for m in WINOGRAD_MATRICES[tile])
    n, c, height, width = padded.shape
    rows, columns = -(-(height - 2) // tile), -(-(width - 2) // tile)
    reach = ((0, rows * tile + 2 - height), (0, columns * tile + 2 - width))
    x = np.pad(padded, ((0, 0), (0, 0), *reach))
    seen = np.lib.stride_tricks.sliding_window_view(x, (tile + 2, tile + 2), axis=(2, 3))
    seen = seen[:, :, ::tile, ::tile]
    inputs = np.matmul(np.matmul(b, seen), b.T)  # n, c, rows, columns, t, t
    weights = np.matmul(np.matmul(g, w), g.T)  # o, c / groups, t, t
    t, o, per = (tile + 2) ** 2, w.shape[0], c // groups
    left = weights.reshape(groups, o // groups, per, t).transpose(0, 3, 1, 2)
    right = inputs.reshape(n, groups, per, rows * columns, t).transpose(0, 1, 4, 2, 3)
    mixed = np.matmul(left, right).transpose(0, 1, 3, 4, 2)
    mixed = mixed.reshape(n, w.shape[0], rows, columns, tile + 2, tile + 2)
    y = np.matmul(np.matmul(a, mixed), a.T)
    return y.transpose(0, 1, 2, 4, 3, 5).reshape(n, w.shape[0], rows * tile, columns * tile)


def fft_applies(node: Node, inputs: Arrays) -> bool:
    """Whether libraries compute such a node by Fourier transforms: many taps, stride 1."""
    op = node.op
    return (
        isinstance(op, Conv)
        and inputs[0].ndim in (4, 5)
        and int(np.prod(inputs[1].shape[2:])) >= FFT_TAPS
        and not {*op.strides, *op.dilations} - {1}
    )


def fft_run(node: Node, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """An own run by Fourier transforms over the whole padded input, where `fft_applies`, and the
    bound 2 u (sum over channels of |w_c| |x_c|, + |y|) of its error.
    """
    op = node.op
    assert isinstance(op, Conv)
    x, w, b = (*_as(inputs, np.float32), None)[:3]
    windows, g = op.geometry(w.shape[2:]).windows(x.shape[2:]), op.groups
    padded = windows.pad(x)
    axes, sizes = tuple(range(2, x.ndim)), padded.shape[2:]
    with np.errstate(all="ignore"):
        seen = np.fft.rfftn(padded, axes=axes).reshape(len(x), g, w.shape[1], -1)
        # Correlation: the conjugate of the kernel's transform.
        kernels = np.conj(np.fft.rfftn(w, sizes, axes)).reshape(g, -1, w.shape[1], seen.shape[3])
        mixed = np.einsum("ngcf,gocf->ngof", seen, kernels)
        frequencies = (*sizes[:-1], sizes[-1] // 2 + 1)
        y = np.fft.irfftn(mixed.reshape(len(x), len(w), *frequencies), sizes, axes)
        y = y[over_spatial(tuple(slice(n) for n in windows.output))].astype(np.float32)
        lanes = (1,) * windows.rank
        norms = np.sqrt((padded.astype(np.float64) ** 2).sum(axis=axes)).reshape(len(x), g, -1)
        weights = np.sqrt((w.astype(np.float64) ** 2).sum(axis=axes)).reshape(g, -1, w.shape[1])
        size = np.einsum("ngc,goc->ngo", norms, weights).reshape(len(x), len(w), *lanes)
    y = y if b is None else y + b.reshape(1, -1, *lanes)
    return y, 2 * U * (size + np.abs(y))
