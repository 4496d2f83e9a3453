"""Cast: the same values as another element type. Exact: the rounding is the operator's meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verax.ir.dim import equal
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.formats import FORMATS
from verax.ops.common import as_dtype, draw
from verax.ops.pointwise.elementwise import ANY, Elementwise

_NUMPY = NumpyArith()


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of `narrow` is a number of `wide`."""
    if narrow is DType.bool_ or wide is narrow:
        return True
    if wide.is_float and narrow.is_float:
        a, b = FORMATS[str(wide)], FORMATS[str(narrow)]
        return a.precision >= b.precision and a.max_exponent >= b.max_exponent
    if wide.is_float:
        return np.iinfo(narrow.numpy).bits - (narrow.numpy.kind == "i") <= (
            FORMATS[str(wide)].precision
        ) and (wide is not DType.float16 or narrow.itemsize == 1)
    return not narrow.is_float and np.can_cast(narrow.numpy, wide.numpy)


@operator
class Cast(Elementwise):
    """X as element type `to`.

    To a float: rounded to nearest even, infinite when out of range. Float to integer: truncated
    toward zero and saturated, NaN gives 0 (ONNX leaves both open). Integer to integer: the low
    bits. To bool: not equal to zero.
    """

    to: DType = DType.float32
    exact = True
    symbolic = True
    dtypes = ANY

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", as_dtype(self.to))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
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
            return _exact_float(x, ev.work)
        if x.dtype == object:
            x = x.astype(np.float64)
        found = _NUMPY.convert(x, str(self.to))
        return _exact_float(found, ev.work) if self.to.is_float else found

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        return m.convert(xs[0], str(self.to))

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


def _exact_float(x: np.ndarray, work: np.dtype) -> np.ndarray:
    """Numbers of a float format, or that fit into one, in the working dtype."""
    if work.kind == "O" and x.dtype != object:
        return _fractions(x)
    return x.astype(work)


def _fractions(x: np.ndarray) -> np.ndarray:
    to_fraction = np.frompyfunc(lambda v: Fraction(float(v)), 1, 1)
    return np.asarray(to_fraction(x.astype(np.float64)), dtype=object)
