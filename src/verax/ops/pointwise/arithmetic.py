"""Arithmetic, element by element: Add Sub Mul Div Mod Pow Neg Abs Sqrt Reciprocal, and the
variadic Min Max Sum Mean.

Integers wrap. Integer division truncates toward zero and gives 0 for a divisor of 0; NaN wins
in Min and Max. Add, Sub, Mul, Div, Neg, Min and Max also compute shapes (arrays of `Dim`s).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from verax.ir.assumptions import is_counted
from verax.ir.dim import Dim, floordiv, less, maximum
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.error_model import Rounding
from verax.ops.common import (
    FLOATS,
    INTEGERS,
    SIGNED,
    draw,
    sum_error,
)
from verax.ops.pointwise.elementwise import Addition, Binary, Elementwise, power_of_two

EXACT_OR_ROUNDED = ("float32", "int32", "int64", "float64", "uint8")


@operator
class Add(Addition):
    """A + B."""

    gains = (Gain.added,)
    symbolic = True
    case_dtypes = EXACT_OR_ROUNDED

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        return a + b

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.add(*xs)


@operator
class Sub(Addition):
    """A - B."""

    gains = (Gain.added,)
    symbolic = True
    case_dtypes = EXACT_OR_ROUNDED

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        return a - b

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.sub(*xs)


@operator
class Mul(Binary):
    """A B."""

    symbolic = True
    case_dtypes = EXACT_OR_ROUNDED

    def gain(self, ctx: Inference, index: int) -> InputGain:
        constant = ctx.value(1 - index) is not None
        return InputGain(Gain.proportional if constant else Gain.bounded)

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """Nothing where a factor is a power of two (1 of a mask, say): the product is exact."""
        a, b = map(power_of_two, xs)
        return np.where(a | b, 0.0, np.abs(y))

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        return a * b

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.mul(*xs)


def _divide_dims(a: Any, b: Any) -> Any:
    if isinstance(a, Dim) or isinstance(b, Dim):
        return floordiv(a, b)  # sizes are not negative
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def truncated_quotient(a: Any, b: Any) -> Any:
    """Integer a / b toward zero, 0 where b is 0; arrays of NumPy integers or of `Dim`s."""
    a, b = np.asarray(a), np.asarray(b)
    if object in (a.dtype, b.dtype):
        return np.frompyfunc(_divide_dims, 2, 1)(a, b)
    quotient = np.floor_divide(a, np.where(b == 0, b.dtype.type(1), b))
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.where(b == 0, b.dtype.type(0), quotient + inexact.astype(a.dtype))


@operator
class Div(Binary):
    """A / B; for integers truncated toward zero, as in C, and 0 where B is 0.

    Libraries that multiply by the reciprocal round twice.
    """

    symbolic = True
    bound_units = 2.01
    case_dtypes = EXACT_OR_ROUNDED

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index:
            return InputGain(Gain.unbounded)
        return InputGain(Gain.bounded if ctx.value(1) is None else Gain.proportional)

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        return a / b if ev.outputs[0].dtype.is_float else truncated_quotient(a, b)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.div(*xs)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for case in super().cases(rng):
            a, b = map(np.asarray, case.inputs)
            if case.label.startswith("float"):
                b = np.where(b == 0, b.dtype.type(0.5), b)
            yield Case(case.op, (a, b), label=case.label)


@operator
class Mod(Binary):
    """Remainder of A / B: A - floor(A/B) B (sign of B), or with fmod A - trunc(A/B) B (sign of A).

    Integer B = 0 gives A; float B = 0 gives NaN. Libraries that follow the formula as written
    round in units of A.
    """

    gains = (Gain.unbounded,)
    fmod: bool = False
    bound_units = 3.01
    case_dtypes = ("float32", "int32", "int8", "uint8")
    jumps = True
    no_hypotheses = "its attributes at other values are what is tried"

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        if ev.outputs[0].dtype.is_float:
            return np.fmod(a, b) if self.fmod else np.mod(a, b)
        zero = b == 0
        safe = np.where(zero, np.asarray(b).dtype.type(1), b)
        return np.where(zero, a, np.fmod(a, safe) if self.fmod else np.mod(a, safe))

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        a, b = xs
        r, zero = m.rem(a, b), m.like(0, b)
        if self.fmod or m.dtype(a).startswith("uint"):
            return r
        if m.dtype(a).startswith("int"):
            wrong = m.and_(m.ne(r, zero), m.lt(m.xor(r, b), zero))
            wrong = m.and_(wrong, m.ne(b, zero))
            return m.select(wrong, m.add(r, b), r)
        opposite = m.xor(m.lt(r, zero), m.lt(b, zero))
        signed_zero = m.mul(zero, b)  # +-0 with the sign of b; NaN for infinite b, not used there
        signed_zero = m.select(m.eq(signed_zero, zero), signed_zero, zero)
        return m.select(m.eq(r, zero), signed_zero, m.select(opposite, m.add(r, b), r))

    def magnitude(self, y: Any, *xs: Any) -> Any:
        return np.abs(y) + np.where(np.isfinite(xs[0]), np.abs(xs[0]), 0)

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        yield cls()
        yield cls(fmod=True)


def integer_power(x: Any, y: Any) -> Any:
    """x ** y in x's integer dtype, wrapping; a negative exponent truncates 1 / x**-y to zero."""
    x, y = np.broadcast_arrays(x, y)
    result, square, left = np.ones_like(x), x.copy(), np.abs(y.astype(np.int64)).astype(np.uint64)
    while left.any():
        result = np.where(left & np.uint64(1), result * square, result)
        square, left = square * square, left >> np.uint64(1)
    is_unit = (x == 1) | (x == -1) if x.dtype.kind == "i" else x == 1
    return np.where((y < 0) & ~is_unit, x.dtype.type(0), result)


