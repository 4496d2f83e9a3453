"""Operators that read elements by index: Gather, GatherElements, GatherND, Compress, NonZero,
ReverseSequence, Unique. All are exact; an index outside its axis is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import is_known
from verax.ir.gains import Gain
from verax.ir.operator import Array, Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.ops.common import draw, normalize_axis
from verax.ops.movement.movement import (
    Movement,
    agree,
    along,
    axis_of,
    ints,
    require_indices,
    resolve_indices,
)


@operator
class Gather(Movement):
    """Slices of `data` along `axis`, in the order and shape of `indices`."""

    axis: int = 0
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, indices = ctx.type(0), ctx.type(1)
        require_indices(ctx, 1)
        axis = normalize_axis(ctx, self.axis, data.rank)
        return (data.with_dims([*data.dims[:axis], *indices.dims, *data.dims[axis + 1 :]]),)

    def reference(self, ev: Evaluation, data: Array, indices: Array) -> Array:
        axis = axis_of(self.axis, data.ndim)
        return data[along(axis, resolve_indices(indices, data.shape[axis], "indices"))]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (4, 3, 5))
        yield Case(cls(), (x, np.array([[3, 0], [-1, -4]])), (1,))
        yield Case(cls(axis=1), (x, np.array(2)), (1,), "scalar index")
        yield Case(cls(axis=-1), (x, np.array([0, 4, 4, 1], np.int32)), (), "int32")
        yield Case(cls(axis=2), (draw(rng, (2, 3, 4), "bool"), np.array([[-2]])), (1,))
        yield Case(cls(), (draw(rng, (6,), "int64"), np.array([5, 2])), (1,))


@operator
class GatherElements(Movement):
    """out[i, j, ...] = data[..., indices[i, j, ...], ...], the index replacing position `axis`."""

    axis: int = 0
    symbolic: ClassVar[bool] = False
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, indices = ctx.type(0), ctx.type(1)
        require_indices(ctx, 1)
        check_elementwise(ctx, data, indices, normalize_axis(ctx, self.axis, data.rank))
        return (data.with_dims(indices.dims),)

    def reference(self, ev: Evaluation, data: Array, indices: Array) -> Array:
        axis = axis_of(self.axis, data.ndim)
        resolved = resolve_indices(indices, data.shape[axis], "indices")
        return data[element_positions(resolved, axis)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (4, 3, 5))
        yield Case(cls(), (x, rng.integers(-4, 4, (2, 3, 5))))
        yield Case(cls(axis=1), (x, rng.integers(-3, 3, (4, 6, 5))))
        yield Case(cls(axis=-1), (x, rng.integers(-5, 5, (3, 2, 7), dtype=np.int32)), (), "smaller")


def check_elementwise(ctx: Inference, data: TensorType, indices: TensorType, axis: int) -> None:
    """Fails unless `indices` has data's rank and nowhere but on `axis` a larger size."""
    ctx.require(indices.rank == data.rank, f"indices {indices} and data {data} differ in rank")
    for a, (size, limit) in enumerate(zip(indices.dims, data.dims)):
        if a != axis and is_known(size) and is_known(limit) and size > limit:
            ctx.fail(f"indices {indices} are larger than data {data} on axis {a}")


def element_positions(indices: Array, axis: int) -> tuple[Array, ...]:
    """Index arrays that address, for each element of `indices`, its own place with the index
    instead of the position on `axis`."""
    grids: list[Array] = list(np.indices(indices.shape, sparse=True))
    grids[axis] = indices
    return tuple(grids)


