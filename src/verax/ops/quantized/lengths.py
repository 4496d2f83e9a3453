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

    def _number(self, value: int) -> Any:
        return self.m.const(value, "int64")

    def square(self, x: Any) -> Any:
        """What the row's sum is made of. x and result: int32."""
        centred = self.m.sub(x, self.m.const(self.zero_point, "int32"))
        return self.m.mul(centred, centred)

    def inverse(self, total: Any) -> Any:
        """1 / sqrt(total) as multiplier and shift to the right in one int64; total: int32."""
        m, number = self.m, self._number
        x = m.convert(total, "int64")
        down = m.sub(self._width(x), number(28))  # half of what is above 29 bits, rounded up
        down = m.max(m.shift_right(down, number(1)), number(0))
        whole = m.shift_right(x, m.add(down, down))
        pairs = m.sub(number(31), self._width(whole))
        pairs = m.sub(m.shift_right(pairs, number(1)), number(1))
        value = m.shift_right(m.shift_left(whole, m.add(pairs, pairs)), number(1))
        half = rounded_shift(m, value, number(1))
        root = number(2**28)
        for _ in range(5):
            cube = doubling_high_product(m, doubling_high_product(m, root, root), root)
            rest = doubling_high_product(m, number(3 * 2**27), root)
            lost = doubling_high_product(m, half, self._saturating_shift(cube, 6))
            root = self._saturating_shift(m.sub(rest, lost), 3)
        root = doubling_high_product(m, root, number(1518500250))  # sqrt(1/2)
        right = m.sub(m.add(down, number(11)), pairs)
        root = m.shift_left(root, m.max(m.neg(right), number(0)))
        packed = m.shift_left(root, number(_SHIFT_BITS))
        packed = m.or_(packed, m.max(right, number(0)))
        one = number((2**31 - 1) << _SHIFT_BITS)
        return m.select(m.gt(x, number(1)), packed, one)

    def result(self, x: Any, inverse: Any) -> Any:
        """The element over the row's length, int64, within the ends. x: int32."""
        m, number = self.m, self._number
        centred = m.convert(m.sub(x, m.const(self.zero_point, "int32")), "int64")
        multiplier = m.shift_right(inverse, number(_SHIFT_BITS))
        shift = m.neg(m.and_(inverse, number((1 << _SHIFT_BITS) - 1)))
        if self.low:
            whole = scaled(m, centred, multiplier, m.add(shift, number(7)))
        else:
            wide = m.mul(centred, number(128))
            whole = m.add(scaled(m, wide, multiplier, shift), number(128))
        return m.min(m.max(whole, number(self.low)), number(self.high))

    def _width(self, x: Any) -> Any:
        """Bits of x, of 0 as of 1."""
        m = self.m
        bits = m.bitcast(m.convert(m.max(x, self._number(1)), "float64"), "int64")
        return m.sub(m.shift_right(bits, self._number(52)), self._number(1022))

    def _saturating_shift(self, x: Any, exponent: int) -> Any:
        m = self.m
        wide = m.shift_left(x, self._number(exponent))
        return m.min(m.max(wide, self._number(-(2**31))), self._number(2**31 - 1))
