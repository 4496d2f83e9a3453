"""A 1x1 convolution that is computed by Strassen's algorithm, one level. O3 chooses it.

It means what `Conv` means; only the bits that it promises, and how far they may err, are its own.
No file format has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.gains import InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import Rounding
from verax.ops.common import draw
from verax.ops.sums.strassen import StrassenMatMul
from verax.ops.windows.convolution import Conv


@operator
class StrassenConv(Operator):
    """x [n, c, *spatial] by w [o, c, 1, ...] with even c and o, each image by itself: its pixels,
    in order, are the rows of a `StrassenMatMul`, its channels the terms."""

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    @property
    def plain(self) -> Conv:
        """The convolution that it stands for."""
        return Conv()

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, w = ctx.type(0), ctx.type(1)
        ctx.require(x.dtype is DType.float32, "only float32 has this algorithm")
        single = w.rank >= 3 and all(d == 1 for d in w.dims[2:])
        ctx.require(single, f"the weights are {w}; they need kernels of one position")
        even = all(isinstance(d, int) and d % 2 == 0 and d for d in w.dims[:2])
        ctx.require(even, f"the weights are {w}; they need even numbers of filters and channels")
        return self.plain.infer(ctx)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return self.plain.gain(ctx, index)

    def reference(self, ev: Evaluation, x: Any, w: Any) -> Any:
        return self.plain.reference(ev, x, w)

    def canonical(self, ev: Evaluation, x: Any, w: Any) -> Any:
        """As `StrassenMatMul` has it for the pixels of each image."""
        return _as_image(StrassenMatMul().canonical(ev, *_factors(x, w)), x)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """That of the product."""
        x, w = inputs
        (product_error,) = StrassenMatMul().error(ev, _factors(x, w), [_rows(outputs[0])])
        if product_error is None:
            return [None]
        return [Rounding(_as_image(product_error.sigma, x), _as_image(product_error.bound, x))]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        shapes = {
            "few": ((2, 4, 3), (6, 4, 1)), "odd pixels": ((2, 10, 3, 5), (34, 10, 1, 1)),
            "one pixel": ((3, 14, 1, 1), (32, 14, 1, 1)),
            "blocks": ((2, 64, 5, 6), (96, 64, 1, 1)),
            "odd pixels, blocks": ((1, 32, 7, 5), (64, 32, 1, 1)),
            "three axes": ((1, 6, 2, 3, 5), (4, 6, 1, 1, 1)),
        }  # fmt: skip
        for label, (x, w) in shapes.items():
            yield Case(cls(), (draw(rng, x, "float32"), draw(rng, w, "float32")), label=label)


def _rows(x: np.ndarray) -> np.ndarray:
    """[n, pixels, channels] of an image."""
    return np.moveaxis(x.reshape(*x.shape[:2], int(np.prod(x.shape[2:]))), 1, 2)


def _factors(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _rows(x), w.reshape(w.shape[:2]).T


def _as_image(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Rows [n, pixels, filters] as an image with x's spatial axes."""
    return np.moveaxis(rows, 2, 1).reshape(x.shape[0], rows.shape[2], *x.shape[2:])
