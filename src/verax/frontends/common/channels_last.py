"""What the formats of TensorFlow's family share (TFLite, TensorFlow, Keras).

Their operators are channels-last, Verax's channels-first. Data is moved there and back by Transpose
nodes, exactly; constant weights are transposed once, as data. Adjacent transposes cancel in the
compiler, so nothing here tries to avoid them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion
from verax.ir.types import DType


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


# Constant operands


def constant_ints(c: Conversion, index: int, what: str) -> tuple[int, ...]:
    """A constant operand of integers, flat. Raises `ValueNeededError` when it is computed."""
    return tuple(int(v) for v in np.ravel(c.constant_input(index, what)))


def static_dims(c: Conversion, index: int, what: str) -> tuple[int, ...]:
    """Sizes of an operand that must be known; refuses the node else."""
    dims = c.type(index).dims
    if not all(isinstance(d, int) for d in dims):
        c.refuse(f"the sizes of {what}, {c.type(index)}, are not known: give shapes")
    return tuple(int(d) for d in dims if isinstance(d, int))


def longs(c: Conversion, index: int) -> str:
    """An operand of integers as an int64 vector."""
    known = c.known(index)
    if known is not None and known.dtype != object:
        return c.ints([int(v) for v in known.ravel()])
    value = c.required(index)
    return value if c.type(index).dtype is DType.int64 else c.add("Cast", [value], to=DType.int64)


def pads(c: Conversion) -> str:
    """Operand 1, (begin, end) per axis, as `Pad` takes it: all begins, then all ends."""
    flat = np.array(constant_ints(c, 1, "the paddings"), np.int64)
    if flat.size != 2 * c.rank(0) or (flat < 0).any():
        raise ModelError(f"paddings {flat.tolist()} for {c.type(0)}", place=c.node.place)
    return c.ints(flat.reshape(-1, 2).T.ravel().tolist())


def mirror_mode(c: Conversion) -> str:
    """`mode` of a mirroring pad: SYMMETRIC repeats the border element, which for one position is
    the edge."""
    mode = {"REFLECT": "reflect", "SYMMETRIC": "edge"}.get(c.attributes.text("mode", "REFLECT"))
    if mode is None:
        c.attributes.refuse("mode", "there is no such mode")
    if mode == "edge" and max(constant_ints(c, 1, "the paddings"), default=0) > 1:
        c.attributes.refuse("mode", "wider than one position")
    assert mode is not None
    return mode
