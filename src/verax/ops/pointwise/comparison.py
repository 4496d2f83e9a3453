"""Comparisons, element by element: Equal Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf.

Exact; false where an operand is NaN. Equal, Less and their kin also compare `Dim`s, as far as the
answer is the same for all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import equal, less
from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Operator, operator
from verax.ir.types import DType
from verax.numerics.arith import Arith
from verax.ops.common import FLOATS, draw
from verax.ops.pointwise.elementwise import ANY, NUMERIC, Elementwise


class ComparisonOperator(Elementwise):
    """Two inputs of one dtype, a bool output."""

    gains = (Gain.unbounded,)
    min_inputs = 2
    max_inputs = 2
    exact = True
    symbolic = True
    result = DType.bool_
    dtypes = NUMERIC
    case_dtypes: ClassVar[tuple[str, ...]] = ("float32", "int64", "uint8")
    case_range = (-2.0, 2.0)
    primitive: ClassVar[str]
    numpy: ClassVar[Any]
    jumps = True
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def dims(self, a: Any, b: Any) -> bool:
        """The comparison of two sizes; `UndecidedError` when it depends on symbols."""
        raise NotImplementedError

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        a, b = np.asarray(a), np.asarray(b)
        declared = ev.inputs[0]
        if object in (a.dtype, b.dtype) and declared is not None and declared.dtype.is_integer:
            return np.asarray(np.frompyfunc(self.dims, 2, 1)(a, b)).astype(bool)
        return np.asarray(self.numpy(a, b)).astype(bool)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.primitive(self.primitive, xs)


@operator
class Equal(ComparisonOperator):
    """A == B; also on bool."""

    dtypes = ANY
    case_dtypes = ("float32", "int64", "uint8", "bool")
    primitive = "eq"
    numpy = np.equal

    def dims(self, a: Any, b: Any) -> bool:
        return equal(a, b)


@operator
class Less(ComparisonOperator):
    """A < B."""

    primitive = "lt"
    numpy = np.less

    def dims(self, a: Any, b: Any) -> bool:
        return less(a, b)


@operator
class LessOrEqual(ComparisonOperator):
    """A <= B."""

    primitive = "le"
    numpy = np.less_equal

    def dims(self, a: Any, b: Any) -> bool:
        return less(a, b + 1)


@operator
class Greater(ComparisonOperator):
    """A > B."""

    primitive = "gt"
    numpy = np.greater

    def dims(self, a: Any, b: Any) -> bool:
        return less(b, a)


@operator
class GreaterOrEqual(ComparisonOperator):
    """A >= B."""

    primitive = "ge"
    numpy = np.greater_equal

    def dims(self, a: Any, b: Any) -> bool:
        return less(b, a + 1)


class FloatPredicate(Elementwise):
    """One float input, a bool output that tells what kind of number it is."""

    gains = (Gain.none,)
    exact = True
    result = DType.bool_
    dtypes = FLOATS
    jumps = True

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for op in cls.variants():
            for dtype in ("float32", "float16"):
                x = draw(rng, (2, 3, 5), dtype)
                x[0, 1, :3] = np.nan, np.inf, -np.inf
                yield Case(op, (x,), label=dtype)


@operator
class IsNaN(FloatPredicate):
    """Whether X is not a number."""

    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.isnan(x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.is_nan(xs[0])


@operator
class IsInf(FloatPredicate):
    """Whether X is infinite, of the signs asked for."""

    detect_negative: bool = True
    detect_positive: bool = True
    no_hypotheses = "its attributes at other values are what is tried"

    def reference(self, ev: Evaluation, x: Any) -> Any:
        positive = np.isposinf(x) & self.detect_positive
        return positive | (np.isneginf(x) & self.detect_negative)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        high, low = m.like(np.inf, x), m.like(-np.inf, x)
        if not self.detect_negative and not self.detect_positive:
            return m.ne(high, high)
        if not self.detect_negative:
            return m.eq(x, high)
        return m.eq(m.abs(x), high) if self.detect_positive else m.eq(x, low)

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        for negative, positive in ((True, True), (True, False), (False, True), (False, False)):
            yield cls(detect_negative=negative, detect_positive=positive)
