"""TFLite operators of one quantized operand: a table of every result (`LookupTable`).

LiteRT computes a table of 8-bit numbers when it prepares the operator, interpolates in a shorter
one of 16-bit numbers, or computes each element by the same steps. Those are the entries. Beside
them stands what other honest kernels give: the function itself, rounded once, and both integers
where float32 arithmetic decides between two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.lookup import (
    looked_up,
    rounded_once,
)
from verax.frontends.tflite.quantization import of_tensor
from verax.frontends.tflite.rows import row
from verax.numerics.fixed_point import (
    interpolated,
    interpolation_table,
    inverse_root,
    nearest,
    quantized_factor,
    rounded_shift,
    scaled,
    sigmoid,
    tanh,
)
from verax.ops.quantized.lookup import Function, function_error

INT16 = np.iinfo(np.int16)
BYTES = ("int8", "uint8")
F = np.float32


def _numbers(c: Conversion, *types: str) -> np.ndarray:
    """Every value that the input may have; other types are refused."""
    dtype = c.type(0).dtype
    if dtype not in types:
        c.refuse(f"a table for {dtype} is not supported")
    info = np.iinfo(dtype.numpy)
    return np.arange(info.min, info.max + 1)


# Curves by tables of float32 results

Curve = Callable[[np.ndarray, np.floating], np.ndarray]
"""Results for x, float32 or float64, and the least number that the output can hold."""


def _single(function: Callable[[np.ndarray], np.ndarray]) -> Curve:
    """A function as its element type has it at best: computed in float64 and rounded once."""

    def rounded(x: np.ndarray, lowest: np.floating) -> np.ndarray:
        with np.errstate(all="ignore"):
            return function(x.astype(np.float64)).astype(x.dtype)

    return rounded


_exp = _single(np.exp)
_tanh = _single(np.tanh)
_erfc = _single(np.vectorize(math.erfc, otypes=[np.float64]))
ROOT = math.sqrt(2 / math.pi)


def _gelu(x: np.ndarray, lowest: np.floating) -> np.ndarray:
    return np.asarray(0.5 * x * _erfc(x * -math.sqrt(0.5), lowest))


def _gelu_by_tanh(x: np.ndarray, lowest: np.floating) -> np.ndarray:
    inner = ROOT * (x + 0.044715 * x * x * x)
    return np.asarray(0.5 * x * (1 + _tanh(inner, lowest)))


def _log(x: np.ndarray, lowest: np.floating) -> np.ndarray:
    """The least number where there is no logarithm."""
    logarithm = np.log(np.maximum(x, 2**-126).astype(np.float64)).astype(x.dtype)
    return np.where(x > 0, logarithm, lowest)


CURVES: dict[str, tuple[Curve, tuple[str, ...]]] = {
    "LOGISTIC": (lambda x, lowest: 1 / (1 + _exp(-x, lowest)), BYTES),
    "TANH": (_tanh, BYTES),
    "ELU": (lambda x, lowest: np.where(x < 0, _single(np.expm1)(x, lowest), x), ("int8",)),
    "EXP": (_exp, ("int8", "int16")),
    "LOG": (_log, ("int8", "int16")),
    "GELU": (_gelu, (*BYTES, "int16")),
    "GELU by tanh": (_gelu_by_tanh, (*BYTES, "int16")),
}
"""Curves computed in float32, and the types that LiteRT has them for."""


def _curve(c: Conversion, name: str) -> Result:
    """8 bits: round(y / scale) + zero point. 16 bits: by interpolation."""
    function, types = CURVES[name]
    numbers = _numbers(c, *types)
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    if c.type(0).dtype == "int16":
        return _interpolated(c, lambda x: function(x, x.dtype.type(F(scale * INT16.min))))
    lowest = F(scale * F(numbers[0] - zero))
    y = function(x_scale * (numbers - x_zero).astype(F), lowest)
    baseline = rounded_once(c, lambda x: function(x, np.float64(lowest)))
    return looked_up(c, nearest(y * (F(1) / scale)).astype(np.int64) + zero, baseline)


def _interpolated(c: Conversion, function: Function) -> Result:
    """Of 16 bits; `function` takes float32 and float64."""
    numbers = _numbers(c, "int16")
    sides = [of_tensor(c, side) for side in ("input0", "output0")]
    if any(zero for _, zero in sides):
        c.refuse("LiteRT demands zero points of 0 for 16 bits")
    ends = [(F(scale * INT16.min), F(scale * INT16.max)) for scale, _ in sides]

    def error(x: np.ndarray) -> np.ndarray:
        return function_error(function, x, 1 / float(sides[1][0]), max(map(abs, ends[0])))

    with np.errstate(all="ignore"):
        results = [
            interpolated(numbers, interpolation_table(function, ends[0], ends[1], F, error, signs))
            for signs in ((0, 0, 0), *itertools.product((-1, 1), (-1, 1), (-1, 1)))
        ]
    return looked_up(c, results[0], [*results[1:], *rounded_once(c, function)])


@row("ELU", "EXP", "LOG", quantized=True)
def curve(c: Conversion) -> Result:
    return _curve(c, c.node.op_type)


@row("GELU", quantized=True)
def gelu(c: Conversion) -> Result:
    return _curve(c, "GELU by tanh" if c.flag("approximate") else "GELU")


@row("LOGISTIC", "TANH", quantized=True)
def saturating(c: Conversion) -> Result:
    """16 bits: a table of the sigmoid that is common to both; the output's scale is 2^-15."""
    name = c.node.op_type
    if c.type(0).dtype != "int16":
        if name == "LOGISTIC" and of_tensor(c, "output0")[0] != F(2.0**-8):
            c.attributes.refuse("output0.scale", "LiteRT demands 1/256")
        return _curve(c, name)
    (scale, x_zero), (out_scale, out_zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    if x_zero or out_zero or out_scale != F(2.0**-15):
        c.attributes.refuse("output0.scale", "LiteRT demands 2^-15 and zero points of 0")
    multiplier, shift = _table_factor(scale, (0,) if name == "LOGISTIC" else (0, 1))
    half = (1 << shift) >> 1
    x = (_numbers(c, "int16") * multiplier + half) >> shift
    function = CURVES[name][0]
    baseline = rounded_once(c, lambda x: function(x, np.float64(-1)))
    return looked_up(c, (sigmoid if name == "LOGISTIC" else tanh)(x), baseline)


def _table_factor(scale: np.float32, exact: tuple[int, ...]) -> tuple[int, int]:
    """(multiplier, right shift) to the table's scale, in which 3 2^12 is 1. A scale of 2^(k - 12)
    has an exact one for k in `exact`; else 15 bits are cut off. Source: LiteRT's preparation."""
    exponent = math.log2(float(scale)) + 12
    if round(exponent) in exact and abs(exponent - round(exponent)) < 1e-3:
        return 3 << round(exponent), 0
    multiplier, shift = float(scale) * 4096 * 3, 0
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = 2 * multiplier, shift + 1
    return int(multiplier), shift


# Each element by integers


@row("ABS", quantized=True)
def absolute(c: Conversion) -> Result:
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    value = np.abs(_numbers(c, "int8", "int16") - x_zero)
    if x_scale != scale:
        value = scaled(value, *quantized_factor(float(x_scale / scale)))
    return looked_up(c, value + zero, rounded_once(c, np.abs))


@row("SQRT", quantized=True)
def root(c: Conversion) -> Result:
    """Cut off, not rounded. Below zero LiteRT stops; here zero stands there."""
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    x = x_scale * np.maximum(_numbers(c, "int8", "int16") - x_zero, 0).astype(F)
    baseline = rounded_once(c, lambda x: np.sqrt(np.maximum(x, 0)))
    return looked_up(c, np.trunc(np.sqrt(x) / scale).astype(np.int64) + zero, baseline)


@row("RSQRT", quantized=True)
def inverse_square_root(c: Conversion) -> Result:
    """The largest number at zero. Below zero LiteRT stops; here the largest number stands there.

    16 bits by interpolation; 8 bits by integers with 20 more bits.
    """
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    if c.type(0).dtype == "int16":
        return _interpolated(c, lambda x: _inverse_root(x, float(F(INT16.max) * scale)))
    value = _numbers(c, "int8") - x_zero
    multiplier, shift = inverse_root(np.maximum(value, 0))
    data = scaled(np.ones_like(value), multiplier, shift + 20)
    factor, exponent = quantized_factor(float(1 / (np.float64(np.sqrt(x_scale)) * scale)))
    results = np.where(value > 0, scaled(data, factor, exponent - 20) + zero, 127)
    largest = float(scale) * (127 - zero)
    return looked_up(c, results, rounded_once(c, lambda x: _inverse_root(x, largest)))


def _inverse_root(x: np.ndarray, largest: float) -> np.ndarray:
    return np.where(x > 0, 1 / np.sqrt(np.abs(x)), largest).astype(x.dtype)


@row("HARD_SWISH", quantized=True)
def hard_swish(c: Conversion) -> Result:
    """x min(max(x + 3, 0), 6) / 6 on 16 bits: x with 7 more bits in the output's scale, times a
    factor in 0 .. 1 that saturates at +-3. Source: LiteRT's reference kernel."""
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    fine = np.float32(1 / 128) * x_scale
    out, out_shift = quantized_factor(float(fine / scale))
    ramp, ramp_shift = quantized_factor(float(fine / (np.float32(3) / np.float32(32768))))
    if out_shift > 0:
        c.attributes.refuse("output0.scale", "LiteRT demands one that is not so much finer")
    x = (_numbers(c, *BYTES) - x_zero) * 128
    factor = _saturated(x << max(ramp_shift - 1, 0)) if ramp_shift > 0 else x
    factor = _high_product(factor, _short(ramp))
    if ramp_shift > 0:
        factor = _saturated(factor << 1)
    factor = rounded_shift(factor, max(-ramp_shift, 0))
    factor = (factor + 2**15) >> 1
    product = factor * _high_product(x, _short(out))
    truncated = np.where(product >= 0, product >> 15, -(-product >> 15))
    baseline = rounded_once(c, lambda x: x * np.clip(x + 3, 0, 6) / 6)
    return looked_up(c, rounded_shift(truncated, -out_shift) + zero, baseline)


def _short(multiplier: int) -> int:
    """A multiplier of 32 bits as one of 16."""
    return min((multiplier + 2**15) >> 16, int(INT16.max))


def _saturated(x: np.ndarray) -> np.ndarray:
    return np.clip(x, INT16.min, INT16.max)


def _high_product(x: np.ndarray, multiplier: int) -> np.ndarray:
    """round(x multiplier / 2^15), halves away from zero but for a negative one's last bit."""
    product = x * multiplier
    nudged = product + np.where(product >= 0, 2**14, 1 - 2**14)
    return _saturated(np.where(nudged >= 0, nudged >> 15, -(-nudged >> 15)))
