"""What the data movement families share: the base class, known integers, sizes, checked indices.

Not a family: no operator is declared here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import Dim, DimLike, Division, Maximum, is_known, maximum
from verax.ir.gains import Gain
from verax.ir.operator import Array, Evaluation, Inference, Operator
from verax.ir.types import DType
from verax.numerics.error_model import Rounding, U
from verax.ops.common import unit_roundoff

BEYOND = 2**31 - 1
"""Slice bounds from here on mean "to the end": exporters write INT32_MAX or INT64_MAX."""
INDEX_TYPES = (DType.int32, DType.int64)
SMALL_INTEGERS = (DType.int8, DType.int16, *INDEX_TYPES, DType.uint8, DType.uint16, DType.uint32)


@dataclass(frozen=True)
class Movement(Operator):
    """An operator that only moves elements: exact in every dtype, and usable on shapes."""

    gains: ClassVar[tuple[Gain, ...]] = (Gain.proportional,)
    exact: ClassVar[bool] = True
    takes_narrow: ClassVar[bool] = True
    symbolic: ClassVar[bool] = True

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """The same movement on the declared dtypes: no bit of an element changes."""
        return self.reference(ev, *inputs)


def known_ints(ctx: Inference, index: int, name: str) -> list[DimLike] | None:
    """Values of an integer input as a list (numbers and `Dim`s), None when not known or omitted.

    Fails when the input is not a tensor of integers of rank 0 or 1.
    """
    if not ctx.has(index):
        return None
    type_ = ctx.type(index)
    ctx.require(type_.dtype.is_integer, f"{name} must hold integers, it is {type_}")
    ctx.require(type_.rank <= 1, f"{name} must be a list of integers, it is {type_}")
    value = ctx.value(index)
    if value is None:
        return None
    return [v if isinstance(v, Dim) else int(v) for v in np.asarray(value).ravel()]


def known_axes(ctx: Inference, index: int, name: str = "axes") -> list[int] | None:
    """As `known_ints` for axes, which cannot be symbols."""
    values = known_ints(ctx, index, name)
    if values is None:
        return None
    axes = [v for v in values if isinstance(v, int)]
    ctx.require(len(axes) == len(values), f"{name} must be numbers, they are {values}")
    return axes


MAX_RANK = 64
"""Dimensions that NumPy's arrays may have."""


def list_length(ctx: Inference, index: int, name: str) -> int:
    """Length of a 1-D input; fails when it is not known."""
    type_ = ctx.type(index)
    ctx.require(type_.rank == 1, f"{name} must have rank 1, it is {type_}")
    length = type_.dims[0]
    if not isinstance(length, int):
        ctx.fail(f"the length of {name} is not known ({type_}), so the result has no known rank")
    ctx.require(length <= MAX_RANK, f"{name} would give the result {length} dimensions")
    return length


def require_indices(ctx: Inference, index: int, name: str = "indices") -> None:
    """Fails unless the input holds int32 or int64."""
    type_ = ctx.type(index)
    ctx.require(type_.dtype in INDEX_TYPES, f"{name} must be int32 or int64, it is {type_}")


def agree(ctx: Inference, dims: Iterable[DimLike], name: str) -> DimLike:
    """The size that all `dims` share: an int if any is one. `ctx` fails when two ints differ."""
    common: DimLike | None = None
    for d in dims:
        if common is None or (is_known(d) and not is_known(common)):
            common = d
        elif is_known(d) and d != common:
            ctx.fail(f"{name} must be equal, they are {common} and {d}")
    assert common is not None
    return common


def minimum(left: DimLike, right: DimLike) -> DimLike:
    """The smaller dimension."""
    return left + right - maximum(left, right)


def is_size(dim: DimLike) -> bool:
    """Whether `dim` cannot be negative whatever its symbols are (False: it might be)."""
    if isinstance(dim, int):
        return dim >= 0
    return all(f > 0 and all(_atom_is_size(a) for a, _ in monomial) for monomial, f in dim.terms)


def _atom_is_size(atom: object) -> bool:
    if isinstance(atom, Division):
        return is_size(atom.numerator) and is_size(atom.denominator)
    if isinstance(atom, Maximum):
        return is_size(atom.left) or is_size(atom.right)
    return True


def resolve_indices(indices: Array, size: int | Array, name: str) -> Array:
    """int64 indices in [0, size); negative ones count from the end. Raises `InputError`.

    size: broadcasts against `indices`.
    """
    indices = np.asarray(indices).astype(np.int64)
    bad = (indices < -np.asarray(size)) | (indices >= size)
    if bad.any():
        wrong = indices[bad][0]
        limit = int(np.broadcast_to(size, indices.shape)[bad][0])
        raise InputError(
            f"{name} holds {wrong}, the axis has size {limit}",
            next_step=f"indices must lie in [{-limit}, {limit - 1}]" if limit else "",
        )
    return np.where(indices < 0, indices + size, indices)


def at_least_float32(model: Rounding, dtype: DType) -> Rounding:
    """A model in float32 roundings for an output of `dtype`: larger for half precisions.

    float64 keeps it: coordinates and weights are computed in float32 by honest runtimes.
    """
    factor = max(1.0, unit_roundoff(dtype) / U)
    return Rounding(model.sigma * factor, model.bound * factor)


def scalar(value: Array) -> Any:
    """The element of a tensor that must hold one. Raises `InputError`."""
    array = np.asarray(value)
    if array.size != 1:
        raise InputError(f"one value is expected, the shape is {array.shape}")
    return array.ravel()[0]


def ints(value: Array) -> list[int]:
    """A tensor of integers as a flat list."""
    return [int(v) for v in np.asarray(value).ravel()]


def axis_of(axis: int, rank: int) -> int:
    """`axis` counted from the front, for references. Raises `InputError`."""
    if not -rank <= axis < rank:
        raise InputError(f"the axis {axis} is not one of a tensor of rank {rank}")
    return axis % rank


def along(axis: int, index: Any) -> tuple[Any, ...]:
    """The index that takes `index` on `axis` and everything elsewhere."""
    return (slice(None),) * axis + (index,)
