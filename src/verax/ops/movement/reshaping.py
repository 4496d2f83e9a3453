"""Operators that give the same elements another shape: Reshape, Flatten, Squeeze, Unsqueeze,
Expand, Tile, Transpose, DepthToSpace, SpaceToDepth. All are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import DimLike, is_known, product
from verax.ir.operator import Array, Case, Evaluation, Inference, operator
from verax.ir.types import TensorType
from verax.ops.common import aligned_axes, broadcast_dims, draw, normalize_axes
from verax.ops.movement.movement import Movement, axis_of, ints, known_axes, known_ints, list_length


def axes_of_same_elements(
    op: Movement, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
) -> frozenset[int] | None:
    """`Operator.moved_axes` of those that keep all elements in order: each run of axes of the input
    is a run of axes of the output with as many elements."""
    before, after = ctx.type(index).dims, output.dims
    output_axes: set[int] = set()
    i = j = 0
    while i < len(before) or j < len(after):
        first, second = i, j
        left, right = before[i : i + 1], after[j : j + 1]
        i, j = i + len(left), j + len(right)
        while product(left) != product(right):
            if i == len(before) and j == len(after):
                return None  # of unknown sizes
            if j == len(after) or (i < len(before) and _is_less(product(left), product(right))):
                left, i = (*left, before[i]), i + 1
            else:
                right, j = (*right, after[j]), j + 1
        if any(a in axes for a in range(first, i)):
            output_axes.update(range(second, j))
    return frozenset(output_axes)


def _is_less(left: DimLike, right: DimLike) -> bool:
    return isinstance(left, int) and (not isinstance(right, int) or left < right)


@operator
class Reshape(Movement):
    """`shape` as in ONNX: one -1 is computed, 0 copies the input's size unless `allowzero`."""

    allowzero: bool = False
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        shape = known_ints(ctx, 1, "shape")
        if shape is None:
            length = list_length(ctx, 1, "shape")
            return (data.with_dims([ctx.fresh("reshape") for _ in range(length)]),)
        copied = [i for i, d in enumerate(shape) if d == 0 and not self.allowzero]
        if copied and copied[-1] >= data.rank:
            ctx.fail(f"shape {shape} copies axis {copied[-1]} of {data}, which has no such axis")
        holes = [i for i, d in enumerate(shape) if isinstance(d, int) and d == -1]
        ctx.require(len(holes) <= 1, f"shape {shape} holds more than one -1")
        ctx.require(all(not is_known(d) or d >= -1 for d in shape), f"size < -1 in {shape}")
        dims = [data.dims[i] if i in copied else d for i, d in enumerate(shape)]
        # Copied axes cancel: they say nothing about the size that is left to compute.
        input_size = product([d for i, d in enumerate(data.dims) if i not in copied])
        listed_size = product([d for i, d in enumerate(dims) if i not in copied and i not in holes])
        if holes:
            if listed_size == 0:
                ctx.fail(f"the -1 in shape {shape} is not determined, as another size is 0")
            if is_known(input_size) and is_known(listed_size) and input_size % listed_size:
                ctx.fail(
                    f"{data} cannot be reshaped to {shape}: "
                    f"{input_size} is no multiple of {listed_size}"
                )
            dims[holes[0]] = input_size // listed_size
        elif is_known(input_size) and is_known(listed_size) and product(dims) != data.size:
            ctx.fail(f"{data} has {data.size} elements, shape {shape} has {product(dims)}")
        return (data.with_dims(dims),)

    moved_axes = axes_of_same_elements

    def reference(self, ev: Evaluation, data: Array, shape: Array) -> Array:
        requested = ints(shape)
        copied = [i for i, d in enumerate(requested) if d == 0 and not self.allowzero]
        if copied and copied[-1] >= data.ndim:
            raise InputError(f"shape {requested} copies an axis that {data.shape} does not have")
        dims = [data.shape[i] if i in copied else d for i, d in enumerate(requested)]
        if dims.count(-1) == 1:
            hole = dims.index(-1)
            listed_size = prod(d for i, d in enumerate(dims) if i not in copied and i != hole)
            input_size = prod(d for i, d in enumerate(data.shape) if i not in copied)
            if listed_size > 0 and input_size % listed_size == 0:
                dims[hole] = input_size // listed_size
        if min(dims, default=0) < 0 or prod(dims) != data.size:
            raise InputError(f"a tensor of shape {data.shape} cannot be reshaped to {requested}")
        return data.reshape(dims)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 4, 5))
        for shape in ([6, 20], [0, -1, 10], [2, 1, 3, 1, 20], [-1], [0, 0, 20]):
            yield Case(cls(), (x, np.array(shape)), (1,), f"to {shape}")
        yield Case(cls(), (draw(rng, (3, 4), "int64"), np.array([2, 6])), (), "shape at run time")
        empty = draw(rng, (0, 3))
        yield Case(cls(allowzero=True), (empty, np.array([5, 0])), (1,), "allowzero")
        yield Case(cls(), (draw(rng, (1, 1)), np.array([], np.int64)), (1,), "to a scalar")


