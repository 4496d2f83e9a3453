"""Own float32 runs of normalizations that add one number after the other.

Over data with repeated values (an enlarged picture, a ramp) the rounding errors of such sums have
the same sign and are far larger than a model of independent errors says; runtimes that add so are
correct nevertheless. LRN may keep a running sum over channels: its rounding errors from a large
square remain when the square has left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.operator import Operator
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.normalization import GroupNormalization, InstanceNormalization
from verax.ops.sums.response_normalization import LRN

Arrays = Sequence[Any]


def normalization_orders(op: Operator, inputs: Arrays) -> Iterator[np.ndarray]:
    """Float32 results of a normalization by sequential sums; nothing for other operators.

    inputs: in their declared dtypes; only float32 ones are computed.
    """
    if inputs[0] is None or inputs[0].dtype != np.float32 or inputs[0].size == 0:
        return
    if isinstance(op, LRN):
        yield _running_sum(op, inputs[0])
    elif isinstance(op, InstanceNormalization | GroupNormalization | LayerNormalization):
        x = inputs[0]
        rows = _rows(op, x)
        yield _normalized(rows, op.epsilon).reshape(x.shape) * _along(op, inputs[1], x) + (
            _along(op, inputs[2], x) if len(inputs) > 2 and inputs[2] is not None else 0
        )


def _rows(op: Any, x: np.ndarray) -> np.ndarray:
    """x as [means, elements of each mean]."""
    if isinstance(op, LayerNormalization):
        return x.reshape(int(np.prod(x.shape[: op.axis % x.ndim])), -1)
    groups = op.num_groups if isinstance(op, GroupNormalization) else x.shape[1]
    return x.reshape(x.shape[0] * groups, -1)


def _along(op: Any, parameter: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A scale or bias, shaped so that it broadcasts over x."""
    if isinstance(op, LayerNormalization):
        return parameter
    return parameter.repeat(x.shape[1] // parameter.size).reshape(1, -1, *(1,) * (x.ndim - 2))


def _normalized(rows: np.ndarray, epsilon: float) -> np.ndarray:
    """(x - mean) / sqrt(variance + epsilon), both sums one element after the other."""
    count = np.float32(rows.shape[1])
    mean = np.add.accumulate(rows, axis=1)[:, -1:] / count
    centered = rows - mean
    variance = np.add.accumulate(centered * centered, axis=1)[:, -1:] / count
    return centered / np.sqrt(variance + np.float32(epsilon))


def _running_sum(op: LRN, x: np.ndarray) -> np.ndarray:
    """LRN with one sum that moves over the channels: the next square in, the oldest out."""
    channels = x.shape[1]
    before, after = (min(reach, channels) for reach in op.reach)
    size = before + 1 + after
    width = [(0, 0), (before + 1, after), *[(0, 0)] * (x.ndim - 2)]
    share = np.float32(op.alpha) / np.float32(op.size)
    terms = share * np.pad(x * x, width)
    base = np.full(x[:, 0].shape, op.bias, np.float32)
    for i in range(size):
        base = base + terms[:, i]
    y = np.empty_like(x)
    for c in range(channels):
        base = base + terms[:, c + size] - terms[:, c]
        y[:, c] = x[:, c] * base ** np.float32(-op.beta)
    return y
