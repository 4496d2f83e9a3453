"""gemmlowp's exponential and reciprocal, and TFLite's tables of both, in the arithmetic of kernels:
the integers of `numerics.fixed_point`, for the softmax of bytes and of 16 bits."""

from __future__ import annotations

from typing import Any

from verax.numerics.arith import Arith
from verax.numerics.fixed_point import EXP_FACTORS, quantized_factor
from verax.ops.quantized.per_element import doubling_high_product, rounded_shift, scaled

DIFF_BITS, SUM_BITS = 5, 12
LONGEST = 1 << 12
"""Rows up to here have sums of exponentials that fit into 32 bits."""


class RowSoftmax:
    """Softmax of factor x over a row of bytes, step by step. low, high, bits: of the results."""

    def __init__(self, m: Arith[Any], factor: float, low: int, high: int, bits: int) -> None:
        self.m, self.low, self.high, self.bits = m, low, high, bits
        largest = float(2**31 - 1)
        self.factor = quantized_factor(min(factor * 2 ** (31 - DIFF_BITS), largest))
        self.radius = int((2**DIFF_BITS - 1) * 2.0 ** (31 - DIFF_BITS) / 2.0 ** self.factor[1])

    def int64(self, value: int) -> Any:
        return self.m.const(value, "int64")

    def term(self, x: Any, top: Any) -> Any:
        """What the row's sum is made of, int32. x, top: int32, the element and the largest."""
        counted, exponential = self._exponential(x, top)
        shifted = rounded_shift(self.m, exponential, self.int64(SUM_BITS))
        return self.m.convert(self.m.select(counted, shifted, self.int64(0)), "int32")

    def reciprocal(self, total: Any) -> Any:
        """1 / total and its exponent in one int64; total: int32, positive."""
        m, wide = self.m, self.m.convert(total, "int64")
        bits = m.bitcast(m.convert(wide, "float64"), "int64")
        lead = m.sub(self.int64(31 + 1023), m.shift_right(bits, self.int64(52)))
        fraction = m.sub(m.shift_left(wide, lead), self.int64(2**31))
        exponent = m.sub(self.int64(SUM_BITS + 31 - self.bits), lead)
        mantissa = m.shift_left(self._reciprocal_of_one_plus(fraction), self.int64(6))
        return m.or_(mantissa, exponent)

    def result(self, x: Any, top: Any, reciprocal: Any) -> Any:
        """The element over the row's sum, int64, between `low` and `high`."""
        m = self.m
        counted, exponential = self._exponential(x, top)
        mantissa = m.shift_right(reciprocal, self.int64(6))
        product = doubling_high_product(m, mantissa, exponential)
        rounded = rounded_shift(m, product, m.and_(reciprocal, self.int64(63)))
        rounded = m.add(m.select(counted, rounded, self.int64(0)), self.int64(self.low))
        return m.min(m.max(rounded, self.int64(self.low)), self.int64(self.high))

    def _exponential(self, x: Any, top: Any) -> tuple[Any, Any]:
        """Whether the element counts, and exp of its distance from the largest."""
        m, difference = self.m, self.m.convert(self.m.sub(x, top), "int64")
        counted = m.ge(difference, self.int64(-self.radius))
        difference = m.select(counted, difference, self.int64(0))
        factors = [self.int64(f) for f in self.factor]
        return counted, self._exp_of_negative(scaled(m, difference, *factors))

    def _exp_of_negative(self, a: Any) -> Any:
        m, fraction = self.m, 31 - DIFF_BITS
        quarter = 1 << (fraction - 2)
        fraction_part = m.sub(m.and_(a, self.int64(quarter - 1)), self.int64(quarter))
        result = self._exp_between_quarters(self._saturating_shift(fraction_part, DIFF_BITS))
        remainder = m.sub(fraction_part, a)
        for exponent, factor in enumerate(EXP_FACTORS, start=-2):
            bit = m.and_(remainder, self.int64(1 << (fraction + exponent)))
            scaled_by = doubling_high_product(m, result, self.int64(factor))
            result = m.select(m.ne(bit, self.int64(0)), scaled_by, result)
        return m.select(m.eq(a, self.int64(0)), self.int64(2**31 - 1), result)

    def _exp_between_quarters(self, a: Any) -> Any:
        m = self.m
        x = m.add(a, self.int64(2**28))
        square = doubling_high_product(m, x, x)
        cube = doubling_high_product(m, square, x)
        fourth = rounded_shift(m, doubling_high_product(m, square, square), self.int64(2))
        series = doubling_high_product(m, m.add(fourth, cube), self.int64(715827883))
        series = rounded_shift(m, m.add(series, square), self.int64(1))
        middle = self.int64(1895147668)
        return m.add(middle, doubling_high_product(m, middle, m.add(x, series)))

    def _reciprocal_of_one_plus(self, a: Any) -> Any:
        """a: not negative."""
        m = self.m
        half = m.shift_right(m.add(a, self.int64(2**31)), self.int64(1))
        x = doubling_high_product(m, half, self.int64(-1010580540))
        x = m.add(x, self.int64(1515870810))
        for _ in range(3):
            residual = m.sub(self.int64(2**29), doubling_high_product(m, half, x))
            x = m.add(x, self._saturating_shift(doubling_high_product(m, x, residual), 2))
        return self._saturating_shift(x, 1)

    def _saturating_shift(self, x: Any, exponent: int) -> Any:
        m = self.m
        wide = m.shift_left(x, self.int64(exponent))
        return m.min(m.max(wide, self.int64(-(2**31))), self.int64(2**31 - 1))


