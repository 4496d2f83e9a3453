"""Choosing and passing on: Where, Identity, Dropout at inference. Exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.operator import Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.expr import Expr
from verax.ops.common import broadcast_dims, draw, same_dtype
from verax.ops.elementwise import ANY, Elementwise


@operator
class Where(Elementwise):
    """X where condition, Y elsewhere; the three broadcast together."""

    min_inputs = 3
    max_inputs = 3
    exact = True
    symbolic = True
    dtypes = ANY

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        if ctx.type(0).dtype is not DType.bool_:
            ctx.fail(f"the condition is {ctx.type(0).dtype}, not bool")
        dtype = same_dtype(ctx, (1, 2), ANY)
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


class Passing(Elementwise):
    """One input of any type, handed on."""

    exact = True
    symbolic = True
    dtypes = ANY
    case_dtypes = ("float32", "int64", "bool", "bfloat16")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return x

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return xs[0]

    def promised(self, m: Arith[Any], *xs: Any) -> Any:
        return xs[0]


@operator
class Identity(Passing):
    """X."""


@operator
class Dropout(Passing):
    """X: at inference nothing is dropped. Inputs ratio and training_mode may be given, the latter
    only as a constant false. With `mask` there is a second output, all true.
    """

    mask: bool = False
    min_inputs = 1
    max_inputs = 3
    symbolic = False

    @property
    def output_count(self) -> int:
        return 2 if self.mask else 1

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        training = ctx.value(2)
        if ctx.has(2) and (training is None or bool(np.any(training))):
            ctx.fail("training_mode is not a constant false: training is not supported")
        x = ctx.type(0)
        return (x, x.with_dtype(DType.bool_)) if self.mask else (x,)

    def reference(self, ev: Evaluation, x: Any, *rest: Any) -> Any:
        return (x, np.ones(np.shape(x), bool)) if self.mask else x

    def expression(self, dtypes: Sequence[DType | str | None]) -> Expr | None:
        return None if self.mask else super().expression(dtypes)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        return self.reference(ev, *inputs)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[None]:
        return (None,) * len(outputs)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x, ratio = draw(rng, (2, 3, 5)), np.array(0.5, np.float32)
        yield Case(cls(), (x,))
        yield Case(cls(mask=True), (x, ratio))
        yield Case(cls(), (x, ratio, np.array(False)), constant=(2,))
