"""Operators that make tensors from little: ConstantOfShape, Range, EyeLike, OneHot, Trilu.

All but Range of floats are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import Dim, DimLike, ceildiv, is_known, maximum
from verax.ir.gains import Gain
from verax.ir.operator import Array, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import KAPPA, Rounding
from verax.ops.common import FLOATS, as_dtype, draw, normalize_axis, rounding
from verax.ops.movement.movement import (
    Movement,
    axis_of,
    ints,
    is_size,
    known_ints,
    list_length,
    scalar,
)

RANGE_TYPES = (*FLOATS, DType.int16, DType.int32, DType.int64)
ELEMENT_LIMIT = 2**33
"""A shape given as data may not ask for more elements than this."""


@operator
class ConstantOfShape(Operator):
    """A tensor of the shape in the input, filled with `value`."""

    value: float | int | bool = 0.0
    dtype: DType = DType.float32
    exact: ClassVar[bool] = True
    is_flat = True
    no_hypotheses = "its attributes at other values are what is tried"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        shape = known_ints(ctx, 0, "the shape")
        if shape is None:
            length = list_length(ctx, 0, "the shape")
            shape = [ctx.fresh("constant") for _ in range(length)]
        ctx.require(all(not is_known(d) or d >= 0 for d in shape), f"negative size in {shape}")
        return (TensorType(self.dtype, tuple(shape)),)

    def reference(self, ev: Evaluation, shape: Array) -> Array:
        dtype = ev.dtype(self.dtype)
        return self._filled(shape, Fraction(self.value) if dtype.kind == "O" else self.value, dtype)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        return self._filled(inputs[0], self.value, self.dtype.numpy)

    def _filled(self, shape: Array, value: Any, dtype: np.dtype) -> Array:
        sizes = ints(shape)
        if min(sizes, default=0) < 0:
            raise InputError(f"the shape {sizes} holds a negative size")
        elements = 1
        for size in sizes:
            elements *= size
        if elements > ELEMENT_LIMIT:
            raise InputError(f"the shape {sizes} asks for {elements} elements")
        return np.full(sizes, value, dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(), (np.array([2, 3]),), (0,))
        yield Case(cls(value=-1.5), (np.array([4, 0, 2]),), (0,))
        yield Case(cls(value=7, dtype=DType.int64), (np.array([3]),))
        yield Case(cls(value=True, dtype=DType.bool_), (np.array([], np.int64),), (0,), "scalar")
        yield Case(cls(value=0.1, dtype=DType.float64), (np.array([2, 1]),), (0,))


@operator
class Range(Operator):
    """start + i * delta for i < max(0, ceil((limit - start) / delta)); inputs are scalars."""

    gains = (Gain.unbounded,)
    symbolic: ClassVar[bool] = True
    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        first = ctx.type(0)
        for i, name in enumerate(("start", "limit", "delta")):
            t = ctx.type(i)
            ctx.require(t.dtype == first.dtype, f"{name} is {t}, start is {first}")
            ctx.require(t.size == 1 or not t.is_static, f"{name} must be one value, it is {t}")
        ctx.require(first.dtype in RANGE_TYPES, f"the element type {first.dtype} is not allowed")
        values = [ctx.value(i) for i in range(3)]
        if any(k is None or k.size != 1 for k in values):
            return (TensorType(first.dtype, (ctx.fresh("range"),)),)
        start, limit, delta = (np.asarray(k).ravel()[0] for k in values)
        return (TensorType(first.dtype, (self._count(ctx, start, limit, delta),)),)

    def _count(self, ctx: Inference, start: Any, limit: Any, delta: Any) -> DimLike:
        if not any(isinstance(v, Dim) for v in (start, limit, delta)):
            ctx.require(delta != 0, "delta is 0")
            return range_count(start, limit, delta)
        if isinstance(delta, Dim):
            return ctx.fresh("range")
        ctx.require(delta != 0, "delta is 0")
        distance, step = limit - start, int(delta)
        if step < 0:
            distance, step = 0 - distance, -step
        return ceildiv(distance if is_size(distance) else maximum(distance, 0), step)

    def reference(self, ev: Evaluation, start: Array, limit: Array, delta: Array) -> Array:
        first, last, step = scalar(start), scalar(limit), scalar(delta)
        if step == 0:
            raise InputError("delta is 0")
        n = range_count(first, last, step)
        return np.asarray(first + np.arange(n).astype(np.asarray(start).dtype) * step)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """In float32 (float64): round(start + round(i * delta)); halves compute in float32."""
        declared = inputs[0].dtype
        half = declared.itemsize == 2 and ev.outputs[0].dtype.is_float
        wide = [x.astype(np.float32) for x in inputs] if half else inputs
        return np.asarray(self.reference(ev, *wide)).astype(declared)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Some add delta again and again: i roundings of numbers up to max(|start|, |y|)."""
        dtype = ev.outputs[0].dtype
        if not dtype.is_float:
            return (None,)
        y = outputs[0]
        i = np.arange(len(y))
        size = np.maximum(np.abs(float(scalar(inputs[0]))), np.abs(y)) * (i + 1)
        return (rounding(dtype, np.where(i == 0, 0.0, size), KAPPA, 2.0),)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for values in ((0, 7, 1), (3, 12, 4), (10, -3, -2), (4, 2, 1)):
            yield Case(cls(), tuple(np.array(v, np.int64) for v in values), (0, 1, 2))
        floats = tuple(np.array(v, np.float32) for v in (-1.1, 2.05, 0.3))
        yield Case(cls(), floats, (0, 1, 2))
        yield Case(cls(), floats, (), "at run time")
        yield Case(cls(), tuple(np.array(v, np.float64) for v in (1, 0, -0.125)), ())