def between(m: Arith[Any], low: Any, high: Any, step: Any) -> Any:
    """Linear interpolation between two entries of a table, `step` of 128; all int32."""
    scaled_step = m.add(m.mul(m.sub(high, low), step), m.const(64, "int32"))
    return m.add(low, m.shift_right(scaled_step, m.const(7, "int32")))


class TableSoftmax:
    """Softmax of factor x over a row of 16-bit x, by tables of 513 entries, step by step."""

    def __init__(self, m: Arith[Any], factor: float) -> None:
        self.m, self.factor = m, quantized_factor(factor / (10.0 / (2**16 - 1)))

    def _int64(self, value: int) -> Any:
        return self.m.const(value, "int64")

    def table_entry(self, x: Any, top: Any) -> tuple[Any, Any]:
        """(index in the table of exponentials, step of 128 toward the next entry), both int32.

        x, top: int16, the element and the largest of its row."""
        m = self.m
        difference = m.sub(m.convert(x, "int64"), m.convert(top, "int64"))
        scaled_difference = scaled(m, difference, *(self._int64(f) for f in self.factor))
        return self._entry(m.add(scaled_difference, self._int64(2**15 - 1)))

    def row(self, total: Any) -> tuple[Any, Any, Any]:
        """(index in the table of reciprocals, step of 128 toward the next entry, right shift of
        products with it), all int32. total: int32, positive."""
        m, wide = self.m, self.m.convert(total, "int64")
        bits = m.bitcast(m.convert(wide, "float64"), "int64")
        right = m.sub(m.shift_right(bits, self._int64(52)), self._int64(1023))
        to_left = m.sub(self._int64(30), right)
        shifted = m.add(m.shift_left(wide, to_left), self._int64(2**13))
        shifted = m.shift_right(shifted, self._int64(14))
        index, step = self._entry(m.sub(shifted, self._int64(3 * 2**15)))
        return index, step, m.convert(right, "int32")

    def share(self, term: Any, reciprocal: Any, right: Any) -> Any:
        """The element over the row's sum, int16; the arguments are int32."""
        m = self.m
        right = m.convert(right, "int64")
        half = m.shift_left(self._int64(1), m.sub(right, self._int64(1)))
        product = m.mul(m.convert(term, "int64"), m.convert(reciprocal, "int64"))
        rounded = m.shift_right(m.add(product, half), right)
        rounded = m.min(m.max(rounded, self._int64(0)), self._int64(2**15 - 1))
        return m.convert(rounded, "int16")

    def _entry(self, at: Any) -> tuple[Any, Any]:
        """`fixed_point.interpolated`: the upper 9 of 16 bits, and the lower 7."""
        m = self.m
        at = m.convert(m.min(m.max(at, self._int64(-(2**15))), self._int64(2**15 - 1)), "int32")
        index = m.add(m.shift_right(at, m.const(7, "int32")), m.const(256, "int32"))
        return index, m.and_(at, m.const(0x7F, "int32"))
