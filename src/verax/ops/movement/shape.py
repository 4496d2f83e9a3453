"""Operators that read a tensor's shape: Shape, Size. Exact, and known while a graph is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from verax.ir.dim import DimLike
from verax.ir.gains import Gain
from verax.ir.operator import Array, Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.ops.common import draw
from verax.ops.movement.movement import Movement


def shape_array(dims: Sequence[DimLike]) -> Array:
    """int64 array of sizes; an object array when one is a symbol."""
    static = all(isinstance(d, int) for d in dims)
    array = np.empty(len(dims), np.int64 if static else object)
    array[:] = dims
    return array


@operator
class Shape(Movement):
    """Sizes of axes start to end (counted as in a Python slice) as int64."""

    gains = (Gain.none,)
    start: int = 0
    end: int | None = None
    is_flat = True
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        return (TensorType(DType.int64, (len(ctx.type(0).dims[self.start : self.end]),)),)

    def from_types(self, ctx: Inference) -> Array:
        """The output, from the input's type alone."""
        return shape_array(ctx.type(0).dims[self.start : self.end])

    def reference(self, ev: Evaluation, data: Array) -> Array:
        return np.array(data.shape[self.start : self.end], np.int64)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 4, 5))
        for start, end in ((0, None), (1, None), (-2, None), (1, -1), (-9, 3), (3, 2), (0, 99)):
            yield Case(cls(start=start, end=end), (x,))
        yield Case(cls(), (np.array(True),), (), "of a scalar")


@operator
class Size(Movement):
    """Number of elements, an int64 scalar."""

    gains = (Gain.none,)
    is_flat = True
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        ctx.type(0)
        return (TensorType(DType.int64, ()),)

    def from_types(self, ctx: Inference) -> Array:
        """The output, from the input's type alone."""
        return shape_array([ctx.type(0).size]).reshape(())

    def reference(self, ev: Evaluation, data: Array) -> Array:
        return np.array(data.size, np.int64)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(), (draw(rng, (2, 3, 4)),))
        yield Case(cls(), (draw(rng, (2, 0), "int8"),))