def _truncated_power(m: Arith[Any], x: Any, y: Any) -> Any:
    """x ** y of integer x and float y: in float64, truncated toward zero, held by x's type."""
    power = m.pow(m.convert(x, "float64"), m.convert(y, "float64"))
    return m.convert(power, m.dtype(x))


@operator
class Pow(Elementwise):
    """X ** Y in X's element type; X and Y may differ in type.

    Integers to integer powers wrap; a result that is not an integer is truncated toward zero.
    """

    min_inputs = 2
    max_inputs = 2
    sigma_units = 2.0
    bound_units = 8.0
    floor = 2.0**-126

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, y = ctx.type(0), ctx.type(1)
        ctx.require(DType.bool_ not in (x.dtype, y.dtype), "Pow is not defined on bool")
        same = Inference((x, y.with_dtype(x.dtype)), (), ctx.place)
        return super().infer(same)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        base, exponent = ctx.value(0), ctx.value(1)
        if index:
            return InputGain(
                Gain.bounded if base is not None and np.all(base > 0) else Gain.unbounded
            )
        is_polynomial = exponent is not None and np.all(exponent >= 0) and np.all(exponent % 1 == 0)
        return InputGain(Gain.bounded if is_polynomial else Gain.unbounded)

    def reference(self, ev: Evaluation, x: Any, y: Any) -> Any:
        types = ev.inputs
        assert types[0] is not None and types[1] is not None
        if types[0].dtype.is_float:
            y = y if types[1].dtype.is_float else y.astype(ev.work)
            if ev.work.kind == "O":  # exact only for integer exponents
                return np.frompyfunc(lambda a, b: a ** (int(b) if b == int(b) else b), 2, 1)(x, y)
            with np.errstate(all="ignore"):
                # NumPy takes a root where one exponent of 1/2 serves all; C has +inf and +0 there.
                root = (y == 0.5) & ((x == 0) | np.isneginf(x))
                return np.where(root, np.abs(x), ev.arith.pow(x, y))
        if types[1].dtype.is_integer:
            return integer_power(x, y)
        return _truncated_power(ev.arith, x, y)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x, y = xs
        if m.dtype(x) not in ("float32", "float64"):
            if m.dtype(y) in INTEGERS:
                raise TypeError("integer powers are evaluated by the reference")
            return _truncated_power(m, x, y)
        return m.pow(x, m.convert(y, m.dtype(x)))

    def promised(self, m: Arith[Any], *xs: Any) -> Any:
        x, y = xs
        if m.dtype(x) not in ("float16", "bfloat16"):
            return self.compute(m, x, y)
        wide = m.pow(m.convert(x, "float32"), m.convert(y, "float32"))
        return m.convert(wide, m.dtype(x))

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """exp(e log x) carries the rounding of e log x into its argument."""
        base, exponent = xs
        argument = np.abs(exponent * np.log(np.abs(base)))
        return np.abs(y) * (1 + np.where(np.isfinite(argument), argument, 0))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        base = draw(rng, (2, 3, 5), low=0.25)
        yield Case(cls(), (base, draw(rng, (3, 1))), label="float32 ** float32")
        signed = draw(rng, (4, 3))
        yield Case(cls(), (signed, np.array([0, 1, 2], np.int32)), label="float32 ** int32")
        yield Case(cls(), (signed, np.array(3, np.float32)), label="negative base")
        ints = draw(rng, (2, 3), "int64")
        yield Case(cls(), (ints, np.array([0, 3, 2], np.int64)), label="int64 ** int64")
        yield Case(cls(), (np.abs(ints), np.array([0.5], np.float32)), label="int64 ** float32")
        yield Case(cls(), (ints.astype(np.int32), np.array([-1, 0, 70], np.int32)), label="wraps")


