"""Cast: the same values as another element type. Exact: the rounding is the operator's meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.dim import equal
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.formats import FORMATS
from verax.numerics.narrow import ROUND_MODES, clipped, power
from verax.ops.common import as_dtype, as_exact, draw
from verax.ops.pointwise.elementwise import ANY, STORED, Elementwise

_NUMPY = NumpyArith()


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of `narrow` is a number of `wide`."""
    if narrow is DType.bool_ or wide is narrow:
        return True
    if wide.is_float and wide.is_narrow:
        return False
    if wide.is_float and narrow.is_float:
        a, b = FORMATS[str(wide)], FORMATS[str(narrow)]
        return a.precision >= b.precision and a.max_exponent >= b.max_exponent
    if narrow.is_float:
        return False
    low, high = narrow.ends
    if wide.is_float:
        return max(-low, high).bit_length() - (low < 0) <= FORMATS[str(wide)].precision and (
            wide is not DType.float16 or narrow.itemsize == 1
        )
    return wide is not DType.bool_ and wide.ends[0] <= low and high <= wide.ends[1]


def has_saturation(to: DType) -> bool:
    """Whether `saturate` makes a difference: to floats of 8 bits; float4_e2m1fn always does."""
    return to.is_float and to.is_narrow and to is not DType.float4_e2m1fn


@operator
class Cast(Elementwise):
    """X as element type `to`.

    To a float: rounded to nearest even, infinite when out of range. Float to integer: truncated
    toward zero and saturated, NaN gives 0 (ONNX leaves both open), but to integers of 4 and 2 bits
    the low bits of that, as ONNX's examples have it. Integer to integer: the low bits. To bool: not
    equal to zero.

    saturate: whether what is beyond the largest number of a float of 8 bits becomes that number,
    infinities included, instead of an infinity, or of NaN where the type has none; of
    float4_e2m1fn it always does. round_mode: where numbers between two of float8_e8m0fnu go.
    """

    to: DType = DType.float32
    saturate: bool = True
    round_mode: str = "up"
    exact = True
    symbolic = True
    takes_narrow = True
    dtypes = STORED

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", as_dtype(self.to))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        ctx.one_of("round_mode", self.round_mode, ROUND_MODES)
        return (ctx.type(0).with_dtype(self.to),)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return InputGain(Gain.proportional if self.to.is_float else Gain.unbounded)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        declared = ev.inputs[0]
        assert declared is not None
        source, x = declared.dtype, np.asarray(x)
        if x.dtype == object and not source.is_float:  # sizes
            if self.to is DType.bool_:
                return np.frompyfunc(lambda d: not equal(d, 0), 1, 1)(x)
            return x
        if self.to.is_float and holds(self.to, source):
            return as_exact(x, ev.work)
        if x.dtype == object:
            x = x.astype(np.float64)
        converted = self.compute(_NUMPY, x)
        return as_exact(converted, ev.work) if self.to.is_float else converted

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x, to = xs[0], self.to
        if to is DType.float8_e8m0fnu:
            return power(m, x, self.round_mode, self.saturate)
        if self.saturate and to.is_float and to.is_narrow:
            x = clipped(m, x, str(to))
        return m.convert(x, str(to))

    def promised(self, m: Arith[Any], *xs: Any) -> Any:
        return self.compute(m, *xs)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for source in ANY:
            x = draw(rng, (2, 3, 5), source, -300.0, 300.0)
            if source.is_float:
                x[1, 2, :4] = 2.5, -0.0, 1e30 if source is not DType.float16 else 6e4, 1 / 3
            for to in ANY:
                yield Case(cls(to=to), (x,), label=f"{source} to {to}")
        yield from cls._narrow_cases(rng)

    @classmethod
    def _narrow_cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 5), low=-9.0, high=9.0)
        x[1, 2, :4] = -0.0, 1e30, np.nan, 2.0**-9
        for narrow in (d for d in STORED if d.is_narrow):
            yield Case(cls(to=narrow), (x,), label=f"float32 to {narrow}")
            stored = cls(to=narrow).compute(_NUMPY, x)
            yield Case(cls(to=DType.float32), (stored,), label=f"{narrow} to float32")
        wide = draw(rng, (3, 7), "float64", -900.0, 900.0)
        yield Case(cls(to=DType.float8_e4m3fn, saturate=False), (wide,))
        yield Case(cls(to=DType.float8_e4m3fn), (wide,), label="saturated")
        yield Case(cls(to=DType.float8_e8m0fnu, saturate=False, round_mode="nearest"), (wide,))
        yield Case(cls(to=DType.float8_e5m2), (draw(rng, (3, 7), "int32", -90000, 90000),))
        yield Case(cls(to=DType.int8), (draw(rng, (3, 7), "int4"),), label="int4 to int8")
