"""How tensors lie in memory, and what was decided about the values of a graph."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verax.ir.assumptions import is_counted
from verax.ir.dim import DimLike, same
from verax.ir.graph import Graph
from verax.ir.types import DType, TensorType

Pads = tuple[tuple[int, int], ...]
"""Zeros before and after, per spatial axis."""


class Layout(enum.StrEnum):
    """How a tensor lies in its buffer: rows as NumPy has it, blocks of 16 channels, or pixels with
    all their few channels side by side, as files of images have them."""

    plain = "plain"
    blocked = "blocked"
    pixels = "pixels"


@dataclass
class Decided:
    """Where the values of a graph shall lie.

    blocked: values that are made blocked and stay so; row_major: those that could and do not.
    borders: zeros that readers of a value in a layout want around it. result_slices: values made
    in their place in a blocked concatenation: its result, and the first block there.
    """

    graph: Graph
    blocked: set[str] = field(default_factory=set)
    row_major: set[str] = field(default_factory=set)
    borders: dict[tuple[str, Layout], Pads] = field(default_factory=dict)
    result_slices: Mapping[str, tuple[str, int]] = field(default_factory=dict)


BLOCKABLE = frozenset(
    {DType.float32, DType.float64, DType.float16, DType.bfloat16,
     DType.int8, DType.uint8, DType.int16, DType.uint16, DType.int32, DType.int64}
)  # fmt: skip
"""Element types of blocked tensors: what convolutions read, sum in and make."""


def same_dims(left: Sequence[DimLike], right: Sequence[DimLike]) -> bool:
    """Whether two shapes are the same expressions."""
    return len(left) == len(right) and all(map(same, left, right))


def can_block(type_: TensorType) -> bool:
    """Whether a tensor may be blocked: batch, channels and one to three spatial axes, of a type
    that convolutions know; it may be found to be empty when it is counted."""
    if type_.dtype not in BLOCKABLE or not 3 <= type_.rank <= 5 or not type_.is_static:
        return False
    return all(is_counted(n) or n != 0 for n in type_.dims)


def widest(a: Pads, b: Pads) -> Pads:
    """Borders that serve both."""
    if not a or not b:
        return a or b
    return tuple((max(p, r), max(q, s)) for (p, q), (r, s) in zip(a, b))
