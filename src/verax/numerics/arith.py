"""The arithmetic in which an operator states its meaning: one vocabulary, several machines.

An operator writes `compute(m, x, y)` once, over `m: Arith`. `arith_numpy.NumpyArith` executes it on
arrays, `expr.TracingArith` records it, `llvm.arith.LlvmArith` emits vector code for it;
all give the same bits. Nothing here knows about tensors' shapes beyond NumPy's broadcasting.

Rules that every implementation keeps:

- Each float primitive is rounded once, to nearest even, in the dtype of its operands; nothing
  is contracted or reassociated. `fma` is of float32 and float64 only and rounds once. float16
  and bfloat16 compute in float32 and round the result.
- Subnormals are kept. NaN propagates; its sign and payload are not specified.
- `min` and `max` return NaN if either operand is NaN, and -0 < +0.
- Comparisons are false when an operand is NaN, except `ne`, which is true.
- Integers wrap. `div` truncates toward zero and `rem` has the sign of the dividend; division
  by zero gives 0 and x rem 0 is x (ONNX leaves them open; nothing may crash). Shift counts are
  taken modulo the width; `shift_right` is arithmetic for signed and logical for unsigned.
- float -> integer truncates toward zero and saturates, NaN gives 0. Anything -> bool is
  "not equal to zero".
- Nothing is computed in the types of `formats.NARROW`: they are converted, taken bit by bit and
  selected. What `convert` to and from them means is in `narrow`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from verax.numerics.formats import FLOATS, INTEGERS, NARROW, numpy_dtype

V = TypeVar("V")

ARITHMETIC = ("add", "sub", "mul", "div", "rem", "min", "max")
BITWISE = ("and_", "or_", "xor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
SHIFTS = ("shift_left", "shift_right")
ROUNDINGS = ("floor", "ceil", "rint", "trunc", "sqrt")
CONVERSIONS = ("convert", "bitcast")
PRIMITIVES: tuple[str, ...] = (
    *ARITHMETIC, *BITWISE, *COMPARISONS, *SHIFTS, *ROUNDINGS, *CONVERSIONS,
    "neg", "abs", "not_", "fma", "multiply_high", "select",
)  # fmt: skip


def result_dtype(primitive: str, dtypes: tuple[str, ...], target: str | None = None) -> str:
    """Dtype of a primitive applied to operands of `dtypes`; TypeError when it is not defined.

    target: the destination of `convert` and `bitcast`.
    """
    first = dtypes[0]

    def need(ok: bool) -> None:
        if not ok:
            raise TypeError(f"{primitive} is not defined on ({', '.join(dtypes)})")

    if primitive == "select":
        need(first == "bool" and dtypes[1] == dtypes[2])
        return dtypes[1]
    if primitive in CONVERSIONS:
        if target is None:
            raise TypeError(f"{primitive} needs a target dtype")
        if primitive == "bitcast":
            need("bool" not in (first, target))
            need(numpy_dtype(first).itemsize == numpy_dtype(target).itemsize)
        return target
    need(all(d == first for d in dtypes))
    if primitive == "fma":
        need(first in ("float32", "float64"))
    elif primitive == "multiply_high":
        need(first == "int32")
    elif primitive in ROUNDINGS:
        need(first in FLOATS)
    elif primitive in ARITHMETIC or primitive in ("neg", "abs"):
        need(first in FLOATS or first in INTEGERS)
    elif primitive in BITWISE or primitive == "not_":
        need(first in INTEGERS or first == "bool")
    elif primitive in SHIFTS:
        need(first in INTEGERS)
    elif primitive in COMPARISONS:
        need(first not in NARROW)
    else:
        raise TypeError(f"unknown primitive {primitive!r}")
    return "bool" if primitive in COMPARISONS else first


class Arith(ABC, Generic[V]):
    """The primitives over values of type V, and the named functions composed of them."""

    @abstractmethod
    def bind(self, raw: Any, dtype: str) -> V:
        """A value of this arithmetic from what its user has (array, LLVM value)."""

    @abstractmethod
    def unbind(self, value: V) -> Any:
        """The reverse of `bind`."""

    @abstractmethod
    def dtype(self, x: V) -> str:
        """Name of the dtype of x."""

    @abstractmethod
    def const(self, value: float | int | bool, dtype: str) -> V:
        """A constant; floats are rounded to nearest into `dtype`."""

    @abstractmethod
    def primitive(self, name: str, args: tuple[V, ...], target: str | None = None) -> V:
        """Apply the primitive `name`, one of PRIMITIVES; TypeError on wrong dtypes."""

    @abstractmethod
    def call(self, function: str, *args: V) -> V:
        """Apply a named function of `numerics.functions` ("exp", "tanh", ...) or, to float64, of
        `numerics.float64.functions`."""

    def rarely(
        self, mask: V, compute: Callable[..., Any], args: tuple[V, ...], otherwise: tuple[V, ...]
    ) -> tuple[V, ...]:
        """compute(self, *args), which has several results, where mask, else `otherwise`.

        An arithmetic may leave out `compute` where no element of the mask is set.
        """
        computed = compute(self, *args)
        return tuple(self.select(mask, a, b) for a, b in zip(computed, otherwise, strict=True))

    def like(self, value: float | int | bool, x: V) -> V:
        """A constant of the dtype of x."""
        return self.const(value, self.dtype(x))

    def add(self, a: V, b: V) -> V:
        return self.primitive("add", (a, b))

    def sub(self, a: V, b: V) -> V:
        return self.primitive("sub", (a, b))

    def mul(self, a: V, b: V) -> V:
        return self.primitive("mul", (a, b))

    def div(self, a: V, b: V) -> V:
        """Quotient; integers truncate toward zero, and give 0 for a divisor of 0."""
        return self.primitive("div", (a, b))

    def rem(self, a: V, b: V) -> V:
        """a - b * trunc(a / b), exact, with the sign of a; on floats this is C's fmod."""
        return self.primitive("rem", (a, b))

    def fma(self, a: V, b: V, c: V) -> V:
        """a * b + c with one rounding; float32 and float64 only."""
        return self.primitive("fma", (a, b, c))

    def multiply_high(self, a: V, b: V, c: V) -> V:
        """(a * b + c) >> 32, computed in 64 bits, where nothing wraps; int32 only."""
        return self.primitive("multiply_high", (a, b, c))

    def min(self, a: V, b: V) -> V:
        return self.primitive("min", (a, b))

    def max(self, a: V, b: V) -> V:
        return self.primitive("max", (a, b))

    def neg(self, a: V) -> V:
        """Sign flipped (also of zero and NaN); integers wrap."""
        return self.primitive("neg", (a,))

    def abs(self, a: V) -> V:
        return self.primitive("abs", (a,))

    def sqrt(self, a: V) -> V:
        return self.primitive("sqrt", (a,))

    def floor(self, a: V) -> V:
        return self.primitive("floor", (a,))

    def ceil(self, a: V) -> V:
        return self.primitive("ceil", (a,))

    def rint(self, a: V) -> V:
        """Nearest integer, ties to even."""
        return self.primitive("rint", (a,))

    def trunc(self, a: V) -> V:
        return self.primitive("trunc", (a,))

    def eq(self, a: V, b: V) -> V:
        return self.primitive("eq", (a, b))

    def ne(self, a: V, b: V) -> V:
        return self.primitive("ne", (a, b))

    def lt(self, a: V, b: V) -> V:
        return self.primitive("lt", (a, b))

    def le(self, a: V, b: V) -> V:
        return self.primitive("le", (a, b))

    def gt(self, a: V, b: V) -> V:
        return self.primitive("gt", (a, b))

    def ge(self, a: V, b: V) -> V:
        return self.primitive("ge", (a, b))

    def and_(self, a: V, b: V) -> V:
        """Bitwise on integers, logical on bool; so are or_, xor, not_."""
        return self.primitive("and_", (a, b))

    def or_(self, a: V, b: V) -> V:
        return self.primitive("or_", (a, b))

    def xor(self, a: V, b: V) -> V:
        return self.primitive("xor", (a, b))

    def not_(self, a: V) -> V:
        return self.primitive("not_", (a,))

    def shift_left(self, a: V, count: V) -> V:
        return self.primitive("shift_left", (a, count))

    def shift_right(self, a: V, count: V) -> V:
        return self.primitive("shift_right", (a, count))

    def select(self, mask: V, a: V, b: V) -> V:
        """a where mask, else b."""
        return self.primitive("select", (mask, a, b))

    def convert(self, a: V, dtype: str) -> V:
        """a as `dtype` (ONNX Cast); see the module's rules."""
        return self.primitive("convert", (a,), dtype)

    def bitcast(self, a: V, dtype: str) -> V:
        """The same bits read as another dtype of the same width."""
        return self.primitive("bitcast", (a,), dtype)

    def is_nan(self, a: V) -> V:
        return self.ne(a, a)

    def copysign(self, magnitude: V, sign: V) -> V:
        """|magnitude| with the sign bit of `sign`; float32 or float64."""
        dtype = self.dtype(magnitude)
        bits = {"float32": "int32", "float64": "int64"}[dtype]
        width = numpy_dtype(bits).itemsize * 8
        top = self.const(-(1 << (width - 1)), bits)
        body = self.const((1 << (width - 1)) - 1, bits)
        m = self.and_(self.bitcast(magnitude, bits), body)
        return self.bitcast(self.or_(m, self.and_(self.bitcast(sign, bits), top)), dtype)

    def exp(self, x: V) -> V:
        return self.call("exp", x)

    def log(self, x: V) -> V:
        return self.call("log", x)

    def tanh(self, x: V) -> V:
        return self.call("tanh", x)

    def sigmoid(self, x: V) -> V:
        return self.call("sigmoid", x)

    def erf(self, x: V) -> V:
        return self.call("erf", x)

    def pow(self, x: V, y: V) -> V:
        return self.call("pow", x, y)
