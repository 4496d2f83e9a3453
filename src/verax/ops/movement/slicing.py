"""Operators that cut and join along axes: Slice, Split, Concat, CenterCropPad. All are exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.assumptions import assumptions, is_counted
from verax.ir.dim import DimLike, ceildiv, is_known, maximum
from verax.ir.operator import Array, Case, Evaluation, Inference, operator
from verax.ir.types import TensorType
from verax.ops.common import draw, normalize_axes, normalize_axis
from verax.ops.movement.movement import (
    BEYOND,
    Movement,
    agree,
    along,
    axis_of,
    ints,
    is_size,
    known_axes,
    known_ints,
    list_length,
    minimum,
)


def slice_bounds(size: DimLike, start: DimLike, end: DimLike, step: int) -> tuple[DimLike, DimLike]:
    """First element and number of elements of a slice of an axis; step != 0.

    Negative bounds count from the end; then both are clamped to the axis: [0, size] for a positive
    step, start to [0, size - 1] and end to [-1, size - 1] for a negative one.
    """
    if step > 0 and is_counted(size, start, end):
        first, last = _clamped(size, start), _clamped(size, end)
        if first is not None and last is not None:
            return first, _count(first, last, step)
    start, end = (b + size if b < 0 else b for b in (start, end))
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start = min(max(start, 0), high)
    end = min(max(end, low), high)
    return start, max(0, -((start - end) // step))


@operator
class Slice(Movement):
    """Inputs: data, starts, ends, axes (default: the first ones), steps (default: 1)."""

    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 5

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        starts, ends = known_ints(ctx, 1, "starts"), known_ints(ctx, 2, "ends")
        if ctx.has(3):
            axes = known_axes(ctx, 3)
            if axes is None:
                return (data.with_dims([ctx.fresh("slice") for _ in data.dims]),)
        else:
            axes = list(range(list_length(ctx, 1, "starts")))
        axes = list(normalize_axes(ctx, axes, data.rank))
        steps = known_ints(ctx, 4, "steps") if ctx.has(4) else [1] * len(axes)
        for name, values in (("starts", starts), ("ends", ends), ("steps", steps)):
            if values is not None and len(values) != len(axes):
                ctx.fail(f"{len(values)} {name} for {len(axes)} axes")
        ctx.require(steps is None or 0 not in steps, "a step is 0")
        dims = list(data.dims)
        for i, axis in enumerate(axes):
            if starts is None or ends is None or steps is None:
                dims[axis] = ctx.fresh("slice")
            else:
                size = _slice_size(dims[axis], starts[i], ends[i], steps[i])
                dims[axis] = ctx.fresh("slice") if size is None else size
        return (data.with_dims(dims),)

    def reference(
        self,
        ev: Evaluation,
        data: Array,
        starts: Array,
        ends: Array,
        axes: Array | None = None,
        steps: Array | None = None,
    ) -> Array:
        first, last = ints(starts), ints(ends)
        sliced_axes = range(len(first)) if axes is None else ints(axes)
        by = [1] * len(first) if steps is None else ints(steps)
        if not len(first) == len(last) == len(sliced_axes) == len(by):
            raise InputError("starts, ends, axes and steps do not have one length")
        index: list[Any] = [slice(None)] * data.ndim
        for start, end, axis, step in zip(first, last, sliced_axes, by):
            if step == 0:
                raise InputError("a step is 0")
            axis = axis_of(axis, data.ndim)
            begin, count = slice_bounds(data.shape[axis], start, end, step)
            stop = begin + count * step
            index[axis] = slice(begin, None if stop < 0 else stop, step) if count else slice(0, 0)
        return data[tuple(index)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 7, 5))
        big = np.iinfo(np.int64).max
        for starts, ends, axes, steps in (
            ([0, 1], [1, 3], None, None),
            ([1, -4], [6, -1], [2, 3], None),
            ([1], [big], [-2], [2]),
            ([-1, 4], [-big, 0], [2, 3], [-1, -3]),
            ([-100, 9], [100, 2], [2, 3], [3, 1]),
            ([5], [2], [2], [1]),
            ([-100], [-200], [2], [-1]),
        ):
            bounds = [None if v is None else np.array(v) for v in (starts, ends, axes, steps)]
            yield Case(cls(), (x, *bounds), (1, 2, 3, 4), f"{starts}:{ends}:{steps} on {axes}")
        at_run_time = (np.array([1], np.int32), np.array([3], np.int32), np.array([1], np.int32))
        yield Case(cls(), (draw(rng, (2, 4), "int64"), *at_run_time), (3,), "bounds at run time")


def _slice_size(size: DimLike, start: DimLike, end: DimLike, step: DimLike) -> DimLike | None:
    """Number of elements, None when it cannot be said."""
    if not isinstance(step, int):
        return None
    are_numbers = all(isinstance(d, int) for d in (size, start, end))
    if are_numbers or assumptions() is not None:
        return slice_bounds(size, start, end, step)[1]
    if step < 0:
        is_last = start in (-1, size - 1) or (isinstance(start, int) and start >= BEYOND)
        is_open = end == -1 - size or (isinstance(end, int) and end <= -BEYOND)
        return ceildiv(size, -step) if is_last and is_open else None
    first, last = _clamped(size, start), _clamped(size, end)
    if first is None or last is None:
        return None
    return _count(first, last, step)


def _count(first: DimLike, last: DimLike, step: DimLike) -> DimLike:
    """Elements from position `first` on and before `last`, every `step`-th."""
    count = last - first
    return ceildiv(count if is_size(count) else maximum(count, 0), step)


def _clamped(size: DimLike, bound: DimLike) -> DimLike | None:
    """A bound of a slice with a positive step as a position in [0, size]."""
    if isinstance(bound, int) and abs(bound) >= BEYOND:
        return size if bound > 0 else 0
    if is_size(bound):
        return bound if bound == 0 or is_size(size - bound) else minimum(size, bound)
    if is_size(0 - bound):
        return size + bound if is_size(size + bound) else maximum(size + bound, 0)
    return None


@operator
class Split(Movement):
    """Into `num_outputs` parts along `axis`: of the sizes in input `split`, or equal ones.

    Without `split` every part but the last has ceil(size / num_outputs) elements.
    """

    num_outputs: int
    axis: int = 0
    max_inputs: ClassVar[int | None] = 2

    @property
    def output_count(self) -> int:
        return self.num_outputs

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, n = ctx.type(0), self.num_outputs
        ctx.require(n >= 1, f"num_outputs is {n}")
        axis = normalize_axis(ctx, self.axis, data.rank)
        size = data.dims[axis]
        sizes: list[DimLike]
        if not ctx.has(1):
            chunk = ceildiv(size, n)
            sizes = [chunk] * (n - 1) + [size - chunk * (n - 1)]
            if is_known(sizes[-1]) and sizes[-1] < 0:
                ctx.fail(f"axis {axis} of {data} cannot be split into {n} equal parts")
        else:
            static_sizes = known_ints(ctx, 1, "split")
            sizes = [ctx.fresh("split") for _ in range(n)] if static_sizes is None else static_sizes
            ctx.require(len(sizes) == n, f"split has {len(sizes)} sizes for {n} outputs")
            ctx.require(all(not is_known(p) or p >= 0 for p in sizes), f"a size < 0 in {sizes}")
            difference = size - sum(sizes)
            if static_sizes is not None and is_known(difference) and difference != 0:
                ctx.fail(f"split {sizes} does not add up to {size}, the size of axis {axis}")
        return [data.with_dims([*data.dims[:axis], p, *data.dims[axis + 1 :]]) for p in sizes]

    def reference(
        self, ev: Evaluation, data: Array, split: Array | None = None
    ) -> tuple[Array, ...]:
        axis = axis_of(self.axis, data.ndim)
        size, n = data.shape[axis], self.num_outputs
        chunk = -(-size // n)
        sizes = [chunk] * (n - 1) + [size - chunk * (n - 1)] if split is None else ints(split)
        if len(sizes) != n or min(sizes) < 0 or sum(sizes) != size:
            raise InputError(f"an axis of size {size} cannot be split into {n} parts {sizes}")
        return tuple(np.split(data, np.cumsum(sizes)[:-1], axis))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 7, 3))
        yield Case(cls(num_outputs=2), (x,))
        yield Case(cls(num_outputs=3, axis=1), (x,), (), "uneven")
        yield Case(cls(num_outputs=3, axis=-2), (x, np.array([4, 0, 3])), (1,))
        yield Case(cls(num_outputs=1, axis=2), (x,))
        yield Case(cls(num_outputs=2, axis=1), (x, np.array([2, 5])), (), "sizes at run time")


@operator
class Concat(Movement):
    """Join tensors along `axis`."""

    axis: int
    max_inputs: ClassVar[int | None] = None

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        types = [ctx.type(i) for i in range(len(ctx.types))]
        first = types[0]
        axis = normalize_axis(ctx, self.axis, first.rank)
        for i, t in enumerate(types):
            ctx.require(
                t.rank == first.rank and t.dtype == first.dtype, f"input {i} is {t}, not as {first}"
            )
        dims: list[DimLike] = []
        for a in range(first.rank):
            sizes = [t.dims[a] for t in types]
            same = a != axis
            dims.append(agree(ctx, sizes, f"sizes of axis {a}") if same else sum(sizes))
        return (first.with_dims(dims),)

    def reference(self, ev: Evaluation, *inputs: Array) -> Array:
        return np.concatenate(inputs, axis=self.axis)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(axis=0), (draw(rng, (2, 3)), draw(rng, (4, 3))))
        tensors = [draw(rng, (2, c, 4, 5)) for c in (3, 1, 6, 0)]
        yield Case(cls(axis=1), tuple(tensors))
        yield Case(cls(axis=-1), (draw(rng, (2, 3), "int64"), draw(rng, (2, 1), "int64")))
        yield Case(cls(axis=0), (draw(rng, (3,)),), (), "one input")


@operator
class CenterCropPad(Movement):
    """Crop or zero-pad `axes` (default: all) around the center to the sizes in input `shape`.

    The window starts at floor(difference / 2): of an odd difference, the one element more is
    cropped or padded at the end.
    """

    axes: tuple[int, ...] | None = None
    symbolic: ClassVar[bool] = False
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        axes = range(data.rank) if self.axes is None else self.axes
        axes = normalize_axes(ctx, axes, data.rank)
        shape = known_ints(ctx, 1, "shape")
        sizes = [ctx.fresh("crop") for _ in axes] if shape is None else shape
        ctx.require(len(sizes) == len(axes), f"{len(sizes)} sizes for {len(axes)} axes")
        dims = list(data.dims)
        for a, size in zip(axes, sizes):
            dims[a] = size
        return (data.with_dims(dims),)

    def reference(self, ev: Evaluation, data: Array, shape: Array) -> Array:
        axes = range(data.ndim) if self.axes is None else self.axes
        sizes = ints(shape)
        if len(sizes) != len(axes) or min(sizes, default=0) < 0:
            raise InputError(f"shape {sizes} does not fit the axes {tuple(axes)}")
        for axis, size in zip(axes, sizes):
            axis = axis_of(axis, data.ndim)
            extra = data.shape[axis] - size
            if extra >= 0:
                data = data[along(axis, slice(extra // 2, extra // 2 + size))]
            else:
                ends = [(0, 0)] * data.ndim
                ends[axis] = (-extra // 2, -extra - (-extra // 2))
                data = np.pad(data, ends)
        return data

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (4, 7, 3))
        yield Case(cls(), (x, np.array([3, 10, 3])), (1,))
        yield Case(cls(axes=(1, -1)), (x, np.array([4, 6])), (1,))
        yield Case(cls(axes=(0,)), (draw(rng, (5, 2), "int32"), np.array([2])), (1,))
