"""Where the extremes are: ArgMax, ArgMin and TopK. Exact; NaN counts as the largest number in TopK
and as an extreme in ArgMax and ArgMin (as in NumPy)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import is_known
from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.ops.common import draw, normalize_axis, same_dtype
from verax.ops.pointwise.elementwise import NUMERIC


class ArgExtremum(Operator):
    """The index of an extreme element along an axis, the first or the last of equals."""

    gains = (Gain.unbounded,)
    axis: int
    keepdims: bool
    select_last_index: bool
    exact = True
    largest: ClassVar[bool]
    no_derivative = "it chooses, so that its result jumps"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), NUMERIC)
        x = ctx.type(0)
        axis = normalize_axis(ctx, self.axis, x.rank)
        ctx.require(x.dims[axis] != 0, f"axis {axis} has no elements")
        dims = list(x.dims)
        dims[axis : axis + 1] = [1] if self.keepdims else []
        return (TensorType(DType.int64, tuple(dims)),)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        find = np.argmax if self.largest else np.argmin
        if self.select_last_index:
            last = x.shape[self.axis] - 1
            index = last - find(np.flip(x, self.axis), axis=self.axis, keepdims=True)
        else:
            index = find(x, axis=self.axis, keepdims=True)
        index = np.asarray(index, np.int64)
        return index if self.keepdims else np.squeeze(index, self.axis)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for dtype in ("float32", "int32", "uint8"):
            for fields in (
                {},
                {"axis": 1, "keepdims": False},
                {"axis": -1, "select_last_index": True},
            ):
                x = draw(rng, (2, 3, 7), dtype, -1, 2)
                yield Case(cls(**fields), (x,), label=dtype)


@operator
class ArgMax(ArgExtremum):
    """Index of the largest element."""

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False
    largest = True


@operator
class ArgMin(ArgExtremum):
    """Index of the smallest element."""

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False
    largest = False


@operator
class TopK(Operator):
    """The k largest (or smallest) elements along an axis, and their indices; of equal elements
    the one with the lower index first. k is the second input.

    With `sorted` false any order would do; this one is given all the same.
    """

    gains = (Gain.unbounded,)
    axis: int = -1
    largest: bool = True
    sorted: bool = True
    min_inputs = 2
    max_inputs = 2
    exact = True
    no_derivative = "it chooses, so that its result jumps"
    no_hypotheses = "its attributes at other values are what is tried"

    @property
    def output_count(self) -> int:
        return 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), NUMERIC)
        x, k_value = ctx.type(0), ctx.value(1)
        count = ctx.type(1).size
        ctx.require(not is_known(count) or count == 1, f"k has {count} elements, not one")
        axis = normalize_axis(ctx, self.axis, x.rank)
        size = x.dims[axis]
        k = ctx.fresh("k") if k_value is None else k_value.ravel()[0]
        if k_value is not None and isinstance(k, int | np.integer):
            k = int(k)
            ctx.require(k >= 0, f"k is {k}")
            ctx.require(not is_known(size) or k <= size, f"k is {k}, axis {axis} has {size}")
        dims = [k if a == axis else d for a, d in enumerate(x.dims)]
        return (x.with_dims(dims), TensorType(DType.int64, tuple(dims)))

    def reference(self, ev: Evaluation, x: Any, k: Any) -> Any:
        count, size = int(np.ravel(k)[0]), x.shape[self.axis]
        if not 0 <= count <= size:
            raise InputError(f"TopK: k is {count}, the axis has {size} elements")
        if self.largest:  # a stable descending order is the reverse of the reversed ascending one
            order = np.argsort(np.flip(x, self.axis), axis=self.axis, kind="stable")
            order = size - 1 - np.flip(order, self.axis)
        else:
            order = np.argsort(x, axis=self.axis, kind="stable")
        index = np.take(order, np.arange(count), axis=self.axis).astype(np.int64)
        return np.take_along_axis(x, index, axis=self.axis), index

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(dtype: str, k: int, **fields: Any) -> Case:
            x = draw(rng, (2, 3, 7), dtype, -2, 3)
            return Case(cls(**fields), (x, np.array([k], np.int64)), constant=(1,), label=dtype)

        for dtype in ("float32", "int32", "uint8"):
            yield case(dtype, 4)
            yield case(dtype, 2, axis=1, largest=False)
            yield case(dtype, 7, largest=False, sorted=False)
        yield case("float32", 0)
