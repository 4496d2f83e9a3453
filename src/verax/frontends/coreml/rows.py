"""The table's registry, and what rows of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import Table
from verax.frontends.coreml.weights import Quantized

TABLE = Table()
"""Rows by (domain, operator): layers of neural networks have domain "", operations of ML programs
"mil"."""
row = TABLE.row

LEGACY = 3
"""A layer's version where every tensor has the axes [sequence, batch, channel, height, width].

Sequences are not supported, so that such a tensor is [batch, channel, height, width] here.
"""


def weights(c: Conversion, name: str, shape: Sequence[Any], axis: int = 0) -> np.ndarray:
    """A layer's weights [*shape], float32; `axis` holds the output channels.

    Raises `ModelError` when the layer has none, or another number.
    """
    stored = c.attributes.get(name)
    c.attributes.irrelevant(f"{name}.isUpdatable", "it concerns training on the device")
    sizes = tuple(int(d) for d in shape)
    if stored is None:
        raise ModelError(f"the layer has no {name}", place=c.node.place)
    if isinstance(stored, Quantized):
        return stored.values(sizes, axis, c.node.place)
    if not isinstance(stored, np.ndarray) or stored.size != int(np.prod(sizes, dtype=np.int64)):
        raise ModelError(f"{name} are not the {sizes} numbers of the layer", place=c.node.place)
    return stored.reshape(sizes)


def bias(c: Conversion, count: int) -> np.ndarray | None:
    """The bias [count]; None when the layer has none."""
    if c.flag("hasBias"):
        return weights(c, "bias", (count,))
    c.attributes.irrelevant("bias", "hasBias is false")
    return None


def two(c: Conversion, name: str, default: tuple[int, int]) -> tuple[int, int]:
    """Sizes [height, width]. Raises `ModelError` when there are not two."""
    sizes: tuple[int, ...] = c.integers(name, ()) or default
    if len(sizes) != 2:
        raise ModelError(f"{name} = {sizes} must be two sizes", place=c.node.place)
    return sizes[0], sizes[1]


def amounts(c: Conversion, name: str) -> tuple[tuple[int, int], ...]:
    """Border amounts ((top, bottom), (left, right)); all 0 when the layer states none."""
    borders: tuple[tuple[int, int], ...] = c.attributes.get(name, ()) or ((0, 0), (0, 0))
    if len(borders) != 2:
        raise ModelError(f"{name} = {borders} must be of height and width", place=c.node.place)
    return borders


def or_default(value: float, default: float) -> float:
    """A number whose 0 stands for a default."""
    return value if value else default


def require_rank(c: Conversion, rank: int) -> None:
    if c.rank() != rank:
        c.refuse(f"the input {c.type(0)} does not have {rank} axes, others are not supported")


def resized(c: Conversion, x: str, mode: str, rule: str, sizes: Sequence[int]) -> Result:
    """Height and width, the last two axes of x, resampled; scales are those of the sizes."""
    rank = c.rank(x)
    return c.apply(
        "Resize",
        [x, None, None, c.ints(sizes)],
        mode=mode,
        coordinate_transformation_mode=rule,
        nearest_mode="floor",
        axes=(rank - 2, rank - 1),
    )