@operator
class Flatten(Movement):
    """To a matrix: axes before `axis` and axes from it on."""

    axis: int = 1

    def _axis(self, rank: int) -> int | None:
        return self.axis + rank * (self.axis < 0) if -rank <= self.axis <= rank else None

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        axis = self._axis(data.rank)
        if axis is None:
            ctx.fail(f"axis is {self.axis}, the tensor has rank {data.rank}")
        return (data.with_dims([product(data.dims[:axis]), product(data.dims[axis:])]),)

    moved_axes = axes_of_same_elements

    def reference(self, ev: Evaluation, data: Array) -> Array:
        axis = self._axis(data.ndim) or 0
        return data.reshape(prod(data.shape[:axis]), prod(data.shape[axis:]))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for axis in (1, 0, 2, 4, -1, -4):
            yield Case(cls(axis=axis), (draw(rng, (2, 3, 4, 5)),))


@operator
class Transpose(Movement):
    """Axis i of the result is axis perm[i] of the input; None reverses all axes."""

    perm: tuple[int, ...] | None = None

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        perm = self._perm(data.rank)
        if sorted(normalize_axes(ctx, perm, data.rank, "perm")) != list(range(data.rank)):
            ctx.fail(f"perm {perm} does not name each axis of {data} once")
        return (data.with_dims([data.dims[i] for i in perm]),)

    def _perm(self, rank: int) -> tuple[int, ...]:
        return tuple(reversed(range(rank))) if self.perm is None else self.perm

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int]:
        perm = self._perm(output.rank)
        return frozenset(i for i, a in enumerate(perm) if a % output.rank in axes)

    def reference(self, ev: Evaluation, data: Array) -> Array:
        return np.transpose(data, self.perm)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(), (draw(rng, (2, 3, 5)),))
        for perm in ((1, 0, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 1, 0, 2)):
            yield Case(cls(perm=perm), (draw(rng, (2, 3, 4, 5)),))
        yield Case(cls(perm=(1, 0)), (draw(rng, (2, 3), "bool"),))


def _distinct(axes: Sequence[int], rank: int) -> set[int]:
    """`axes` as indices in [0, rank). Raises `InputError` for one that occurs twice, as computed
    axes may."""
    distinct = {axis_of(a, rank) for a in axes}
    if len(distinct) < len(axes):
        raise InputError(f"axes {list(axes)} of a tensor of rank {rank} name one twice")
    return distinct


