"""Division rounded down, element by element: FloorDiv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, operator
from verax.numerics.arith import Arith
from verax.numerics.error_model import Rounding
from verax.ops.common import rounding, unit_roundoff
from verax.ops.pointwise.arithmetic import Binary, truncated_quotient


@operator
class FloorDiv(Binary):
    """The largest integer not above the exact quotient A / B, as Python, NumPy and PyTorch have it.

    It is not Floor of Div, whose quotient is rounded before: 3 // 0.3 is 9 in float32, where Div
    gives 10. NaN where A is infinite; A / B where B is 0, and 0 of integers; -1 where A is finite
    and B infinite with the other sign.
    """

    gains = (Gain.unbounded,)
    case_dtypes = ("float32", "float64", "float16", "int32", "int8", "uint8")
    jumps = True
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        if ev.outputs[0].dtype.is_float:
            return np.floor_divide(a, b)
        quotient = truncated_quotient(a, b)
        return quotient - ((quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)).astype(a.dtype)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        """By the remainder, which is exact: (A - A rem B) / B errs by less than 1/2 as long as the
        places behind the point exist."""
        a, b = xs
        dtype, remainder, zero = m.dtype(a), m.rem(a, b), m.like(0, b)
        if dtype.startswith("uint"):
            return m.div(a, b)
        wrong = m.and_(m.ne(remainder, zero), m.xor(m.lt(remainder, zero), m.lt(b, zero)))
        if dtype.startswith("int"):
            quotient, wrong = m.div(a, b), m.and_(wrong, m.ne(b, zero))
            return m.select(wrong, m.sub(quotient, m.like(1, a)), quotient)
        floored = m.div(m.sub(a, remainder), b)
        floored = m.rint(m.select(wrong, m.sub(floored, m.like(1, a)), floored))
        quotient = m.div(a, b)
        floored = m.select(m.eq(floored, zero), m.copysign(zero, quotient), floored)
        return m.select(m.eq(b, zero), quotient, floored)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Exact up to where the places behind the point end, rounded thrice beyond."""
        dtype, size = ev.outputs[0].dtype, np.abs(outputs[0])
        if not dtype.is_float:
            return (None,)
        return (rounding(dtype, np.where(size * 8 * unit_roundoff(dtype) < 1, 0, size), 1.0, 3.01),)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        a, b = (
            np.array(v, np.float32) for v in ([3, -3, 1, 7.5, -1, 6e9], [0.3, 0.3, 0.1, -2, 2, 3])
        )
        yield Case(cls(), (a, b), label="rounded quotients")
