"""The inverse root of TFLite in the arithmetic of kernels: the integers of
`fixed_point.inverse_root`, in int64, for rows that are divided by their length."""

from __future__ import annotations

from typing import Any

from verax.numerics.arith import Arith
from verax.ops.quantized.per_element import doubling_high_product, rounded_shift, scaled

LONGEST = 1 << 15
"""Rows up to here have sums of squares of bytes that fit into 32 bits."""
_SHIFT_BITS = 6


class RowLength:
    """Rows of bytes x - zero_point over their length. low, high: the ends of the type."""

    def __init__(self, m: Arith[Any], zero_point: int, low: int, high: int) -> None:
        self.m, self.zero_point, self.low, self.high = m, zero_point, low, high

    def _int64(self, value: int) -> Any:
        return self.m.const(value, "int64")

    def square(self, x: Any) -> Any:
        """What the row's sum is made of. x and result: int32."""
        centered = self.m.sub(x, self.m.const(self.zero_point, "int32"))
        return self.m.mul(centered, centered)

    def inverse(self, total: Any) -> Any:
        """1 / sqrt(total) as multiplier and shift to the right in one int64; total: int32."""
        m, int64 = self.m, self._int64
        x = m.convert(total, "int64")
        down = m.sub(self._width(x), int64(28))  # half of what is above 29 bits, rounded up
        down = m.max(m.shift_right(down, int64(1)), int64(0))
        scaled_down = m.shift_right(x, m.add(down, down))
        bit_pairs = m.sub(int64(31), self._width(scaled_down))
        bit_pairs = m.sub(m.shift_right(bit_pairs, int64(1)), int64(1))
        value = m.shift_right(m.shift_left(scaled_down, m.add(bit_pairs, bit_pairs)), int64(1))
        half = rounded_shift(m, value, int64(1))
        root = int64(2**28)
        for _ in range(5):
            cube = doubling_high_product(m, doubling_high_product(m, root, root), root)
            correction = doubling_high_product(m, int64(3 * 2**27), root)
            lost = doubling_high_product(m, half, self._saturating_shift(cube, 6))
            root = self._saturating_shift(m.sub(correction, lost), 3)
        root = doubling_high_product(m, root, int64(1518500250))  # sqrt(1/2)
        right = m.sub(m.add(down, int64(11)), bit_pairs)
        root = m.shift_left(root, m.max(m.neg(right), int64(0)))
        packed = m.shift_left(root, int64(_SHIFT_BITS))
        packed = m.or_(packed, m.max(right, int64(0)))
        one = int64((2**31 - 1) << _SHIFT_BITS)
        return m.select(m.gt(x, int64(1)), packed, one)

    def result(self, x: Any, inverse: Any) -> Any:
        """The element over the row's length, int64, within the ends. x: int32."""
        m, int64 = self.m, self._int64
        centered = m.convert(m.sub(x, m.const(self.zero_point, "int32")), "int64")
        multiplier = m.shift_right(inverse, int64(_SHIFT_BITS))
        shift = m.neg(m.and_(inverse, int64((1 << _SHIFT_BITS) - 1)))
        if self.low:
            rounded = scaled(m, centered, multiplier, m.add(shift, int64(7)))
        else:
            wide = m.mul(centered, int64(128))
            rounded = m.add(scaled(m, wide, multiplier, shift), int64(128))
        return m.min(m.max(rounded, int64(self.low)), int64(self.high))

    def _width(self, x: Any) -> Any:
        """Bits of x, of 0 as of 1."""
        m = self.m
        bits = m.bitcast(m.convert(m.max(x, self._int64(1)), "float64"), "int64")
        return m.sub(m.shift_right(bits, self._int64(52)), self._int64(1022))

    def _saturating_shift(self, x: Any, exponent: int) -> Any:
        m = self.m
        wide = m.shift_left(x, self._int64(exponent))
        return m.min(m.max(wide, self._int64(-(2**31))), self._int64(2**31 - 1))
