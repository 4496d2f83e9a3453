"""Running sums and products along an axis: CumSum, CumProd.

Canonical order: from the first element (the last with `reverse`), one rounded operation per step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import Rounding
from verax.ops.common import HALVES, draw, normalize_axis, rounding, same_dtype, sum_rounding
from verax.ops.pointwise.elementwise import NUMERIC


class Cumulative(Operator):
    """Inputs x and axis (one integer). `exclusive` leaves out the element itself; `reverse` goes
    from the end."""

    gains = (Gain.bounded,)
    exclusive: bool
    reverse: bool
    min_inputs = 2
    max_inputs = 2
    accumulate: ClassVar[np.ufunc]
    neutral: ClassVar[int]
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), NUMERIC)
        same_dtype(ctx, (1,), (DType.int32, DType.int64))
        x, axis = ctx.type(0), ctx.value(1)
        ctx.require(all(d == 1 for d in ctx.type(1).dims), f"axis is no scalar: {ctx.type(1)}")
        if axis is not None:
            normalize_axis(ctx, int(axis.ravel()[0]), x.rank)
        return (x,)

    def run(self, x: np.ndarray, axis: Any, ufunc: np.ufunc, neutral: int) -> np.ndarray:
        """`ufunc` accumulated along `axis`."""
        along = int(np.ravel(axis)[0])
        if not -x.ndim <= along < x.ndim:
            raise InputError(f"{self.kind}: axis is {along}, the tensor has rank {x.ndim}")
        lines = np.moveaxis(x, along, -1)
        lines = lines[..., ::-1] if self.reverse else lines
        if self.exclusive:
            first = np.full((*lines.shape[:-1], 1), neutral, x.dtype)
            lines = np.concatenate([first, lines[..., :-1]], axis=-1)[..., : x.shape[along]]
        y = ufunc.accumulate(lines, axis=-1, dtype=x.dtype)
        return np.moveaxis(y[..., ::-1] if self.reverse else y, -1, along)

    def reference(self, ev: Evaluation, x: Any, axis: Any) -> Any:
        return self.run(x, axis, self.accumulate, self.neutral)

    def canonical(self, ev: Evaluation, x: Any, axis: Any) -> Any:
        wide = x.astype(np.float32) if ev.outputs[0].dtype in HALVES else x
        return self.run(wide, axis, self.accumulate, self.neutral).astype(x.dtype)

    def terms(self, x: np.ndarray, axis: Any) -> np.ndarray:
        """Number of elements in each result."""
        return self.run(np.ones(x.shape), axis, np.add, 0)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        make: Any = cls
        for dtype in ("float32", "int32", "float16"):
            for axis, exclusive, reverse in (
                (0, False, False),
                (1, True, False),
                (-1, False, True),
                (2, True, True),
            ):
                x = draw(rng, (2, 3, 7), dtype, -2, 2)
                op = make(exclusive=exclusive, reverse=reverse)
                yield Case(op, (x, np.array(axis, np.int64)), label=dtype)


@operator
class CumSum(Cumulative):
    """Running sum."""

    exclusive: bool = False
    reverse: bool = False
    accumulate = np.add
    neutral = 0

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        dtype, (x, axis) = ev.outputs[0].dtype, inputs
        if not dtype.is_float:
            return (None,)
        x = np.asarray(x, np.float64)
        absolute, squares = (self.run(a, axis, np.add, 0) for a in (np.abs(x), x * x))
        return (sum_rounding(dtype, outputs[0], absolute, squares, self.terms(x, axis)),)


@operator
class CumProd(Cumulative):
    """Running product."""

    exclusive: bool = False
    reverse: bool = False
    accumulate = np.multiply
    neutral = 1
    no_hypotheses = "its attributes at other values are what is tried"

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        dtype, (x, axis) = ev.outputs[0].dtype, inputs
        if not dtype.is_float:
            return (None,)
        n = self.terms(np.asarray(x), axis)
        return (rounding(dtype, outputs[0] * n, 1.0, 1.001, floor=2.0**-126),)
