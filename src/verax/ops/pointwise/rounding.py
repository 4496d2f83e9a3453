"""Rounding to integers and signs, element by element: Floor Ceil Round Sign. All exact."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Evaluation, operator
from verax.numerics.arith import Arith
from verax.ops.common import FLOATS
from verax.ops.pointwise.elementwise import Elementwise


class RoundingTo(Elementwise):
    """One float input, rounded to an integer that stays a float."""

    gains = (Gain.unbounded,)
    exact = True
    dtypes = FLOATS
    case_dtypes = ("float32", "float16", "float64")
    primitive: ClassVar[str]
    numpy: ClassVar[Any]
    jumps = True
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return self.numpy(x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.primitive(self.primitive, xs)


@operator
class Floor(RoundingTo):
    """The largest integer not above X."""

    primitive = "floor"
    numpy = np.floor


@operator
class Ceil(RoundingTo):
    """The smallest integer not below X."""

    primitive = "ceil"
    numpy = np.ceil


@operator
class Round(RoundingTo):
    """The nearest integer, ties to even."""

    primitive = "rint"
    numpy = np.rint


@operator
class Sign(Elementwise):
    """-1, 0 or 1; NaN for NaN."""

    gains = (Gain.unbounded,)
    exact = True
    case_dtypes = ("float32", "int8", "uint8", "float16")
    jumps = True
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.sign(x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        zero = m.like(0, x)
        y = m.select(m.gt(x, zero), m.like(1, x), x)
        return y if m.dtype(x).startswith("u") else m.select(m.lt(x, zero), m.like(-1, x), y)