@operator
class Squeeze(Movement):
    """Remove the given axes, which must have size 1; without `axes` all of size 1. Where `axes` are
    computed, as many as there are: only running tells the sizes that are left."""

    max_inputs: ClassVar[int | None] = 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        if not ctx.has(1):
            ctx.require(
                data.is_static,
                f"which axes of {data} have size 1 is not known: `axes` is needed, or sizes "
                "(shapes={NAME: SIZES}, --shape NAME=SIZES)",
            )
            return (data.with_dims([d for d in data.dims if d != 1]),)
        axes = known_axes(ctx, 1)
        if axes is None:
            count = list_length(ctx, 1, "axes")
            ctx.require(count <= data.rank, f"{count} axes are removed from {data}")
            return (data.with_dims([ctx.fresh("squeeze") for _ in range(data.rank - count)]),)
        axes = list(normalize_axes(ctx, axes, data.rank))
        for a in axes:
            d = data.dims[a]
            ctx.require(not is_known(d) or d == 1, f"axis {a} of {data} is not of size 1")
        return (data.with_dims([d for i, d in enumerate(data.dims) if i not in axes]),)

    moved_axes = axes_of_same_elements

    def reference(self, ev: Evaluation, data: Array, axes: Array | None = None) -> Array:
        if axes is None:
            return data.reshape([d for d in data.shape if d != 1])
        removed = _distinct(ints(axes), data.ndim)
        if any(data.shape[a] != 1 for a in removed):
            raise InputError(f"axes {sorted(removed)} of {data.shape} are not all of size 1")
        return data.reshape([d for i, d in enumerate(data.shape) if i not in removed])

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (1, 3, 1, 5))
        yield Case(cls(), (x,))
        yield Case(cls(), (x, np.array([2])), (1,))
        yield Case(cls(), (x, np.array([-2, 0])), (1,))


@operator
class Unsqueeze(Movement):
    """Insert axes of size 1; `axes` are positions in the result, which may be computed."""

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        axes = known_axes(ctx, 1)
        if axes is None:
            rank = data.rank + list_length(ctx, 1, "axes")
            return (data.with_dims([ctx.fresh("unsqueeze") for _ in range(rank)]),)
        rank = data.rank + len(axes)
        inserted = normalize_axes(ctx, axes, rank)
        old = iter(data.dims)
        return (data.with_dims([1 if i in inserted else next(old) for i in range(rank)]),)

    moved_axes = axes_of_same_elements

    def reference(self, ev: Evaluation, data: Array, axes: Array) -> Array:
        listed = ints(axes)
        rank = data.ndim + len(listed)
        inserted = _distinct(listed, rank)
        old = iter(data.shape)
        return data.reshape([1 if i in inserted else next(old) for i in range(rank)])

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3))
        for axes in ([0], [1, 3], [-1], [-1, 0], [2, 0, 1]):
            yield Case(cls(), (x, np.array(axes)), (1,))
        yield Case(cls(), (np.array(5), np.array([0])), (1,), "of a scalar")


@operator
class Expand(Movement):
    """Broadcast the input with a tensor of the given shape (in both directions)."""

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        shape = known_ints(ctx, 1, "shape")
        if shape is not None:
            ctx.require(all(not is_known(d) or d >= 0 for d in shape), f"negative size in {shape}")
            return (data.with_dims(broadcast_dims(ctx, [data.dims, tuple(shape)])),)
        rank = max(data.rank, list_length(ctx, 1, "shape"))
        old = (1,) * (rank - data.rank) + data.dims
        return (
            data.with_dims(
                [d if isinstance(d, int) and d != 1 else ctx.fresh("expand") for d in old]
            ),
        )

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int]:
        return aligned_axes(axes, ctx.type(index), output)

    def reference(self, ev: Evaluation, data: Array, shape: Array) -> Array:
        try:
            return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(ints(shape))))
        except ValueError as error:
            raise InputError(f"{data.shape} does not broadcast with {ints(shape)}") from error

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (3, 1, 5))
        for shape in ([2, 3, 4, 5], [3, 4, 1], [5], [1, 1, 1]):
            yield Case(cls(), (x, np.array(shape)), (1,), f"to {shape}")
        yield Case(cls(), (draw(rng, (1, 2), "int32"), np.array([3, 2])), (), "shape at run time")


