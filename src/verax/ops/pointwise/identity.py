"""Handing an input on: Identity, and Dropout at inference. Exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.expr import Expr
from verax.ops.common import draw
from verax.ops.pointwise.elementwise import STORED, Elementwise


class Passing(Elementwise):
    """One input of any type, handed on."""

    gains = (Gain.proportional,)
    exact = True
    symbolic = True
    takes_narrow = True
    dtypes = STORED
    case_dtypes = ("float32", "int64", "bool", "bfloat16", "float8_e5m2", "int4")

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
    no_hypotheses = "its attributes at other values are what is tried"

    @property
    def output_count(self) -> int:
        return 2 if self.mask else 1

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        training = ctx.value(2)
        if ctx.has(2) and (training is None or bool(np.any(training))):
            ctx.fail("training_mode is not a constant false: training is not supported")
        x = ctx.type(0)
        return (x, x.with_dtype(DType.bool_)) if self.mask else (x,)

    def reference(self, ev: Evaluation, x: Any, *parameters: Any) -> Any:
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
