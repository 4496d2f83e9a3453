"""Matrix products: MatMul with NumPy's batching, and Gemm with its scalars and transposes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import DimLike, is_known
from verax.ir.dim_forms import broadcasts
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import Rounding, narrowed, sum_of_products
from verax.numerics.fma import ORDERED, fma
from verax.ops.common import (
    FLOATS,
    aligned_axes,
    broadcast_dims,
    constant,
    declared_units,
    draw,
    same_dtype,
)

ALLOWED = (*FLOATS, DType.int32, DType.int64, DType.uint32, DType.uint64)


@operator
class MatMul(Operator):
    """a @ b with NumPy's rules: the last two axes are matrices, the others broadcast; a vector is
    a row on the left, a column on the right, and its axis is missing from the result."""

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        dtype = same_dtype(ctx, (0, 1), ALLOWED)
        a, b = ctx.type(0), ctx.type(1)
        if not a.rank or not b.rank:
            ctx.fail(f"a scalar has no matrix product: {a} @ {b}")
        inner = b.dims[-2] if b.rank > 1 else b.dims[0]
        expect_equal(ctx, a.dims[-1], inner, f"{a} @ {b}")
        batch = broadcast_dims(ctx, [a.dims[:-2], b.dims[:-2]])
        rows = a.dims[-2:-1] if a.rank > 1 else ()
        columns = b.dims[-1:] if b.rank > 1 else ()
        return [TensorType(dtype, (*batch, *rows, *columns))]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        rank = ctx.type(index).rank
        return InputGain(Gain.summed, (max(rank - 2, 0) if index else rank - 1,))

    def reference(self, ev: Evaluation, a: Any, b: Any) -> Any:
        return np.matmul(a, b)

    def canonical(self, ev: Evaluation, a: Any, b: Any) -> Any:
        """One FMA per product, from +0, along the shared axis in ascending order."""
        if a.dtype not in ORDERED:
            return super().canonical(ev, a, b)
        y = multiply_in_order(a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None])
        y = y[..., 0, :] if a.ndim == 1 else y
        return y[..., 0] if b.ndim == 1 else y

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        a, b = inputs
        if not ev.outputs[0].dtype.is_float:
            return [None]
        a, b = narrowed(a, b)
        absolute, squares = np.matmul(np.abs(a), np.abs(b)), np.matmul(a * a, b * b)
        return [sum_of_products(outputs[0], absolute, squares, a.shape[-1])]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        shapes = [
            ((3, 5), (5, 4)), ((2, 3, 19), (2, 19, 4)), ((2, 1, 3, 5), (4, 5, 6)), ((5,), (5, 3)),
            ((2, 3, 5), (5,)), ((7,), (7,)), ((4, 5), (2, 3, 5, 6)), ((3, 5), (2, 5, 1)),
        ]  # fmt: skip
        for dtype in ("float32", "float64", "int32", "uint64"):
            for a, b in shapes if dtype == "float32" else shapes[:3]:
                yield Case(cls(), (draw(rng, a, dtype), draw(rng, b, dtype)), label=dtype)


@operator
class Gemm(Operator):
    """alpha * a' @ b' + beta * c; a' is a [m, k] or with trans_a its transpose, likewise b' [k, n].

    c is optional and broadcasts to [m, n].
    """

    alpha: float = 1.0
    beta: float = 1.0
    trans_a: bool = False
    trans_b: bool = False

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 3

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        dtype = same_dtype(ctx, range(3) if ctx.has(2) else range(2), ALLOWED)
        a, b = ctx.type(0), ctx.type(1)
        if a.rank != 2 or b.rank != 2:
            ctx.fail(f"both factors must be matrices, not {a} and {b}")
        rows, left = a.dims[::-1] if self.trans_a else a.dims
        right, columns = b.dims[::-1] if self.trans_b else b.dims
        expect_equal(ctx, left, right, f"{a} and {b} as {self}")
        if ctx.has(2):
            c = ctx.type(2)
            fits = c.rank <= 2 and all(
                broadcasts(d, want) or not (is_known(d) and is_known(want))
                for d, want in zip(c.dims[::-1], (columns, rows))
            )
            ctx.require(fits, f"c is {c} and does not broadcast to [{rows}, {columns}]")
        return [TensorType(dtype, (rows, columns))]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index == 2:
            return InputGain(Gain.added)
        transposed = self.trans_b if index else self.trans_a
        return InputGain(Gain.summed, (int(transposed == bool(index)),))

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int] | None:
        transposed = (self.trans_a, self.trans_b, False)[index]
        return None if transposed else aligned_axes(axes, ctx.type(index), output)

    def reference(self, ev: Evaluation, a: Any, b: Any, c: Any = None) -> Any:
        y = np.matmul(*self._factors(a, b))
        if ev.outputs[0].dtype.is_float:
            y = y * constant(ev, self.alpha)
            return y if c is None else y + c * constant(ev, self.beta)
        y = (y * self.alpha).astype(y.dtype) if self.alpha != 1 else y
        return y if c is None else y + (c if self.beta == 1 else (c * self.beta).astype(c.dtype))

    def canonical(self, ev: Evaluation, a: Any, b: Any, c: Any = None) -> Any:
        """One FMA per product in ascending order of k. beta * c (rounded) comes first, in place of
        +0, when alpha is 1; otherwise the sum is multiplied by alpha and beta * c added, each
        rounded.
        """
        if a.dtype not in ORDERED:
            return super().canonical(ev, a, b, c)
        a, b = self._factors(a, b)
        shape = a.shape[0], b.shape[1]
        alpha, beta = a.dtype.type(self.alpha), a.dtype.type(self.beta)
        scaled = None if c is None else np.broadcast_to(c if beta == 1 else c * beta, shape)
        if alpha == 1:
            return multiply_in_order(a, b, scaled)
        y = multiply_in_order(a, b) * alpha
        return y if scaled is None else y + scaled

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        a, b, c = (*inputs, None)[:3]
        if not ev.outputs[0].dtype.is_float:
            return [None]
        a, b = self._factors(a, b)
        alpha, beta = constant(ev, self.alpha), constant(ev, self.beta)
        bias = np.zeros(()) if c is None else beta * c
        a, b = narrowed(a, b)
        absolute = np.abs(alpha) * np.matmul(np.abs(a), np.abs(b)) + np.abs(bias)
        squares = alpha**2 * np.matmul(a * a, b * b)
        n = a.shape[1] + 2 * (alpha != 1) + (beta != 1)
        return [sum_of_products(outputs[0], absolute, squares, n, bias)]

    def _factors(self, a: Any, b: Any) -> tuple[Any, Any]:
        return a.T if self.trans_a else a, b.T if self.trans_b else b

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(dtype: str, c: tuple[int, ...] | None, k: int = 5, **attributes: Any) -> Case:
            op = cls(**attributes)
            a, b = (k, 3) if op.trans_a else (3, k), (4, k) if op.trans_b else (k, 4)
            arrays = [draw(rng, s, dtype) for s in ((a, b) if c is None else (a, b, c))]
            return Case(op, tuple(arrays), label=f"{dtype}, c {c}")

        for c in (None, (), (4,), (1, 4), (3, 1), (3, 4)):
            yield case("float32", c)
            yield case("float32", c, k=18, alpha=0.7, beta=-1.3)
        for trans_a, trans_b in ((False, True), (True, False), (True, True)):
            yield case("float32", (4,), trans_a=trans_a, trans_b=trans_b)
        yield case("float32", (3, 1), beta=0.25)
        yield case("float32", (4,), alpha=-2.5, beta=0.0)
        yield case("float64", (4,), alpha=0.3)
        yield case("int32", (4,), trans_b=True)
        yield case("int64", (3, 4), alpha=2.0, beta=3.0)


def expect_equal(ctx: Inference, left: DimLike, right: DimLike, name: str) -> None:
    """Fail when two sizes that must be equal are different numbers."""
    if is_known(left) and is_known(right) and left != right:
        ctx.fail(f"{name}: the shared axis has the sizes {left} and {right}")


def multiply_in_order(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """a [..., m, k] @ b [..., k, n] in their type, by one FMA per k, ascending, from `start` or
    +0."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    acc = np.zeros((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    if start is not None:
        acc = np.broadcast_to(start, acc.shape).astype(a.dtype)
    for k in range(a.shape[-1]):
        acc = fma(a[..., :, k : k + 1], b[..., k : k + 1, :], acc)
    return acc
