"""Channels-last operators (TFLite, TensorFlow, Keras) in terms of Verax's channels-first ones.

Data is moved there and back by Transpose nodes, exactly; constant weights are transposed once, as
data. Adjacent transposes cancel in the compiler, so nothing here tries to avoid them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.frontends.conversion import Conversion


def to_first(rank: int) -> tuple[int, ...]:
    """Permutation [n, *spatial, c] -> [n, c, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> tuple[int, ...]:
    """Permutation [n, c, *spatial] -> [n, *spatial, c]."""
    return (0, *range(2, rank), 1)


def channels_first(c: Conversion, value: str) -> str:
    """The value with its channels moved from the last axis to the second."""
    perm = to_first(c.builder.types[value].rank)
    return c.add("Transpose", [value], perm=perm)


def finish_channels_last(c: Conversion, value: str) -> tuple[str, ...]:
    """Move the channels back; the result defines the foreign node's output."""
    perm = to_last(c.builder.types[value].rank)
    return c.result("Transpose", [value], perm=perm)


def constant_array(c: Conversion, value: str | None) -> np.ndarray | None:
    """The array of a graph value that is a constant of any size, else None."""
    if value is None:
        return None
    return c.builder.constants.get(value, c.builder.known.get(value))


def transposed(c: Conversion, value: str, perm: Sequence[int]) -> str:
    """The value transposed: as data when it is a constant, else by a node."""
    array = c.builder.constants.get(value)
    if array is None or array.ndim != len(perm):
        return c.add("Transpose", [value], perm=tuple(perm))
    return c.constant(np.ascontiguousarray(array.transpose(perm)))


def reshaped(c: Conversion, value: str, shape: Sequence[int]) -> str:
    """The value with another shape: as data when it is a constant, else by a node."""
    array = c.builder.constants.get(value)
    if array is None:
        return c.add("Reshape", [value, c.ints(shape)])
    return c.constant(array.reshape(shape))