class Unary(Elementwise):
    """One input."""

    min_inputs = 1
    max_inputs = 1


@operator
class Neg(Unary):
    """-X."""

    gains = (Gain.proportional,)
    exact = True
    symbolic = True
    dtypes = FLOATS + SIGNED
    case_dtypes = ("float32", "float16", "int8")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return -x

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.neg(xs[0])


@operator
class Abs(Unary):
    """|X|; the most negative integer stays as it is."""

    gains = (Gain.proportional,)
    exact = True
    case_dtypes = ("float32", "int16", "uint8")

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.abs(x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.abs(xs[0])


@operator
class Sqrt(Unary):
    """The square root; NaN for negative X."""

    gains = (Gain.unbounded,)
    dtypes = FLOATS
    bound_units = 2.01  # vectorized roots are not always rounded correctly
    case_dtypes = ("float32", "float64", "float16")
    case_range = (0.0, 9.0)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return np.sqrt(x)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.sqrt(xs[0])


@operator
class Reciprocal(Unary):
    """1 / X."""

    gains = (Gain.unbounded,)
    dtypes = FLOATS
    case_range = (0.25, 4.0)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return 1 / x

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.div(m.like(1, xs[0]), xs[0])


class Variadic(Elementwise):
    """One or more inputs of one dtype, combined from left to right."""

    min_inputs = 1
    max_inputs = None

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        shapes: list[tuple[tuple[int, ...], ...]] = [
            ((2, 3, 5),),
            ((2, 3, 5), (3, 1)),
            ((3, 5), (2, 1, 5), ()),
            ((4,), (3, 1), (4,), (2, 1, 4)),
        ]
        for dtype in cls.case_dtypes:
            for group in shapes:
                yield Case(cls(), tuple(draw(rng, s, dtype) for s in group), label=dtype)


def _wider(a: Any, b: Any) -> Any:
    return maximum(a, b)


def _narrower(a: Any, b: Any) -> Any:
    if is_counted(a, b):
        return a + b - maximum(a, b)
    return a if less(a, b) else b


@operator
class Max(Variadic):
    """The largest input; NaN wins."""

    gains = (Gain.bounded,)
    exact = True
    symbolic = True
    case_dtypes = ("float32", "int64", "uint8")

    def reference(self, ev: Evaluation, *xs: Any) -> Any:
        if any(np.asarray(x).dtype == object for x in xs) and ev.outputs[0].dtype.is_integer:
            return reduce(np.frompyfunc(_wider, 2, 1), xs)
        return reduce(np.maximum, xs)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return reduce(m.max, xs)


@operator
class Min(Variadic):
    """The smallest input; NaN wins."""

    gains = (Gain.bounded,)
    exact = True
    symbolic = True
    case_dtypes = ("float32", "int64", "uint8")

    def reference(self, ev: Evaluation, *xs: Any) -> Any:
        if any(np.asarray(x).dtype == object for x in xs) and ev.outputs[0].dtype.is_integer:
            return reduce(np.frompyfunc(_narrower, 2, 1), xs)
        return reduce(np.minimum, xs)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return reduce(m.min, xs)


@operator
class Sum(Variadic):
    """The sum of all inputs, added from left to right."""

    gains = (Gain.added,)
    dtypes = FLOATS

    def reference(self, ev: Evaluation, *xs: Any) -> Any:
        return reduce(np.add, xs)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return reduce(m.add, xs)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        if len(inputs) == 1:
            return (None,)
        return (sum_error(ev.outputs[0].dtype, outputs[0], inputs, 1.0),)


@operator
class Mean(Variadic):
    """The mean of all inputs: their sum from left to right, divided once."""

    gains = (Gain.added,)
    dtypes = FLOATS

    def reference(self, ev: Evaluation, *xs: Any) -> Any:
        return reduce(np.add, xs) / len(xs)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        total = reduce(m.add, xs)
        return m.div(total, m.like(len(xs), total)) if len(xs) > 1 else total

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        if len(inputs) == 1:
            return (None,)
        return (sum_error(ev.outputs[0].dtype, outputs[0], inputs, 1 / len(inputs)),)
