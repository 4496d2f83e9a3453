"""Elementary functions, element by element: Exp Expm1 Log Log1p, trigonometric and
hyperbolic functions and their inverses, Erf, Sigmoid, Tanh.

The meaning is NumPy's float64 function; the promised bits are those of `numerics.functions`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Evaluation, operator
from verax.numerics.arith import Arith
from verax.ops.common import FLOATS
from verax.ops.pointwise.elementwise import Elementwise


class ElementaryFunction(Elementwise):
    """A named function of `numerics.functions` of one float input."""

    dtypes = FLOATS
    case_dtypes = ("float32", "float16", "float64")
    sigma_units = 2.0
    bound_units = 8.0
    floor = 2.0**-126
    function: ClassVar[str]

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return ev.arith.call(self.function, x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.call(self.function, *xs)


class ByExponentials(ElementaryFunction):
    """A function that compilers without a kernel of its own write by exponentials or logarithms:
    what lies near 0 is the difference of numbers near 1 then, and errs as they do."""

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.abs(y) + 1 / 4


@operator
class Exp(ElementaryFunction):
    """e ** X."""

    gains = (Gain.bounded,)
    function = "exp"

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """By powers of two, 2 ** (X log2(e)), the product's rounding is |X| times as large in the
        result, and so is that of the constant."""
        return np.abs(y) * (1 + np.abs(xs[0]) / 4)


@operator
class Log(ElementaryFunction):
    """The natural logarithm; -inf at 0, NaN below."""

    gains = (Gain.unbounded,)
    function = "log"
    case_range = (0.125, 9.0)


@operator
class Expm1(ByExponentials):
    """e ** X - 1, accurate near 0."""

    gains = (Gain.bounded,)
    function = "expm1"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """As for `Exp`."""
        return super().magnitude(y, *xs) + np.abs(y) * np.abs(xs[0]) / 4


@operator
class Log1p(ByExponentials):
    """log(1 + X), accurate near 0; -inf at -1, NaN below."""

    gains = (Gain.unbounded,)
    function = "log1p"
    case_range = (-0.875, 9.0)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Sin(ElementaryFunction):
    """The sine of X radians."""

    gains = (Gain.bounded,)
    function = "sin"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """Reducing the angle costs an absolute error near multiples of pi."""
        return np.abs(y) + np.minimum(np.abs(xs[0]), 1.0) / 8


@operator
class Cos(ElementaryFunction):
    """The cosine of X radians."""

    gains = (Gain.bounded,)
    function = "cos"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """As for `Sin`."""
        return np.abs(y) + 1 / 8


@operator
class Tan(ElementaryFunction):
    """The tangent of X radians."""

    gains = (Gain.unbounded,)
    function = "tan"
    case_range = (-1.5, 1.5)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Asin(ElementaryFunction):
    """The angle in [-pi/2, pi/2] with the sine X; NaN outside [-1, 1]."""

    gains = (Gain.unbounded,)
    function = "asin"
    bound_units = 12.0
    case_range = (-1.0, 1.0)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Acos(ElementaryFunction):
    """The angle in [0, pi] with the cosine X; NaN outside [-1, 1]."""

    gains = (Gain.unbounded,)
    function = "acos"
    bound_units = 12.0
    case_range = (-1.0, 1.0)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Atan(ElementaryFunction):
    """The angle in (-pi/2, pi/2) with the tangent X."""

    gains = (Gain.bounded,)
    function = "atan"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Sinh(ByExponentials):
    """The hyperbolic sine."""

    gains = (Gain.bounded,)
    function = "sinh"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Cosh(ElementaryFunction):
    """The hyperbolic cosine."""

    gains = (Gain.bounded,)
    function = "cosh"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Tanh(ByExponentials):
    """The hyperbolic tangent."""

    gains = (Gain.bounded,)
    function = "tanh"


@operator
class Asinh(ByExponentials):
    """The inverse hyperbolic sine."""

    gains = (Gain.bounded,)
    function = "asinh"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Acosh(ElementaryFunction):
    """The inverse hyperbolic cosine; NaN below 1."""

    gains = (Gain.unbounded,)
    function = "acosh"
    case_range = (1.0, 9.0)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Atanh(ByExponentials):
    """The inverse hyperbolic tangent; NaN outside [-1, 1]."""

    gains = (Gain.unbounded,)
    function = "atanh"
    case_range = (-0.875, 0.875)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Erf(ElementaryFunction):
    """The error function 2/sqrt(pi) integral from 0 to X of exp(-t^2).

    Some libraries approximate it with an absolute error, near 0 too.
    """

    gains = (Gain.bounded,)
    function = "erf"
    sigma_units = 3.0
    bound_units = 20.0

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.abs(y) + 0.5


@operator
class ErfInv(ElementaryFunction):
    """The number whose error function is X; infinite at 1 and -1, NaN outside [-1, 1].

    Libraries approximate it to a few ulps by 1 - |X|, which rounding moves by 2^-24 of 1.
    """

    gains = (Gain.unbounded,)
    function = "erfinv"
    case_range = (-0.99, 0.99)
    no_hypotheses = "it has no attributes; what holds for any operator is tried"


@operator
class Sigmoid(ElementaryFunction):
    """1 / (1 + exp(-X))."""

    gains = (Gain.bounded,)
    function = "sigmoid"

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """Rational formulas and those through tanh err in units of 1/2, however small y is."""
        return np.abs(y) + 0.5
