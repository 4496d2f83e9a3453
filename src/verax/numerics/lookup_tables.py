"""Functions of 16-bit numbers by tables and linear interpolation, as LiteRT's kernels compute them.

A table's entries are moved by half of the interpolation's error in the middle of their interval, so
that the error is spread evenly over both signs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from verax.numerics.fixed_point import nearest

INT16 = np.iinfo(np.int16)
STEPS = 512
Function = Callable[[np.ndarray], np.ndarray]
Ends = tuple[float | np.floating, float | np.floating]


def interpolation_table(
    function: Function, ends: Ends, output_ends: Ends, work: type
) -> np.ndarray:
    """Table [513], int64: `function` at even steps over `ends`, in units of the output.

    ends: what -2^15 and 2^15 - 1 mean. output_ends: likewise of the result. work: float32 or
    float64, the arithmetic that every step is rounded to. Source: LUTPopulate of TFLite's
    internal/common.
    """
    low, high, out_low, out_high = (work(v) for v in (*ends, *output_ends))
    step = (high - low) / work(STEPS)
    unit = work(2**16) / (out_high - out_low)
    starts = low + np.arange(STEPS, dtype=work) * step
    following = low + np.arange(1, STEPS + 1, dtype=work) * step
    at_start, at_next = function(starts) * unit, function(following) * unit
    middle = nearest(function(starts + step / work(2)) * unit)
    between = nearest((at_next + nearest(at_start).astype(work)) / work(2))
    entries = nearest(at_start) - nearest((between - middle) / 2)
    last = nearest(function(np.asarray(high))[None] * unit)
    return np.clip(np.concatenate([entries, last]), INT16.min, INT16.max).astype(np.int64)


def interpolated(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Results for 16-bit x: the upper 9 bits say where, the lower 7 how far to the next entry."""
    index = 256 + (x >> 7)
    base = table[index]
    return base + (((table[index + 1] - base) * (x & 0x7F) + 64) >> 7)


@cache
def sigmoid_table() -> np.ndarray:
    """sigmoid(i / 24) with 16 fraction bits, [256]; the last entry saturates."""
    at = np.arange(512) / 48
    exact = 2.0**16 / (1 + np.exp(-at))
    start, middle = exact[:-2:2], exact[1:-1:2]
    entries = np.floor(start + (middle - (start + exact[2::2]) / 2) / 2 + 0.5)
    return np.append(entries, 2**16 - 1).astype(np.int64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Sigmoid with 15 fraction bits of x, in which 24 2^9 is 1."""
    return (_sigmoid_sum(x, 9, 0x7FFF << 10, 1 << 25) + (1 << 9)) >> 10


def tanh(x: np.ndarray) -> np.ndarray:
    """Tanh with 15 fraction bits of x, in which 12 2^10 is 1: 2 sigmoid(2 x) - 1."""
    return (_sigmoid_sum(x, 8, 0xFFFF << 8, 1 << 24) - (1 << 23) + (1 << 7)) >> 8


def _sigmoid_sum(x: np.ndarray, bits: int, largest: int, one: int) -> np.ndarray:
    """Interpolated sigmoid with 16 + `bits` fraction bits; negative x by one - sigmoid(-x) - 1."""
    size = np.abs(x)
    table, index = sigmoid_table(), np.minimum(size >> bits, 254)
    base = table[index]
    found = (base << bits) + (size & ((1 << bits) - 1)) * (table[index + 1] - base)
    found = np.where(size >> bits >= 255, largest, found)
    return np.where(x >= 0, found, one - found - 1)
