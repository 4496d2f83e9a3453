"""TFLite activations of 8 bits: a table of all 256 results, which a Gather looks up.

LiteRT computes the same table when it prepares the operator, or each element by the same steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.frontends.conversion import Conversion
from verax.frontends.tflite.quantisation import of_tensor
from verax.frontends.tflite.rows import Result, row
from verax.numerics.fixed_point import quantised_factor, rounded_shift

INT16 = np.iinfo(np.int16)
CURVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "LOGISTIC": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)),
    "TANH": np.tanh,
}
"""Curves computed in float32."""


def _numbers(c: Conversion) -> np.ndarray:
    """Every value that the input may have."""
    dtype = c.type(0).dtype
    if dtype not in ("int8", "uint8"):
        c.refuse(f"a table for {dtype} is not supported")
    info = np.iinfo(dtype.numpy)
    return np.arange(info.min, info.max + 1)


def _looked_up(c: Conversion, results: np.ndarray) -> Result:
    """The layer as a table of `results`, clipped to the type."""
    dtype = c.type(0).dtype.numpy
    info = np.iinfo(dtype)
    table = c.constant(np.clip(results, info.min, info.max).astype(dtype))
    index = c.add("Cast", [c.required(0)], to="int64")
    if info.min:
        index = c.add("Sub", [index, c.constant(info.min, np.int64)])
    return c.result("Gather", [table, index], axis=0)


@row(*CURVES, quantised=True)
def curve(c: Conversion) -> Result:
    """round(y / scale) + zero point, halves away from zero."""
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    y = CURVES[c.node.op_type](x_scale * (_numbers(c) - x_zero).astype(np.float32))
    steps = y * (np.float32(1) / scale)
    whole = np.trunc(steps + np.copysign(np.float32(0.5), steps)).astype(np.int64)
    return _looked_up(c, whole + zero)


@row("HARD_SWISH", quantised=True)
def hard_swish(c: Conversion) -> Result:
    """x min(max(x + 3, 0), 6) / 6 on 16 bits: x with 7 more bits in the output's scale, times a
    factor in 0 .. 1 that saturates at +-3. Source: LiteRT's reference kernel."""
    (x_scale, x_zero), (scale, zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    fine = np.float32(1 / 128) * x_scale
    out, out_shift = quantised_factor(float(fine / scale))
    ramp, ramp_shift = quantised_factor(float(fine / (np.float32(3) / np.float32(32768))))
    if out_shift > 0:
        c.attributes.refuse("output0.scale", "LiteRT demands one that is not so much finer")
    x = (_numbers(c) - x_zero) * 128
    factor = _saturated(x << max(ramp_shift - 1, 0)) if ramp_shift > 0 else x
    factor = _high_product(factor, _short(ramp))
    if ramp_shift > 0:
        factor = _saturated(factor << 1)
    factor = rounded_shift(factor, max(-ramp_shift, 0))
    factor = (factor + 2**15) >> 1
    product = factor * _high_product(x, _short(out))
    whole = np.where(product >= 0, product >> 15, -(-product >> 15))
    return _looked_up(c, rounded_shift(whole, -out_shift) + zero)


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
