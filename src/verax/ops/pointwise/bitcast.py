"""BitCast: the same bits as another element type of the same width. Exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Inference, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.ops.common import as_dtype, draw
from verax.ops.pointwise.elementwise import ANY, NUMERIC, Elementwise


@operator
class BitCast(Elementwise):
    """The bits of X read as element type `to`, which has as many. A bool is a byte of 0 or 1, and
    no type is read as bool."""

    to: DType = DType.int32
    gains = (Gain.unbounded,)
    exact = True
    dtypes = ANY
    no_hypotheses = "its attributes at other values are what is tried"

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", as_dtype(self.to))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        if x.dtype.itemsize != self.to.itemsize:
            ctx.fail(f"{x.dtype} and {self.to} have not the same number of bits")
        if self.to is DType.bool_ and x.dtype is not DType.bool_:
            ctx.fail(f"{x.dtype} is not read as bool: its bits may be neither true nor false")
        return (x.with_dtype(self.to),)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        declared = ev.inputs[0]
        assert declared is not None
        with np.errstate(all="ignore"):
            stored = np.asarray(x).astype(declared.dtype.numpy)
            y = stored.view(self.to.numpy)
            return y.astype(ev.work) if self.to.is_float else y

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        x = xs[0]
        if m.dtype(x) == str(self.to):
            return x
        if m.dtype(x) == "bool":
            return m.convert(x, str(self.to))
        return m.bitcast(x, str(self.to))

    def promised(self, m: Arith[Any], *xs: Any) -> Any:
        return self.compute(m, *xs)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for source in ANY:
            x = draw(rng, (2, 3, 5), source, -300.0, 300.0)
            for to in NUMERIC:
                if to.itemsize != source.itemsize:
                    continue
                bits = x
                if to.is_float and not source.is_float:
                    # Bits of ordinary numbers: those of integers nearby are all subnormal.
                    bits = draw(rng, (2, 3, 5), to, -300.0, 300.0).view(source.numpy)
                yield Case(cls(to=to), (bits,), label=f"{source} to {to}")
