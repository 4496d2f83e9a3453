"""Polar coordinates, element by element: Atan2 Hypot.

Neither is the formula that defines it for ordinary numbers: quotients and squares overflow, and
infinities and signed zeros have values of their own (IEEE 754-2019, 9.2.1; C17, F.10). float32 is
computed in float64, whose range holds all that comes up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Evaluation, operator
from verax.numerics.arith import Arith
from verax.ops.common import FLOATS
from verax.ops.pointwise.elementwise import Elementwise


class Polar(Elementwise):
    """Two float inputs of one dtype."""

    min_inputs = 2
    max_inputs = 2
    dtypes = FLOATS
    case_dtypes = ("float32", "float16", "float64")
    floor = 2.0**-126
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def in_float64(self, m: Arith[Any], a: Any, b: Any) -> Any:
        """The result of float64 operands, in float64."""
        raise NotImplementedError

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        if m.dtype(xs[0]) == "float64":
            return self.in_float64(m, *xs)
        return m.convert(self.in_float64(m, *(m.convert(x, "float64") for x in xs)), m.dtype(xs[0]))


@operator
class Atan2(Polar):
    """The angle in [-pi, pi] of the point (B, A), with the sign of A: A is the ordinate.

    Both infinite: an odd multiple of pi/4. A zero: 0 or pi by the sign of B, also where B is 0.
    """

    gains = (Gain.unbounded,)

    sigma_units = 2.0
    bound_units = 8.0

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        return np.arctan2(a, b)

    def in_float64(self, m: Arith[Any], a: Any, b: Any) -> Any:
        """The arc tangent of the smaller over the larger, 0 or pi/2 or pi and that or less."""
        zero, one, infinity = (m.like(v, a) for v in (0, 1, math.inf))
        height, width = m.abs(a), m.abs(b)
        endless = m.and_(m.eq(height, infinity), m.eq(width, infinity))
        height, width = (m.select(endless, one, v) for v in (height, width))
        large = m.max(height, width)
        ratio = m.div(m.min(height, width), m.select(m.eq(large, zero), one, large))
        steep, behind = m.gt(height, width), m.lt(m.copysign(one, b), zero)
        angle = m.call("atan", ratio)
        angle = m.select(m.xor(steep, behind), m.neg(angle), angle)
        pi = (math.pi, 1.2246467991473532e-16)  # and what its float64 lacks
        high, low = (
            m.select(steep, m.like(p / 2, a), m.select(behind, m.like(p, a), zero)) for p in pi
        )
        return m.copysign(m.add(high, m.add(angle, low)), a)


@operator
class Hypot(Polar):
    """sqrt(A^2 + B^2) without overflow on the way; infinite where an operand is, beside NaN too."""

    gains = (Gain.bounded,)

    sigma_units = 1.0
    bound_units = 4.0

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        return np.hypot(a, b)

    def in_float64(self, m: Arith[Any], a: Any, b: Any) -> Any:
        """The larger times the root of 1 + ratio^2."""
        zero, one, infinity = (m.like(v, a) for v in (0, 1, math.inf))
        a, b = m.abs(a), m.abs(b)
        large = m.max(a, b)
        ratio = m.div(m.min(a, b), m.select(m.eq(large, zero), one, large))
        size = m.mul(large, m.sqrt(m.add(one, m.mul(ratio, ratio))))
        return m.select(m.or_(m.eq(a, infinity), m.eq(b, infinity)), infinity, size)
