"""The arithmetic in which an operator states its meaning: one vocabulary, several machines.

An operator writes `compute(m, x, y)` once, over `m: Arith`. `NumpyArith` executes it on arrays,
`expr.TracingArith` records it, `compiler.kernels.arith.LlvmArith` emits vector code for it; all
give the same bits. Nothing here knows about tensors' shapes beyond NumPy's broadcasting.

Rules that every implementation keeps:

- Each float primitive is rounded once, to nearest even, in the dtype of its operands; nothing
  is contracted or reassociated. `fma` is float32 only and rounds once. float16 and bfloat16
  compute in float32 and round the result.
- Subnormals are kept. NaN propagates; its sign and payload are not specified.
- `min` and `max` return NaN if either operand is NaN, and -0 < +0.
- Comparisons are false when an operand is NaN, except `ne`, which is true.
- Integers wrap. `div` truncates toward zero and `rem` has the sign of the dividend; division
  by zero gives 0 and x rem 0 is x (ONNX leaves them open; nothing may crash). Shift counts are
  taken modulo the width; `shift_right` is arithmetic for signed and logical for unsigned.
- float -> integer truncates toward zero and saturates, NaN gives 0. Anything -> bool is
  "not equal to zero".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from verax.numerics import functions, functions_float64
from verax.numerics.fma import fma32
from verax.numerics.formats import FLOATS, INTEGERS, SIGNED, dtype_name, numpy_dtype

V = TypeVar("V")

ARITHMETIC = ("add", "sub", "mul", "div", "rem", "min", "max")
BITWISE = ("and_", "or_", "xor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
SHIFTS = ("shift_left", "shift_right")
ROUNDINGS = ("floor", "ceil", "rint", "trunc", "sqrt")
CONVERSIONS = ("convert", "bitcast")
PRIMITIVES: tuple[str, ...] = (
    *ARITHMETIC, *BITWISE, *COMPARISONS, *SHIFTS, *ROUNDINGS, *CONVERSIONS,
    "neg", "abs", "not_", "fma", "select",
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
        need(first == "float32")
    elif primitive in ROUNDINGS:
        need(first in FLOATS)
    elif primitive in ARITHMETIC or primitive in ("neg", "abs"):
        need(first in FLOATS or first in INTEGERS)
    elif primitive in BITWISE or primitive == "not_":
        need(first in INTEGERS or first == "bool")
    elif primitive in SHIFTS:
        need(first in INTEGERS)
    elif primitive not in COMPARISONS:
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
        """Apply a named function of `numerics.functions` ("exp", "tanh", ...)."""

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
        """a * b + c with one rounding; float32 only."""
        return self.primitive("fma", (a, b, c))

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


class NumpyArith(Arith[np.ndarray]):
    """The primitives on NumPy arrays, with broadcasting: the definition the others must match."""

    def bind(self, raw: Any, dtype: str) -> np.ndarray:
        array = np.asarray(raw)
        if array.dtype != numpy_dtype(dtype):
            raise TypeError(f"expected {dtype}, got an array of {array.dtype}")
        return array

    def unbind(self, value: np.ndarray) -> np.ndarray:
        return value

    def dtype(self, x: np.ndarray) -> str:
        return dtype_name(x.dtype)

    def const(self, value: float | int | bool, dtype: str) -> np.ndarray:
        return np.asarray(value, numpy_dtype(dtype))

    def call(self, function: str, *args: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            if args[0].dtype == np.float64:
                return np.asarray(functions_float64.FUNCTIONS[function](*args))
            return np.asarray(functions.call(self, function, args))

    def primitive(
        self, name: str, args: tuple[np.ndarray, ...], target: str | None = None
    ) -> np.ndarray:
        dtype = result_dtype(name, tuple(dtype_name(a.dtype) for a in args), target)
        with np.errstate(all="ignore"):
            if name == "convert":
                return _convert(args[0], dtype)
            if name == "bitcast":
                return args[0].view(numpy_dtype(dtype))
            out = np.asarray(_NUMPY[name](*args))
        return out if out.dtype == numpy_dtype(dtype) else out.astype(numpy_dtype(dtype))


def _convert(a: np.ndarray, dtype: str) -> np.ndarray:
    source, to = dtype_name(a.dtype), numpy_dtype(dtype)
    if source == dtype:
        return a
    if dtype == "bool":
        return np.asarray(a != np.zeros((), a.dtype))
    if source in FLOATS and dtype in INTEGERS:
        wide = np.trunc(a.astype(np.float64))
        info = np.iinfo(to)
        high = 2.0 ** (info.bits - (dtype in SIGNED))
        inside = np.where((wide >= info.min) & (wide < high), wide, 0.0)
        out = inside.astype(to)
        out = np.where(wide >= high, to.type(info.max), out)
        return np.where(wide < info.min, to.type(info.min), out).astype(to)
    if dtype == "bfloat16" and source != "float32":
        return _round_to_odd_float32(a).astype(to)
    if dtype == "float16" and source in INTEGERS:
        return _round_to_odd_float32(a).astype(to)
    return a.astype(to)


def _round_to_odd_float32(a: np.ndarray) -> np.ndarray:
    """`a` in float32 with an odd last bit if inexact, so that a further rounding is the only one.

    Integers go through float64 first: 64-bit ones also round to odd there.
    """
    if a.dtype.kind in "iu" and a.dtype.itemsize == 8:
        # Beyond 2**53: the low bits become one sticky half of what is cut off.
        exact = (a < 2**53) & (a > -(2**53) if a.dtype.kind == "i" else True)
        high = np.asarray(a >> a.dtype.type(12)).astype(np.float64) * 4096.0
        sticky = np.where((a & a.dtype.type(0xFFF)) != 0, 2048.0, 0.0)
        wide = np.where(exact, a.astype(np.float64), high + sticky)
    else:
        wide = a.astype(np.float64)
    near = wide.astype(np.float32)
    error = wide - near.astype(np.float64)
    bits = near.view(np.int32)
    fix = np.isfinite(near) & (error != 0) & ((bits & 1) == 0)
    step = np.where((error > 0) == (wide > 0), 1, -1).astype(np.int32)
    return (bits + np.where(fix, step, 0).astype(np.int32)).view(np.float32)


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, np.where(b == 0, b.dtype.type(1), b))
    if a.dtype.kind == "i":  # floor -> truncation
        inexact = quotient * b != a
        quotient = quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)
    return np.where(b == 0, b.dtype.type(0), quotient)


def _rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    return a - _div(a, b) * b


def _extreme(a: np.ndarray, b: np.ndarray, largest: bool) -> np.ndarray:
    out = np.asarray((np.maximum if largest else np.minimum)(a, b))
    if a.dtype.kind not in "iu":
        both_zero = (a == 0) & (b == 0)
        negative = np.signbit(a) & np.signbit(b) if largest else np.signbit(a) | np.signbit(b)
        zero = np.where(negative, -0.0, 0.0).astype(out.dtype)
        out = np.where(both_zero, zero, out)
    return out


def _shift(a: np.ndarray, count: np.ndarray, left: bool) -> np.ndarray:
    n = count & count.dtype.type(a.dtype.itemsize * 8 - 1)
    return np.left_shift(a, n) if left else np.right_shift(a, n)


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "rem": _rem,
    "min": lambda a, b: _extreme(a, b, False), "max": lambda a, b: _extreme(a, b, True),
    "neg": lambda a: np.negative(a) if a.dtype.kind != "u" else np.zeros_like(a) - a,
    "abs": lambda a: a if a.dtype.kind == "u" else np.abs(a),
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "rint": np.rint, "trunc": np.trunc,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
    "and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor, "not_": np.invert,
    "shift_left": lambda a, n: _shift(a, n, True),
    "shift_right": lambda a, n: _shift(a, n, False),
    "select": np.where, "fma": fma32,
}  # fmt: skip
