"""Choosing elements: Where. Exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.ops.common import broadcast_dims, draw, same_dtype
from verax.ops.pointwise.elementwise import STORED, Elementwise


@operator
class Where(Elementwise):
    """X where condition, Y elsewhere; the three broadcast together."""

    gains = (Gain.bounded,)
    min_inputs = 3
    max_inputs = 3
    exact = True
    symbolic = True
    takes_narrow = True
    dtypes = STORED
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        if ctx.type(0).dtype is not DType.bool_:
            ctx.fail(f"the condition is {ctx.type(0).dtype}, not bool")
        dtype = same_dtype(ctx, (1, 2), STORED)
        return (TensorType(dtype, broadcast_dims(ctx, [ctx.type(i).dims for i in range(3)])),)

    def reference(self, ev: Evaluation, condition: Any, x: Any, y: Any) -> Any:
        return np.where(np.asarray(condition).astype(bool), x, y)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.select(*xs)

    def promised(self, m: Arith[Any], *xs: Any) -> Any:
        return self.compute(m, *xs)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for dtype in ("float32", "int64", "bool", "float16"):
            for shapes in (((2, 3, 5),) * 3, ((3, 1), (2, 1, 5), ()), ((), (4,), (3, 1))):
                mask, *xs = (draw(rng, s, d) for s, d in zip(shapes, ("bool", dtype, dtype)))
                yield Case(cls(), (mask, *xs), label=dtype)
