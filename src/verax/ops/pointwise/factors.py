"""Bfloat16Factor: a factor of products as an arithmetic in bfloat16 takes it. O3 puts it in where a
user allows that. No file format has it.

Products of two such numbers are exact in float32, and neither they nor any sum of them, rounded or
not, can be subnormal: all are multiples of 2^-126. So an FMA in float32, a multiplication and an
addition, and the instructions of AVX512_BF16 (VDPBF16PS), which treat subnormal numbers as zero,
give the same bits where they add in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, operator
from verax.ir.types import DType
from verax.numerics.arith import Arith
from verax.numerics.formats import BFLOAT16, round_to
from verax.ops.common import draw
from verax.ops.pointwise.elementwise import Elementwise

SMALLEST_FACTOR = 2.0**-56
"""Factors that are smaller count as 0. A number of 8 significant bits that is not is a multiple of
2^-63, and a product of two of 2^-126, the smallest normal number of float32."""
SMALLEST_START = 2.0**-102
"""The same for what a sum starts from, which has 24 bits."""


@operator
class Bfloat16Factor(Elementwise):
    """X (float32) rounded to nearest even among the numbers of 8 significant bits; 0 where that is
    smaller than 2^-56. The result is float32. Exact: the rounding is the operator's meaning."""

    gains = (Gain.proportional,)
    exact = True
    dtypes = (DType.float32,)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def reference(self, ev: Evaluation, x: Any) -> Any:
        if ev.work.kind == "O":
            return np.frompyfunc(_exactly, 1, 1)(x)
        rounded = round_to(x, BFLOAT16)
        return np.where(np.abs(rounded) < SMALLEST_FACTOR, 0.0, rounded).astype(ev.work)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        rounded = m.convert(m.convert(xs[0], "bfloat16"), "float32")
        small = m.lt(m.abs(rounded), m.const(SMALLEST_FACTOR, "float32"))
        return m.select(small, m.const(0.0, "float32"), rounded)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 5), "float32")
        x[1, 2, :4] = 1.00390625, -1.01171875, 3e38, -0.0
        yield Case(cls(), (x,), label="ordinary numbers and ties")
        exponents = np.arange(-62, -50, dtype=np.float32)
        tiny = np.ldexp(draw(rng, (7, 12), "float32"), exponents.astype(int))
        tiny[0, :2] = 2.0**-56 * (1 - 2.0**-10), 2.0**-56 * (1 - 2.0**-8)
        yield Case(cls(), (tiny.astype(np.float32),), label="around the smallest")


def _exactly(x: Any) -> Any:
    rounded = float(round_to(float(x), BFLOAT16))
    return type(x)(0.0 if abs(rounded) < SMALLEST_FACTOR else rounded)
