"""Operators that write elements by index: ScatterElements, ScatterND.

Without a reduction they are exact. Where several updates meet, the last one (row-major) wins
without a reduction, and a reduction takes them in that order: ONNX leaves both open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.gains import Gain
from verax.ir.operator import Array, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import KAPPA, TINY, Rounding, U, sum_of_products
from verax.ops.common import draw, normalize_axis
from verax.ops.movement.gather import check_elementwise, element_positions
from verax.ops.movement.movement import (
    agree,
    at_least_float32,
    axis_of,
    require_indices,
    resolve_indices,
)

REDUCTIONS: dict[str, Callable[[Array, Any, Array], Any]] = {
    "none": lambda out, at, updates: out.__setitem__(at, updates),
    "add": np.add.at,
    "mul": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


@dataclass(frozen=True, kw_only=True)
class _Scatter(Operator):
    """What both share, once the positions of updates are known."""

    gains = (Gain.bounded,)
    reduction: str = "none"
    symbolic: ClassVar[bool] = True
    takes_narrow: ClassVar[bool] = True
    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "its attributes at other values are what is tried"

    def _positions(self, data: Array, indices: Array) -> tuple[Array, ...]:
        raise NotImplementedError

    def _check(self, ctx: Inference) -> tuple[TensorType, TensorType, TensorType]:
        require_indices(ctx, 1)
        data, indices, updates = ctx.type(0), ctx.type(1), ctx.type(2)
        ctx.one_of("reduction", self.reduction, REDUCTIONS)
        ctx.require(updates.dtype == data.dtype, f"updates are {updates}, data is {data}")
        if self.reduction != "none" and data.dtype.is_narrow:
            ctx.fail(f"nothing is computed in {data.dtype}: the reduction is {self.reduction}")
        return data, indices, updates

    def reference(self, ev: Evaluation, data: Array, indices: Array, updates: Array) -> Array:
        dtype = object if updates.dtype == object else data.dtype
        out = np.array(data, dtype=dtype)
        REDUCTIONS[self.reduction](out, self._positions(data, indices), updates)
        return out

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """In the declared dtype, update by update in row-major order."""
        if self.reduction == "none" or inputs[0].dtype in (np.float32, np.float64):
            return self.reference(ev, *inputs)
        return super().canonical(ev, *inputs)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        declared = ev.inputs[0]
        if self.reduction not in ("add", "mul") or declared is None or not declared.dtype.is_float:
            return (None,)
        data, indices, updates = inputs
        at = self._positions(data, indices)
        count = np.zeros(data.shape)
        np.add.at(count, at, np.ones(updates.shape))
        if self.reduction == "mul":
            size = np.abs(outputs[0]) * np.sqrt(count)
            grown = np.full(data.shape, TINY)  # what a subnormal product loses, times what follows
            np.multiply.at(grown, at, np.maximum(np.abs(updates), 1))
            bound = 1.001 * U * np.abs(outputs[0]) * count + grown * np.maximum(count, 1)
            model = Rounding(KAPPA * U * size, bound)
            return (_untouched_exact(model, count, declared.dtype),)
        absolute, squares = np.abs(data), data * data
        np.add.at(absolute, at, np.abs(updates))
        np.add.at(squares, at, updates * updates)
        model = sum_of_products(outputs[0], absolute, squares, count + 1)
        return (_untouched_exact(model, count, declared.dtype),)


def _untouched_exact(model: Rounding, count: Array, dtype: DType) -> Rounding:
    """No error where nothing was added."""
    model = at_least_float32(model, dtype)
    touched = count > 0
    return Rounding(np.where(touched, model.sigma, 0.0), np.where(touched, model.bound, TINY))


@operator
class ScatterElements(_Scatter):
    """`data` with updates[i, j, ...] written where indices[i, j, ...] replaces position `axis`."""

    axis: int = 0
    symbolic: ClassVar[bool] = False

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, indices, updates = self._check(ctx)
        check_elementwise(ctx, data, indices, normalize_axis(ctx, self.axis, data.rank))
        ctx.require(updates.rank == indices.rank, f"updates are {updates}, indices {indices}")
        for a, pair in enumerate(zip(indices.dims, updates.dims)):
            agree(ctx, pair, f"sizes of indices and updates on axis {a}")
        return (data,)

    def _positions(self, data: Array, indices: Array) -> tuple[Array, ...]:
        axis = axis_of(self.axis, data.ndim)
        resolved = resolve_indices(indices, data.shape[axis], "indices")
        return tuple(np.broadcast_arrays(*element_positions(resolved, axis)))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (4, 3, 5))
        different = np.argsort(rng.random((4, 3, 5)), axis=1)[:, :2] - 3
        yield Case(cls(axis=1), (x, different, draw(rng, (4, 2, 5))))
        small = np.argsort(rng.random((4, 2, 3)), axis=0)[:3].astype(np.int32)
        yield Case(cls(), (x, small, draw(rng, (3, 2, 3))), (), "smaller")
        indices, updates = rng.integers(-5, 5, (3, 3, 6)), draw(rng, (3, 3, 6))
        for reduction in ("add", "mul", "min", "max"):
            yield Case(cls(axis=-1, reduction=reduction), (x, indices, updates))
        integers = (draw(rng, (4,), "int32"), np.array([1, 1, -1]), draw(rng, (3,), "int32"))
        yield Case(cls(reduction="add"), integers)


@operator
class ScatterND(_Scatter):
    """`data` with slices of `updates` written at the index tuples in indices' last axis."""

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        data, indices, updates = self._check(ctx)
        ctx.require(indices.rank >= 1, "indices must have at least one axis")
        depth = indices.dims[-1]
        if not isinstance(depth, int):
            ctx.fail(f"the last axis of indices {indices} is not known")
        ctx.require(1 <= depth <= data.rank, f"index tuples of {depth} for {data}")
        expected = (*indices.dims[:-1], *data.dims[depth:])
        ctx.require(
            updates.rank == len(expected),
            f"updates are {updates}, of shape ({', '.join(map(str, expected))}) they must be",
        )
        for a, pair in enumerate(zip(updates.dims, expected)):
            agree(ctx, pair, f"sizes of updates on axis {a} and where they go")
        return (data,)

    def _positions(self, data: Array, indices: Array) -> tuple[Array, ...]:
        sizes = np.array(data.shape[: indices.shape[-1]], np.int64)
        return tuple(np.moveaxis(resolve_indices(indices, sizes, "indices"), -1, 0))

    def reference(self, ev: Evaluation, data: Array, indices: Array, updates: Array) -> Array:
        expected = indices.shape[:-1] + data.shape[indices.shape[-1] :]
        if updates.shape != expected:
            raise InputError(f"updates have the shape {updates.shape}, {expected} is expected")
        return super().reference(ev, data, indices, updates)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (4, 3, 5))
        yield Case(cls(), (x, np.array([[2], [-4]]), draw(rng, (2, 3, 5))))
        yield Case(cls(), (x, np.array([[[2, -1]], [[0, 1]]]), draw(rng, (2, 1, 5))))
        limits = np.array([4, 3])
        indices, updates = rng.integers(-limits, limits, (9, 2)), draw(rng, (9, 5))
        for reduction in ("add", "mul", "min", "max"):
            yield Case(cls(reduction=reduction), (x, indices, updates))
        flags = (draw(rng, (3, 2), "bool"), np.array([[1, 1]]), np.array([True]))
        yield Case(cls(), flags)
