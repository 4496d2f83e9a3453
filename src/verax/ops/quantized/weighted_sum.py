"""Sums of quantized numbers with factors, rounded once: what several roundings can come to."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.operator import Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.fixed_point import wrap32
from verax.ops.common import as_dtype, broadcast_dims, draw
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.requantization import NARROW


@operator
class WeightedSumInteger(Elementwise):
    """(factors[0] x0 + factors[1] x1 + ... + offset) >> shift in 32 bits, clipped to low .. high.

    The inputs, which broadcast, are of 8 or 16 bits. Adding half of 2^shift is left to the offset.
    """

    factors: tuple[int, ...] = (1,)
    offset: int = 0
    shift: int = 0
    low: int = -128
    high: int = 127
    output_dtype: DType = DType.int8

    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int | None] = None
    exact = True
    jumps = True
    no_hypotheses = "its attributes at other values are what is tried"

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", tuple(self.factors))
        object.__setattr__(self, "output_dtype", as_dtype(self.output_dtype))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        types = [ctx.type(i) for i in range(len(ctx.types))]
        count = len(self.factors)
        ctx.require(count == len(types), f"{count} factors for {len(types)} inputs")
        for i, type_ in enumerate(types):
            ctx.require(type_.dtype in NARROW, f"input {i} is {type_}, not {', '.join(NARROW)}")
        for value in (*self.factors, self.offset):
            ctx.require(-(2**31) <= value < 2**31, f"{value} has more than 32 bits")
        ctx.require(0 <= self.shift < 32, f"the shift is {self.shift}, not 0 .. 31")
        to = self.output_dtype
        ctx.require(to in NARROW, f"output_dtype is {to}, not {', '.join(NARROW)}")
        info = np.iinfo(to.numpy)
        within = int(info.min) <= self.low <= self.high <= int(info.max)
        ctx.require(within, f"low {self.low} and high {self.high} are not ends within {to}")
        return [TensorType(to, broadcast_dims(ctx, [t.dims for t in types]))]

    def reference(self, ev: Evaluation, *xs: Any) -> Any:
        total: Any = np.int64(self.offset)
        for factor, x in zip(self.factors, xs, strict=True):
            total = total + factor * x.astype(np.int64)
        shifted = wrap32(total) >> self.shift
        return np.clip(shifted, self.low, self.high).astype(self.output_dtype.numpy)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        terms = [
            m.mul(m.convert(x, "int32"), m.const(factor, "int32"))
            for factor, x in zip(self.factors, xs, strict=True)
        ]
        total = m.add(functools.reduce(m.add, terms), m.const(self.offset, "int32"))
        shifted = m.shift_right(total, m.const(self.shift, "int32"))
        shifted = m.max(shifted, m.const(self.low, "int32"))
        return m.convert(m.min(shifted, m.const(self.high, "int32")), str(self.output_dtype))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x, y = draw(rng, (2, 3, 5), "int8", -128, 127), draw(rng, (2, 3, 5), "uint8", 0, 255)
        two = cls(factors=(202702, -136141), offset=2**17 - 36, shift=18, low=-100)
        yield Case(two, (x, y))
        yield Case(cls(factors=(77, 300), shift=9, high=0), (x, x[:, :1]), label="broadcast")
        with_offset = cls(
            factors=(5,), offset=-640, shift=3, low=0, high=250, output_dtype=DType.uint8
        )
        yield Case(with_offset, (y,), label="of one")
        wide = draw(rng, (4, 3), "int16", -(2**15), 2**15 - 1)
        word = cls(factors=(2**20, 7, -3), low=-9000, high=32000, output_dtype=DType.int16)
        yield Case(word, (wide, wide[:1], wide[:, 1:2]), label="wraps")