@operator
class GatherND(Movement):
    """Slices of `data` at the index tuples in the last axis of `indices`.

    The first `batch_dims` axes of both are walked together.
    """

    batch_dims: int = 0
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, indices, b = ctx.type(0), ctx.type(1), self.batch_dims
        require_indices(ctx, 1)
        ctx.require(
            0 <= b < min(data.rank, indices.rank), f"batch_dims is {b} for {data} and {indices}"
        )
        depth = indices.dims[-1]
        if not isinstance(depth, int):
            ctx.fail(f"the last axis of indices {indices} is not known, so the result has no rank")
        ctx.require(
            1 <= depth <= data.rank - b, f"index tuples of {depth} for {data}, batch_dims {b}"
        )
        batch = [
            agree(ctx, pair, f"sizes of batch axis {i}")
            for i, pair in enumerate(zip(data.dims[:b], indices.dims[:b]))
        ]
        return (data.with_dims([*batch, *indices.dims[b:-1], *data.dims[b + depth :]]),)

    def reference(self, ev: Evaluation, data: Array, indices: Array) -> Array:
        b, depth = self.batch_dims, indices.shape[-1]
        flat = data.reshape(prod(data.shape[:b]), *data.shape[b:])
        tuples = indices.reshape(prod(indices.shape[:b]), prod(indices.shape[b:-1]), depth)
        if len(flat) != len(tuples):
            raise InputError(f"the batch axes of {data.shape} and {indices.shape} differ")
        resolved = resolve_indices(tuples, np.array(data.shape[b : b + depth]), "indices")
        batch = np.arange(len(flat))[:, None]
        out = flat[(batch, *np.moveaxis(resolved, -1, 0))]
        return out.reshape((*indices.shape[:-1], *data.shape[b + depth :]))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 4, 5))
        limits = np.array(x.shape)
        yield Case(cls(), (x, rng.integers(-limits, limits, (7, 4))))
        yield Case(cls(), (x, rng.integers(-limits[:2], limits[:2], (3, 1, 2))))
        yield Case(cls(batch_dims=1), (x, rng.integers(-limits[1:3], limits[1:3], (2, 6, 2))))
        yield Case(cls(batch_dims=2), (x, rng.integers(-4, 4, (2, 3, 1))))


@operator
class Compress(Movement):
    """Slices along `axis` (None: elements of the flat tensor) where `condition` is true.

    A shorter condition is false beyond its end.
    """

    axis: int | None = None
    symbolic: ClassVar[bool] = False
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, condition = ctx.type(0), ctx.type(1)
        ctx.require(
            condition.dtype is DType.bool_ and condition.rank == 1,
            f"condition must be a list of bool, it is {condition}",
        )
        condition_value = ctx.value(1)
        count = (
            ctx.fresh("compress")
            if condition_value is None
            else int(np.count_nonzero(condition_value))
        )
        if self.axis is None:
            return (data.with_dims([count]),)
        axis = normalize_axis(ctx, self.axis, data.rank)
        return (data.with_dims([*data.dims[:axis], count, *data.dims[axis + 1 :]]),)

    def reference(self, ev: Evaluation, data: Array, condition: Array) -> Array:
        if self.axis is None:
            data = data.reshape(-1)
        axis = 0 if self.axis is None else axis_of(self.axis, data.ndim)
        selected = resolve_indices(np.flatnonzero(condition), data.shape[axis], "condition")
        return data[along(axis, selected)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (3, 4, 2))
        yield Case(cls(axis=1), (x, np.array([False, True, True])), (1,))
        yield Case(cls(), (x, np.array([False, True, False, False, True])))
        yield Case(cls(axis=-3), (x, np.array([True, False, True])))


@operator
class NonZero(Movement):
    """int64 [rank, count]: positions of elements other than 0, row-major (NaN is not 0)."""

    takes_narrow: ClassVar[bool] = False
    gains = (Gain.unbounded,)
    symbolic: ClassVar[bool] = False
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        return (TensorType(DType.int64, (ctx.type(0).rank, ctx.fresh("nonzero"))),)

    def reference(self, ev: Evaluation, x: Array) -> Array:
        if x.ndim == 0:
            return np.zeros((0, int(x != 0)), np.int64)
        return np.stack(np.nonzero(x)).astype(np.int64)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (3, 4, 2))
        x[1, 2] = x[2, 3, 0] = 0
        x[0, 0, 0], x[0, 0, 1] = np.nan, -0.0
        yield Case(cls(), (x,))
        yield Case(cls(), (draw(rng, (5, 2), "bool"),))
        yield Case(cls(), (draw(rng, (6,), "int32", -1, 1),))


