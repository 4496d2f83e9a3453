"""The arithmetic of `arith` on NumPy arrays: the definition that the other machines must match."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from verax.base.lazy import deferred
from verax.numerics import narrow
from verax.numerics.arith import Arith, result_dtype
from verax.numerics.fma import BLOCK, blocks, fma
from verax.numerics.formats import FLOATS, INTEGERS, NARROW, SIGNED, dtype_name, numpy_dtype

if TYPE_CHECKING:
    from verax.numerics.functions import call as call_function
else:  # a kept program starts without them: they are a seventh of what it would import
    call_function = deferred("verax.numerics.functions:call")


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
        shape = np.broadcast_shapes(*(a.shape for a in args))
        with np.errstate(all="ignore"):
            if math.prod(shape) <= BLOCK:
                return np.asarray(call_function(self, function, args))
            out = np.empty(shape, args[0].dtype)
            wide = [np.broadcast_to(a, shape) for a in args]
            for block in blocks(shape):
                out[block] = call_function(self, function, tuple(a[block] for a in wide))
        return out

    def rarely(
        self,
        mask: np.ndarray,
        compute: Callable[..., Any],
        args: tuple[np.ndarray, ...],
        otherwise: tuple[np.ndarray, ...],
    ) -> tuple[np.ndarray, ...]:
        if not mask.any():
            return otherwise
        computed = compute(self, *(np.broadcast_to(a, mask.shape)[mask] for a in args))
        results = []
        for values, default in zip(computed, otherwise, strict=True):
            merged = np.array(np.broadcast_to(default, mask.shape))
            merged[mask] = values
            results.append(merged)
        return tuple(results)

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


_MACHINE = NumpyArith()


def _convert(a: np.ndarray, dtype: str) -> np.ndarray:
    source, to = dtype_name(a.dtype), numpy_dtype(dtype)
    if source == dtype:
        return a
    if source in NARROW:
        return _convert(narrow.widened(_MACHINE, a), dtype)
    if dtype in NARROW:
        return np.asarray(narrow.narrowed(_MACHINE, a, dtype))
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


def _multiply_high(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    wide = a.astype(np.int64) * b.astype(np.int64) + c.astype(np.int64)
    return wide >> np.int64(32)


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
    "select": np.where, "fma": fma, "multiply_high": _multiply_high,
}  # fmt: skip
