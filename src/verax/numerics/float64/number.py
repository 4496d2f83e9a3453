"""Values of an `Arith` with operators, so that formulas read as formulas, and sums of two of them.

A pair (high, low) stands for the exact high + low, low being small against the last place of high,
or at least against its upper half. The constructions are Dekker's and Knuth's (T. J. Dekker, A
floating-point technique for extending the available precision, 1971); halves are cut with a mask,
which cannot overflow.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from verax.numerics.arith import Arith

Pair: TypeAlias = "tuple[Number, Number]"
Operand: TypeAlias = "Number | float | int"
_LOWER_HALF = (1 << 27) - 1


class Number:
    """A value `v` of the arithmetic `m`, float64 or int64; plain numbers take its type."""

    __slots__ = ("m", "v")

    def __init__(self, m: Arith[Any], v: Any) -> None:
        self.m, self.v = m, v

    def _apply(self, primitive: str, operand: Operand, reverse: bool = False) -> Number:
        theirs = operand.v if isinstance(operand, Number) else self.m.like(operand, self.v)
        args = (theirs, self.v) if reverse else (self.v, theirs)
        return Number(self.m, self.m.primitive(primitive, args))

    def _unary(self, primitive: str, target: str | None = None) -> Number:
        return Number(self.m, self.m.primitive(primitive, (self.v,), target))

    def like(self, value: float | int) -> Number:
        """A constant of the same type."""
        return Number(self.m, self.m.like(value, self.v))

    def __add__(self, other: Operand) -> Number:
        return self._apply("add", other)

    def __radd__(self, other: Operand) -> Number:
        return self._apply("add", other, True)

    def __sub__(self, other: Operand) -> Number:
        return self._apply("sub", other)

    def __rsub__(self, other: Operand) -> Number:
        return self._apply("sub", other, True)

    def __mul__(self, other: Operand) -> Number:
        return self._apply("mul", other)

    def __rmul__(self, other: Operand) -> Number:
        return self._apply("mul", other, True)

    def __truediv__(self, other: Operand) -> Number:
        return self._apply("div", other)

    def __rtruediv__(self, other: Operand) -> Number:
        return self._apply("div", other, True)

    def __and__(self, other: Operand) -> Number:
        return self._apply("and_", other)

    def __or__(self, other: Operand) -> Number:
        return self._apply("or_", other)

    def __xor__(self, other: Operand) -> Number:
        return self._apply("xor", other)

    def __lshift__(self, count: Operand) -> Number:
        return self._apply("shift_left", count)

    def __rshift__(self, count: Operand) -> Number:
        return self._apply("shift_right", count)

    def __lt__(self, other: Operand) -> Number:
        return self._apply("lt", other)

    def __le__(self, other: Operand) -> Number:
        return self._apply("le", other)

    def __gt__(self, other: Operand) -> Number:
        return self._apply("gt", other)

    def __ge__(self, other: Operand) -> Number:
        return self._apply("ge", other)

    def equals(self, operand: Operand) -> Number:
        return self._apply("eq", operand)

    def differs(self, operand: Operand) -> Number:
        return self._apply("ne", operand)

    def __neg__(self) -> Number:
        return self._unary("neg")

    def __abs__(self) -> Number:
        return self._unary("abs")

    def sqrt(self) -> Number:
        return self._unary("sqrt")

    def trunc(self) -> Number:
        return self._unary("trunc")

    def bits(self, dtype: str = "int64") -> Number:
        """The representation of a float64."""
        return self._unary("bitcast", dtype)

    def float(self) -> Number:
        """The float64 whose representation it is."""
        return self._unary("bitcast", "float64")

    def convert(self, dtype: str) -> Number:
        return self._unary("convert", dtype)

    def signed_like(self, source: Number) -> Number:
        """The magnitude of this float64 with the sign of `source`."""
        return Number(self.m, self.m.copysign(self.v, source.v))


def where(mask: Number, a: Operand, b: Operand) -> Number:
    """a where mask, else b; one of them is a `Number`."""
    typed = a if isinstance(a, Number) else b
    assert isinstance(typed, Number)
    first, second = (x if isinstance(x, Number) else typed.like(x) for x in (a, b))
    return Number(mask.m, mask.m.select(mask.v, first.v, second.v))


def polynomial(x: Number, coefficients: tuple[float, ...]) -> Number:
    """c[0] + c[1] x + ... by Horner's rule; lowest order first."""
    total = x * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        total = total * x + c
    return total


def sum_of(a: Operand, b: Number) -> Pair:
    """a + b, exactly, whichever is the larger."""
    total = a + b
    rounded_b = total - a
    return total, (a - (total - rounded_b)) + (b - rounded_b)


def sum_by_size(a: Operand, b: Number) -> Pair:
    """a + b, exactly, where a is 0 or not smaller than b."""
    total = a + b
    return total, b - (total - a)


def head(a: Number) -> Number:
    """The upper 26 bits of a."""
    return (a.bits() & ~_LOWER_HALF).float()


def square(a: Number) -> Pair:
    """a * a: a number of 52 bits and the rest, to 2^-78 of the whole."""
    upper = head(a)
    return upper * upper, (a - upper) * (a + upper)


def product(a: Number, b: Number) -> Pair:
    """a * b: a number of 52 bits and the rest, to 2^-77 of the whole."""
    c, d = head(a), head(b)
    return c * d, c * (b - d) + (a - c) * b


def product_of_pairs(a: Pair, b: Pair) -> Pair:
    """The product, to about 2^-75, summed so that its first number is the nearest to it."""
    high, low = product(a[0], b[0])
    return sum_by_size(high, low + (a[0] * b[1] + a[1] * b[0]))


def quotient(a: Pair, b: Pair) -> Pair:
    """The quotient a / b, to about 2^-75: that of the first numbers, and what is left over it."""
    inverse = 1.0 / b[0]
    q = a[0] * inverse
    high, low = product(q, b[0])
    left = ((a[0] - high) - low) + (a[1] - q * b[1])
    return sum_by_size(q, left * inverse)


def root(a: Pair) -> Pair:
    """The square root of a number above 0, to about 2^-75."""
    s = a[0].sqrt()
    high, low = square(s)
    left = ((a[0] - high) - low) + a[1]
    return sum_by_size(s, left / (s + s))