@operator
class ReverseSequence(Movement):
    """Reverse, in each batch entry, the first sequence_lens[entry] elements along the time axis."""

    batch_axis: int = 1
    time_axis: int = 0
    symbolic: ClassVar[bool] = False
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, lengths = ctx.type(0), ctx.type(1)
        require_indices(ctx, 1, "sequence_lens")
        ctx.require(lengths.rank == 1, f"sequence_lens must have rank 1, it is {lengths}")
        batch = normalize_axis(ctx, self.batch_axis, data.rank, "batch_axis")
        time = normalize_axis(ctx, self.time_axis, data.rank, "time_axis")
        ctx.require(batch != time, f"batch_axis and time_axis are both {batch}")
        agree(ctx, (data.dims[batch], lengths.dims[0]), "batch size and length of sequence_lens")
        return (data,)

    def reference(self, ev: Evaluation, data: Array, lengths: Array) -> Array:
        batch, time = axis_of(self.batch_axis, data.ndim), axis_of(self.time_axis, data.ndim)
        size = data.shape[time]
        if lengths.shape != (data.shape[batch],):
            raise InputError(f"sequence_lens {lengths.shape} does not fit {data.shape}")
        if ((lengths < 0) | (lengths > size)).any():
            raise InputError(f"sequence_lens {ints(lengths)} do not lie in [0, {size}]")
        t, n = np.arange(size), lengths.astype(np.int64)[:, None]
        source = np.where(t < n, n - 1 - t, t)
        batch_first = np.moveaxis(data, (batch, time), (0, 1))
        out = batch_first[np.arange(len(source))[:, None], source]
        return np.moveaxis(out, (0, 1), (batch, time))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(), (draw(rng, (5, 3, 2)), np.array([4, 0, 5])))
        swapped = cls(batch_axis=0, time_axis=1)
        yield Case(swapped, (draw(rng, (2, 4, 3)), np.array([1, 3])))
        late = cls(batch_axis=0, time_axis=2)
        yield Case(late, (draw(rng, (2, 4, 3), "int16"), np.array([2, 3])))


@operator
class Unique(Movement):
    """Different elements (or slices along `axis`), with the first index of each, where each input
    element went, and counts; in ascending order if `sorted`, else of first appearance.
    """

    takes_narrow: ClassVar[bool] = False
    gains = (Gain.unbounded,)
    axis: int | None = None
    sorted: bool = True
    symbolic: ClassVar[bool] = False
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "its attributes at other values are what is tried"

    @property
    def output_count(self) -> int:
        return 4

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, count = ctx.type(0), ctx.fresh("unique")
        if self.axis is None:
            dims, inverse = [count], data.size
        else:
            axis = normalize_axis(ctx, self.axis, data.rank)
            dims = [*data.dims[:axis], count, *data.dims[axis + 1 :]]
            inverse = data.dims[axis]
        index = TensorType(DType.int64, (count,))
        return (data.with_dims(dims), index, index.with_dims([inverse]), index)

    def reference(self, ev: Evaluation, data: Array) -> Any:
        axis = None if self.axis is None else axis_of(self.axis, data.ndim)
        # NumPy cannot sort bfloat16 with NaN among it
        wide = data.astype(np.float32) if data.dtype.kind == "V" else data
        values, first, inverse, counts = np.unique(
            wide, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        values = values.astype(data.dtype, copy=False)
        inverse = inverse.reshape(-1)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            values = values[along(axis or 0, order)]
            first, counts, inverse = first[order], counts[order], rank[inverse]
        return values, first, inverse, counts

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-2, 3, (3, 4)).astype(np.float32)
        yield Case(cls(), (x,))
        yield Case(cls(sorted=False), (x,))
        rows = np.array([[1, 0], [2, 3], [1, 0], [0, 5], [2, 3]], np.int64)
        yield Case(cls(axis=0), (rows,))
        yield Case(cls(axis=-1, sorted=False), (np.ascontiguousarray(rows.T),))