def range_count(start: Any, limit: Any, delta: Any) -> int:
    """Number of elements of a range, exactly; inputs are finite numbers, delta is not 0."""
    try:
        n = max(0, ceil((Fraction(_plain(limit)) - Fraction(_plain(start))) / _plain(delta)))
    except (ValueError, OverflowError, TypeError) as error:
        raise InputError(f"a range from {start} to {limit} by {delta} has no size") from error
    if n > ELEMENT_LIMIT:
        raise InputError(f"a range from {start} to {limit} by {delta} has {n} elements")
    return n


def _plain(value: Any) -> Any:
    """A NumPy number as an exact Python one."""
    if isinstance(value, int | Fraction):
        return value
    return int(value) if isinstance(value, np.integer) else Fraction(float(value))


@operator
class EyeLike(Operator):
    """Ones on diagonal `k` (0: main, positive: above) of a matrix shaped like the input."""

    gains = (Gain.none,)
    dtype: DType | None = None
    k: int = 0
    exact: ClassVar[bool] = True
    is_flat = True
    no_hypotheses = "its attributes at other values are what is tried"

    def __post_init__(self) -> None:
        if self.dtype is not None:
            object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        ctx.require(data.rank == 2, f"a matrix is expected, not {data}")
        return (data if self.dtype is None else data.with_dtype(self.dtype),)

    def reference(self, ev: Evaluation, x: Array) -> Array:
        rows, columns = x.shape
        return np.eye(rows, columns, self.k).astype(ev.dtype(ev.outputs[0].dtype))

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        rows, columns = inputs[0].shape
        return np.eye(rows, columns, self.k).astype(ev.outputs[0].dtype.numpy)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(), (draw(rng, (3, 5)),))
        yield Case(cls(k=1, dtype=DType.int32), (draw(rng, (4, 3)),))
        yield Case(cls(k=-2, dtype=DType.float64), (draw(rng, (4, 3), "int64"),))


@operator
class OneHot(Movement):
    """Inputs: indices (any number type), depth, values [off, on]. The new axis is at `axis`.

    An index outside [-depth, depth) gives `off` everywhere.
    """

    takes_narrow: ClassVar[bool] = False
    gains = (Gain.unbounded, Gain.unbounded, Gain.bounded)
    axis: int = -1
    symbolic: ClassVar[bool] = False
    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        indices, depth, values = ctx.type(0), ctx.type(1), ctx.type(2)
        ctx.require(depth.size == 1 or not depth.is_static, f"depth must be one value: {depth}")
        ctx.require(values.rank == 1, f"values must be [off, on], they are {values}")
        ctx.require(values.dims[0] == 2 or not values.is_static, f"two values, not {values}")
        axis = normalize_axis(ctx, self.axis, indices.rank + 1)
        depth_value = ctx.value(1)
        size: DimLike = ctx.fresh("depth")
        if depth_value is not None:
            value = np.asarray(depth_value).ravel()[0]
            size = value if isinstance(value, Dim) else int(value)
            ctx.require(isinstance(size, Dim) or size >= 0, f"depth is {size}")
        return (TensorType(values.dtype, (*indices.dims[:axis], size, *indices.dims[axis:])),)

    def reference(self, ev: Evaluation, indices: Array, depth: Array, values: Array) -> Array:
        size = int(scalar(depth))
        if not 0 <= size <= ELEMENT_LIMIT:
            raise InputError(f"depth is {size}")
        axis = axis_of(self.axis, indices.ndim + 1)
        # Compared as they are: an index of 1.5 or NaN is no position.
        wrapped = np.where(indices < 0, indices + size, indices)
        shape = [1] * (indices.ndim + 1)
        shape[axis] = size
        hot = np.expand_dims(wrapped, axis) == np.arange(size).reshape(shape)
        return np.where(hot.astype(bool), values[1], values[0])

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        indices = np.array([[0, 2, -1], [4, -5, 9]])
        values = np.array([-0.5, 2.0], np.float32)
        yield Case(cls(), (indices, np.array(5), values), (1,))
        yield Case(cls(axis=0), (indices, np.array([5]), values), (1,))
        yield Case(cls(axis=1), (indices, np.array(3), np.array([0, 1])), (), "depth at run time")
        floats = np.array([1, -2], np.float32)
        yield Case(cls(), (floats, np.array(4, np.int32), np.array([False, True])), (1,))


@operator
class Trilu(Movement):
    """The upper (or lower) triangle of the last two axes, zeros elsewhere.

    Optional input k: the diagonal to start from (0: main, positive: above it).
    """

    upper: bool = True
    max_inputs: ClassVar[int | None] = 2
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data = ctx.type(0)
        ctx.require(data.rank >= 2, f"at least two axes are expected, not {data}")
        if ctx.has(1):
            k = ctx.type(1)
            ctx.require(k.dtype.is_integer and k.size == 1, f"k must be one integer, it is {k}")
        return (data,)

    def reference(self, ev: Evaluation, x: Array, k: Array | None = None) -> Array:
        diagonal = 0 if k is None else int(scalar(k))
        rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
        keep = columns - rows >= diagonal if self.upper else columns - rows <= diagonal
        return np.where(keep, x, np.zeros((), x.dtype))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 4, 5))
        x[0, 2, 0] = np.nan
        for upper in (True, False):
            for k in (None, 1, -2, 9, np.iinfo(np.int64).min + 1):
                yield Case(cls(upper=upper), (x, None if k is None else np.array(k)))
        yield Case(cls(), (draw(rng, (3, 2), "int64"), np.array([-1])), (1,))
