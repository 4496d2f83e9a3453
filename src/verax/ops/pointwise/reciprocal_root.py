"""Rsqrt: the reciprocal of the square root as one operator.

It is one operator because implementations compute it as one, by an estimate and Newton steps, and
err by more than a root and a division do: TensorFlow 2.21 by up to 3.7 units of roundoff, 0.7 in
the root of the mean square (1,000,000 numbers between 0.3 and 8 on a CPU with AVX-512).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Evaluation, operator
from verax.numerics.arith import Arith
from verax.ops.common import FLOATS
from verax.ops.pointwise.elementwise import Elementwise


@operator
class Rsqrt(Elementwise):
    """1 / sqrt(X); infinite at 0, NaN below."""

    gains = (Gain.unbounded,)
    dtypes = FLOATS
    sigma_units = 1.0
    bound_units = 5.0
    case_dtypes = ("float32", "float64", "float16")
    case_range = (0.25, 9.0)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return 1 / np.sqrt(x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.div(m.like(1, xs[0]), m.sqrt(xs[0]))
