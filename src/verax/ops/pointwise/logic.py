"""Logic on bool (And Or Xor Not) and on the bits of integers (BitwiseAnd BitwiseOr BitwiseXor
BitwiseNot BitShift). All exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import GraphError
from verax.ir.operator import Case, Evaluation, Operator, operator
from verax.ir.types import DType
from verax.numerics.arith import Arith
from verax.ops.common import INTEGERS, draw
from verax.ops.pointwise.elementwise import Elementwise


class Logical(Elementwise):
    """One or two inputs, one primitive that works on bool and on bits alike."""

    exact = True
    primitive: ClassVar[str]
    numpy: ClassVar[Any]
    jumps = True
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    def reference(self, ev: Evaluation, *xs: Any) -> Any:
        return self.numpy(*xs)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.primitive(self.primitive, xs)


class Boolean(Logical):
    """Two bool inputs."""

    min_inputs = 2
    max_inputs = 2
    dtypes = (DType.bool_,)
    case_dtypes = ("bool",)


class Bitwise(Logical):
    """Two integer inputs."""

    min_inputs = 2
    max_inputs = 2
    dtypes = INTEGERS
    case_dtypes = ("int32", "uint8")
    case_range = (-100.0, 100.0)


@operator
class And(Boolean):
    """A and B."""

    primitive = "and_"
    numpy = np.logical_and


@operator
class Or(Boolean):
    """A or B."""

    primitive = "or_"
    numpy = np.logical_or


@operator
class Xor(Boolean):
    """Either A or B, not both."""

    primitive = "xor"
    numpy = np.logical_xor


@operator
class Not(Logical):
    """Not X."""

    dtypes = (DType.bool_,)
    case_dtypes = ("bool",)
    primitive = "not_"
    numpy = np.logical_not


@operator
class BitwiseAnd(Bitwise):
    """Bits set in A and in B."""

    primitive = "and_"
    numpy = np.bitwise_and


@operator
class BitwiseOr(Bitwise):
    """Bits set in A or in B."""

    primitive = "or_"
    numpy = np.bitwise_or


@operator
class BitwiseXor(Bitwise):
    """Bits that differ between A and B."""

    primitive = "xor"
    numpy = np.bitwise_xor


@operator
class BitwiseNot(Logical):
    """All bits of X inverted."""

    dtypes = INTEGERS
    case_dtypes = ("int32", "uint8")
    case_range = (-100.0, 100.0)
    primitive = "not_"
    numpy = np.invert


@operator
class BitShift(Elementwise):
    """X shifted by Y bits to the "LEFT" or "RIGHT"; right shifts of signed integers keep the sign.

    A negative Y, or one of at least the width of the type, shifts everything out: 0, or -1 for a
    right shift of a negative X.
    """

    direction: str = "LEFT"
    min_inputs = 2
    max_inputs = 2
    exact = True
    dtypes = INTEGERS
    jumps = True

    def __post_init__(self) -> None:
        if self.direction not in ("LEFT", "RIGHT"):
            raise GraphError(f"BitShift: direction is {self.direction!r}, not LEFT or RIGHT")

    def reference(self, ev: Evaluation, x: Any, y: Any) -> Any:
        return np.left_shift(x, y) if self.direction == "LEFT" else np.right_shift(x, y)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x, y = xs
        zero, width = m.like(0, y), int(m.dtype(x).lstrip("uint"))
        outside = m.or_(m.lt(y, zero), m.ge(y, m.like(width, y)))
        if self.direction == "LEFT":
            return m.select(outside, m.like(0, x), m.shift_left(x, y))
        if m.dtype(x).startswith("uint"):
            return m.select(outside, zero, m.shift_right(x, y))
        return m.shift_right(x, m.select(outside, m.like(width - 1, y), y))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for direction in ("LEFT", "RIGHT"):
            op: Operator = cls(direction=direction)
            for dtype in ("uint8", "int32", "uint64", "int8"):
                x = draw(rng, (2, 3, 5), dtype, -100, 100)
                y = draw(rng, (3, 1), dtype, 0, 9)
                y[0] = 70
                yield Case(op, (x, y), label=f"{dtype} {direction}")
            yield Case(op, (x, np.full((1, 5), -1, np.int8)), label=f"negative {direction}")
