"""The table's registry, and what rows of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Conversion, Result, ValueNeededError
from verax.frontends.common.table import Table
from verax.frontends.coreml.weights import Quantised
from verax.ir.types import TensorType
from verax.ops.windows import geometry

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
    found = c.attributes.get(name)
    c.attributes.irrelevant(f"{name}.isUpdatable", "it concerns training on the device")
    sizes = tuple(int(d) for d in shape)
    if found is None:
        raise ModelError(f"the layer has no {name}", place=c.node.place)
    if isinstance(found, Quantised):
        return found.values(sizes, axis, c.node.place)
    if not isinstance(found, np.ndarray) or found.size != int(np.prod(sizes, dtype=np.int64)):
        raise ModelError(f"{name} are not the {sizes} numbers of the layer", place=c.node.place)
    return found.reshape(sizes)


def bias(c: Conversion, count: int) -> list[str]:
    """The bias [count] as a list of one constant; empty when the layer has none."""
    if c.flag("hasBias"):
        return [c.constant(weights(c, "bias", (count,)))]
    c.attributes.irrelevant("bias", "hasBias is false")
    return []


def two(c: Conversion, name: str, default: tuple[int, int]) -> tuple[int, int]:
    """Sizes [height, width]. Raises `ModelError` when there are not two."""
    found: tuple[int, ...] = c.integers(name, ()) or default
    if len(found) != 2:
        raise ModelError(f"{name} = {found} must be two sizes", place=c.node.place)
    return found[0], found[1]


def amounts(c: Conversion, name: str) -> tuple[tuple[int, int], ...]:
    """Border amounts ((top, bottom), (left, right)); all 0 when the layer states none."""
    found: tuple[tuple[int, int], ...] = c.attributes.get(name, ()) or ((0, 0), (0, 0))
    if len(found) != 2:
        raise ModelError(f"{name} = {found} must be of height and width", place=c.node.place)
    return found


def or_default(value: float, default: float) -> float:
    """A number whose 0 stands for a default."""
    return value if value else default


def require_rank(c: Conversion, rank: int) -> None:
    if c.rank() != rank:
        c.refuse(f"the input {c.type(0)} does not have {rank} axes, others are not supported")


def sizes_of(c: Conversion, index: int, axes: Sequence[int], what: str) -> tuple[int, ...]:
    """Sizes of some axes of an input; raises `ValueNeededError` while they are symbols."""
    dims = [c.type(index).dims[a] for a in axes]
    if not all(isinstance(d, int) for d in dims):
        raise ValueNeededError(
            f"{what} follows from sizes, and the input is {c.type(index)}",
            place=c.node.place,
            next_step="give the inputs' shapes",
        )
    return tuple(int(d) for d in dims)  # type: ignore[arg-type]


Pads = tuple[tuple[int, int], ...]


def resolved(
    rule: Pads | str,
    x: TensorType,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] = (),
) -> Pads | str:
    """The pads of a window in numbers; a rule stays one while the sizes of x are symbols."""
    sizes = [d for d in x.dims[2:] if isinstance(d, int)]
    if len(sizes) != x.rank - 2:
        return rule
    return geometry(kernel, tuple(strides), rule, tuple(dilations)).resolved_pads(sizes)


def scaled(c: Conversion, x: str, scale: float, shift: float) -> str:
    """scale * x + shift, without the steps that change nothing."""
    if scale != 1:
        x = c.add("Mul", [x, c.like(scale)])
    return c.add("Add", [x, c.like(shift)]) if shift else x


def sliced(
    c: Conversion, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int],
    steps: Sequence[int] | None = None,
) -> Result:  # fmt: skip
    """Slice of input 0."""
    lists = (starts, ends, axes, steps or [1] * len(axes))
    return c.result("Slice", [c.required(0), *map(c.ints, lists)])


def resized(c: Conversion, mode: str, rule: str, sizes: Sequence[int]) -> Result:
    """Height and width, the last two axes, of input 0 resampled."""
    rank = c.rank()
    return c.result(
        "Resize",
        [c.required(0), None, None, c.ints(sizes)],
        mode=mode,
        coordinate_transformation_mode=rule,
        nearest_mode="floor",
        axes=(rank - 2, rank - 1),
    )


def windows_along(c: Conversion, x: str, axis: int, size: int, *, width: int, step: int) -> Result:
    """An axis of `size` elements as two axes: [windows, width], one window every `step`."""
    if min(width, step) < 1 or width > size:
        raise ModelError(f"windows of {width} every {step} in {size}", place=c.node.place)
    count = (size - width) // step + 1
    if count * width > MAX_MADE:
        raise ModelError(f"{count} windows of {width}", place=c.node.place)
    places = np.arange(count)[:, None] * step + np.arange(width)
    return c.result("Gather", [x, c.constant(places, np.int64)], axis=axis)
