"""LookupTable: a function of integers, given by all of its results.

What a table holds is a function's values rounded, so its meaning may say by how much honest
float32 arithmetic moves an entry: one that lies at the edge between two integers may be either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.operator import Array, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import Quantity, U
from verax.ops.common import draw

INDEXES = (DType.int8, DType.uint8, DType.int16)


@operator
class LookupTable(Operator):
    """table[x - m], m being the least number of x's type.

    Inputs: x int8, uint8 or int16; table [256], or [65536] for int16, of one of these types;
    lowest and highest of the table's type and shape, or neither: the least and the greatest
    integer that honest float32 arithmetic gives for each entry (without them it is the table's).
    zero_point: the integer that stands for 0 in the result.
    """

    zero_point: int = 0

    no_derivative = "its results are integers, which jump"
    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 4
    exact = True

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, table = ctx.type(0), ctx.type(1)
        ctx.require(x.dtype in INDEXES, f"the input is {x}, not {', '.join(INDEXES)}")
        ctx.require(table.dtype in INDEXES, f"the table is {table}, not {', '.join(INDEXES)}")
        expected = (1 << 8 * x.dtype.itemsize,)
        ctx.require(table.dims == expected, f"the table is {table} for {x.dtype} of {expected}")
        ctx.require(ctx.has(2) == ctx.has(3), "lowest and highest are given both or not at all")
        for index in (2, 3):
            if ctx.has(index):
                ends = ctx.type(index)
                ctx.require(ends == table, f"input {index} is {ends} beside the table {table}")
        return [x.with_dtype(table.dtype)]

    def reference(
        self,
        ev: Evaluation,
        x: Array,
        table: Array,
        lowest: Array | None = None,
        highest: Array | None = None,
    ) -> Array:
        return table[positions(x)]

    def decides(self, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
        """Any integer between the two that are allowed for the entry."""
        x, table, lowest, highest = (*inputs, None, None)[:4]
        if lowest is None or highest is None:
            return (None,)
        info = np.iinfo(table.dtype)
        low, high = (a.astype(np.float64)[positions(x)] for a in (lowest, highest))
        real, slack = (low + high) / 2, np.maximum(high - low - 1, 0) / 2
        ends = float(info.min), float(info.max)
        return (Quantity(real, slack, *ends, is_free=True, zero=self.zero_point),)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        table = draw(rng, (256,), "uint8", 0, 255)
        x = draw(rng, (2, 3, 5), "int8", -128, 127)
        yield Case(cls(), (x, table))
        yield Case(cls(), (np.asarray(x[0, 1, 2]), table), label="a scalar")
        lowest = draw(rng, (256,), "int8", -100, 100)
        allowed = lowest, lowest + np.int8(2)
        bytes_ = draw(rng, (4, 7), "uint8", 0, 255)
        yield Case(cls(zero_point=-7), (bytes_, lowest + np.int8(1), *allowed), label="either")
        words = draw(rng, (1 << 16,), "int16", -(2**15), 2**15 - 1)
        yield Case(cls(), (draw(rng, (3, 11), "int16", -(2**15), 2**15 - 1), words))


def positions(x: Array) -> Array:
    """Where in a table the numbers of `x` lie, int64."""
    return np.asarray(x).astype(np.int64) - np.iinfo(np.asarray(x).dtype).min


Function = Callable[[Array], Array]
FUNCTION_ROUNDINGS, ARGUMENT_ROUNDINGS, SUM_ROUNDINGS, SCALING_ROUNDINGS = 12, 4, 4, 2
"""Units of rounding, at most: of the function's value; of its argument; of 1, which its value is a
difference from (1 - exp, 1 + erf); of value and zero point on the way to an integer."""


def function_error(function: Function, x: Array, units: float, largest: Any = 0.0) -> Array:
    """How far float32 may move units * function(x) at most, float64 of the shape of x.

    largest: of the numbers that x was computed from, where those are larger than x.
    """
    x = x.astype(np.float64)
    step = ARGUMENT_ROUNDINGS * U * np.maximum(np.abs(x), float(largest))
    with np.errstate(all="ignore"):
        y = function(x)
        argument_error = np.maximum(*(np.abs(function(x + s * step) - y) for s in (-1, 1)))
        own = FUNCTION_ROUNDINGS * np.abs(y) + SUM_ROUNDINGS
        return np.asarray(np.nan_to_num(units * (argument_error + U * own), posinf=0.0))


def integers_within(
    function: Function, x: Array, units: float, zero: int, ends: tuple[int, int]
) -> list[Array]:
    """The least and the greatest integer that honest float32 arithmetic gives for
    units * function(x) + zero, rounded to the nearest; beyond `ends` no more than one."""
    low, high = ends
    with np.errstate(all="ignore"):
        real = np.clip(function(x) * units + zero, low - 1, high + 1)
    slack = function_error(function, x, units) + SCALING_ROUNDINGS * U * (abs(zero) + high - low)
    return [np.ceil(real - slack - 0.5), np.floor(real + slack + 0.5)]
