"""Products of two factors that are integers with a scale for every block of the shared axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import is_known
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import KAPPA, TINY, Rounding, U, sum_of_products
from verax.numerics.fma import fma
from verax.ops.common import draw, same_dtype

WEIGHTS = (DType.int8, DType.uint8)
LARGEST = 2**31 - 1
"""Of the sum of a block, in 32 bits."""


@operator
class BlockScaledMatMul(Operator):
    """y[..., n] = sum over blocks b of x_scale[..., b] w_scale[b, n] S[..., b, n], where S is the
    exact sum over the block's elements of x[..., b, i] (w[b size + i, n] - w_zero[b, n]).

    Inputs: x int8 [..., blocks, size]; x_scale float32
    [..., blocks, 1]; w int8 or uint8 [k, n], where k is at most blocks size (rows that are missing
    count as 0); w_scale float32 [blocks, n]; w_zero like w [blocks, n], 0 by default.

    Canonical order: from +0, blocks ascending, one multiply-add each of the sum as float32 and the
    product of both scales, rounded to float32.
    """

    min_inputs: ClassVar[int] = 4
    max_inputs: ClassVar[int | None] = 5
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "a pass makes it; the nodes that it replaces have them"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), (DType.int8,))
        same_dtype(ctx, (1, 3), (DType.float32,))
        same_dtype(ctx, (2, 4) if ctx.has(4) else (2,), WEIGHTS)
        x, w = ctx.type(0), ctx.type(2)
        ctx.require(x.rank >= 2, f"x is {x}, not blocks of elements")
        ctx.require(w.rank == 2, f"w is {w}, not a matrix")
        blocks, size = x.dims[-2:]
        k, n = w.dims
        if is_known(blocks) and is_known(size) and is_known(k):
            ctx.require(
                (blocks - 1) * size < k <= blocks * size,
                f"w has {k} rows, x {blocks} blocks of {size}",
            )
            ctx.require(size * 128 * 255 <= LARGEST, f"the sums of {size} elements leave 32 bits")
        expected = {1: (*x.dims[:-1], 1), 3: (blocks, n), 4: (blocks, n)}
        for index, dims in expected.items():
            if ctx.has(index):
                actual = ctx.type(index)
                ctx.require(actual.dims == dims, f"input {index} is {actual}, not of {dims}")
        return [TensorType(DType.float32, (*x.dims[:-2], n))]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        x, w = ctx.type(0), ctx.type(2)
        axes = {0: (x.rank - 2, x.rank - 1), 1: (x.rank - 2,)}
        return InputGain(Gain.summed, axes.get(index, tuple(range(w.rank - 1))))

    def reference(
        self, ev: Evaluation, x: Any, x_scale: Any, w: Any, w_scale: Any, w_zero: Any = None
    ) -> Any:
        sums = _sums(x, w, w_zero)
        scales = np.asarray(x_scale) * np.asarray(w_scale)
        return (sums * scales).sum(axis=-2)

    def canonical(
        self, ev: Evaluation, x: Any, x_scale: Any, w: Any, w_scale: Any, w_zero: Any = None
    ) -> Any:
        sums = _sums(x, w, w_zero, np.int64).astype(np.float32)
        total = np.zeros((*sums.shape[:-2], sums.shape[-1]), np.float32)
        with np.errstate(all="ignore"):
            for b in range(sums.shape[-2]):
                scale = x_scale[..., b, :] * w_scale[b]
                total = fma(sums[..., b, :], scale, total)
        return total

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """That of a sum with a term for each block, whose factors are rounded once more each; a
        product of scales that is subnormal, to a multiple of the smallest one."""
        x, x_scale, w, w_scale, w_zero = (*inputs, None)[:5]
        sums = _sums(x, w, w_zero)
        terms = np.abs(sums * (np.asarray(x_scale) * np.asarray(w_scale)))
        absolute, squares = terms.sum(axis=-2), (terms * terms).sum(axis=-2)
        order = sum_of_products(outputs[0], absolute, squares, terms.shape[-2])
        sigma = np.hypot(order.sigma, KAPPA * U * np.sqrt(2 * squares))
        below = TINY / 2 * np.abs(sums).sum(axis=-2)
        return [Rounding(sigma, order.bound + 2.001 * U * absolute + below)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(label: str, rows: tuple[int, ...], blocks: int, size: int, n: int,
                 kind: str, zero: bool, missing: int = 0) -> Case:  # fmt: skip
            x = draw(rng, (*rows, blocks, size), "int8", -128, 127)
            low, high = {"int8": (-128, 127), "uint8": (0, 255), "uint4": (0, 15)}[kind]
            stored = "int8" if kind == "int8" else "uint8"
            arrays = [
                x,
                draw(rng, (*rows, blocks, 1), low=0.001, high=0.1),
                draw(rng, (blocks * size - missing, n), stored, low, high),
                draw(rng, (blocks, n), low=-0.02, high=0.1),
            ]
            if zero:
                arrays.append(draw(rng, (blocks, n), stored, low, high))
            return Case(cls(), tuple(arrays), label=label)

        yield case("int8", (3,), 2, 5, 7, "int8", False)
        yield case("zero points", (2, 3), 4, 16, 19, "uint8", True)
        yield case("4 bits", (5,), 3, 32, 35, "uint4", True)
        yield case("rows missing", (2,), 3, 16, 5, "uint4", True, missing=9)
        yield case("many rows", (9,), 2, 64, 70, "uint4", True)


def _sums(x: Any, w: Any, w_zero: Any, work: type = np.float64) -> np.ndarray:
    """The exact sums of blocks, [..., blocks, n] of a type that holds them."""
    blocks, size = x.shape[-2:]
    k, n = w.shape
    wide = np.zeros((blocks * size, n), work)
    wide[:k] = w
    if w_zero is not None:
        wide -= np.repeat(np.asarray(w_zero, work), size, axis=0)
        wide[k:] = 0
    rows: np.ndarray = np.moveaxis(np.asarray(x, work).reshape(-1, blocks, size), 1, 0)
    sums = np.matmul(rows, wide.reshape(blocks, size, n))
    return np.moveaxis(sums, 0, 1).reshape(*x.shape[:-2], blocks, n)