@operator
class Tile(Movement):
    """Repeat the tensor `repeats[i]` times along axis i."""

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        repeats = known_ints(ctx, 1, "repeats")
        if repeats is None:
            return (data.with_dims([ctx.fresh("tile") for _ in data.dims]),)
        ctx.require(
            len(repeats) == data.rank, f"{len(repeats)} repeats for {data} of rank {data.rank}"
        )
        ctx.require(all(not is_known(r) or r >= 0 for r in repeats), f"negative repeats {repeats}")
        return (data.with_dims([d * r for d, r in zip(data.dims, repeats)]),)

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int]:
        return aligned_axes(axes, ctx.type(index), output)

    def reference(self, ev: Evaluation, data: Array, repeats: Array) -> Array:
        counts = ints(repeats)
        if len(counts) != data.ndim or min(counts, default=0) < 0:
            raise InputError(f"repeats {counts} do not fit a tensor of shape {data.shape}")
        return np.tile(data, counts)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 4))
        for repeats in ([1, 2, 3], [3, 1, 1], [1, 0, 1], [1, 1, 1]):
            yield Case(cls(), (x, np.array(repeats)), (1,))
        yield Case(cls(), (draw(rng, (2, 3), "uint8"), np.array([2, 2])), (), "at run time")


class _Blocks(Movement):
    """Checks that DepthToSpace and SpaceToDepth share."""

    def _check(self, ctx: Inference, blocksize: int, mode: str) -> TensorType:
        data = ctx.type(0)
        ctx.require(data.rank == 4, f"a tensor of rank 4 (N, C, H, W) is expected, not {data}")
        ctx.require(blocksize >= 1, f"blocksize is {blocksize}")
        ctx.one_of("mode", mode, ("DCR", "CRD"))
        return data

    def _divide(self, ctx: Inference, size: DimLike, by: int, name: str) -> DimLike:
        if is_known(size) and size % by:
            ctx.fail(f"{name} is {size}, which {by} does not divide")
        return size // by


@operator
class DepthToSpace(_Blocks):
    """Channels to blocks of blocksize x blocksize pixels.

    The channel axis is [row, column, depth] in mode DCR and [depth, row, column] in mode CRD.
    """

    blocksize: int
    mode: str = "DCR"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        b = self.blocksize
        n, c, h, w = self._check(ctx, b, self.mode).dims
        depth = self._divide(ctx, c, b * b, "the number of channels")
        return (ctx.type(0).with_dims([n, depth, h * b, w * b]),)

    def reference(self, ev: Evaluation, x: Array) -> Array:
        (n, c, h, w), b = x.shape, self.blocksize
        depth = c // (b * b)
        if self.mode == "DCR":
            blocks = x.reshape(n, b, b, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = x.reshape(n, depth, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return blocks.reshape(n, depth, h * b, w * b)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for blocksize, mode in ((2, "DCR"), (2, "CRD"), (3, "CRD"), (1, "DCR")):
            x = draw(rng, (2, blocksize * blocksize * 3, 4, 5))
            yield Case(cls(blocksize=blocksize, mode=mode), (x,))


@operator
class SpaceToDepth(_Blocks):
    """Blocks of blocksize x blocksize pixels to channels; the inverse of DepthToSpace."""

    blocksize: int
    mode: str = "DCR"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        b = self.blocksize
        n, c, h, w = self._check(ctx, b, self.mode).dims
        rows, columns = self._divide(ctx, h, b, "the height"), self._divide(ctx, w, b, "the width")
        return (ctx.type(0).with_dims([n, c * (b * b), rows, columns]),)

    def reference(self, ev: Evaluation, x: Array) -> Array:
        (n, c, h, w), b = x.shape, self.blocksize
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        blocks = x.reshape(n, c, h // b, b, w // b, b).transpose(order)
        return blocks.reshape(n, c * b * b, h // b, w // b)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for blocksize, mode in ((2, "DCR"), (2, "CRD"), (3, "DCR")):
            x = draw(rng, (2, 3, blocksize * 4, blocksize * 5))
            yield Case(cls(blocksize=blocksize, mode=mode), (x,))
