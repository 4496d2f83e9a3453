"""A product of matrices that is computed by Strassen's algorithm, one level. O3 chooses it.

It means what `MatMul` means; only the bits that it promises, and how far they may err, are its own.
No file format has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.gains import InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics import strassen
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import KAPPA, TINY, Rounding, U
from verax.ops.common import draw
from verax.ops.sums.linear import MatMul, multiply_in_order


@operator
class StrassenMatMul(Operator):
    """a [..., m, k] @ w [k, n] with even k and n, in halves of k, n, and the rows of a.

    Each item of a batch, which is a's first axis if there are more than two, is taken by itself:
    its result does not depend on the others. All other rows are taken together, brought to one size
    by powers of two (`numerics.strassen`): a row errs as it is large itself, zeros give zeros, and
    infinities and NaN stay in their rows. The upper half of an odd number has one more; the lower
    one gets a row of zeros.
    """

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 2
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    @property
    def plain(self) -> MatMul:
        """The product that it stands for."""
        return MatMul()

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        a, w = ctx.type(0), ctx.type(1)
        ctx.require(a.dtype is DType.float32, "only float32 has this algorithm")
        ctx.require(a.rank >= 2, f"the left factor is {a}; it needs rows and columns")
        even = w.rank == 2 and all(isinstance(d, int) and d % 2 == 0 and d for d in w.dims)
        ctx.require(even, f"the right factor is {w}; it needs an even number of rows and columns")
        return self.plain.infer(ctx)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return self.plain.gain(ctx, index)

    def reference(self, ev: Evaluation, a: Any, w: Any) -> Any:
        return self.plain.reference(ev, a, w)

    def canonical(self, ev: Evaluation, a: Any, w: Any) -> Any:
        """The factors' rows and columns scaled; sums of quarters, rounded; seven products, each a
        sum over half of k, ascending, from +0, one FMA per product; these are added up in ascending
        order, rounded after each addition; the scales undone, the columns' first. Rows that are not
        finite by `numerics.strassen.not_finite_row`.
        """
        m = NumpyArith()
        (rows, back), (weights, column) = strassen.scaled_left(_rows(a)), strassen.scaled_right(w)
        quarters = strassen.quarters(rows)
        with np.errstate(all="ignore"):
            right = strassen.right_factors(weights)
            products = [
                multiply_in_order(strassen.left_factor(m, p, quarters), right[p])
                for p in range(strassen.PRODUCTS)
            ]
            y = strassen.unscaled(strassen.combined_products(products), back, column)
        for at in zip(*np.nonzero(~np.isfinite(back[..., 0])), strict=True):
            y[at] = strassen.not_finite_row(items(a)[at], np.sign(w))
        return _results(y, a)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Roundings of the scaled factors, of the products' sums and of adding them up.

        The bound takes all magnitudes through the sums, as Higham does for norms ("Accuracy and
        Stability of Numerical Algorithms", second edition, theorem 23.2), and counts the roundings
        that one term goes through: each quarter of the result bears the errors of all products
        that are added up to it. sigma takes squares instead, as independent roundings add.
        """
        a, w = (np.asarray(x) for x in inputs)
        (rows, back), (columns, column) = (
            strassen.scaled_left(np.asarray(_rows(a), np.float32)),
            strassen.scaled_right(np.asarray(w, np.float32)),
        )
        scale = np.where(np.isfinite(back), back, 0).astype(np.float64) * column
        n, rows, columns = w.shape[0] // 2, rows.astype(a.dtype), columns.astype(w.dtype)
        sizes, weights = (strassen.quarters(np.abs(x)) for x in (rows, columns))
        left, right = strassen.quarters(rows), strassen.right_factors(columns)
        m = NumpyArith()
        sums, variances, bounds = [], [], []
        for p in range(strassen.PRODUCTS):
            u, v = strassen.left_factor(m, p, left), right[p]
            total, squares = np.matmul(u, v), np.matmul(u * u, v * v)
            sums.append(total)
            variances.append(n * total**2 / 3 + squares * (n / 6 + 3))
            bounds.append(
                np.matmul(
                    sum(sizes[i] for i, _ in strassen.LEFT[p]),
                    sum(weights[i] for i, _ in strassen.RIGHT[p]),
                )
            )
        quarter_errors: list[tuple[np.ndarray, np.ndarray]] = []
        for terms in strassen.OUTPUT:
            total, size, variance = (np.zeros(()) for _ in range(3))
            for i, (p, sign) in enumerate(terms):
                total = total + sign * sums[p]
                variance = variance + variances[p] + (total**2 if i else 0.0)
                size = size + bounds[p]
            quarter_errors.append((variance, size))
        variance, size = (
            _results(_block_matrix([errors[i] for errors in quarter_errors]) * scale ** (2 - i), a)
            for i in (0, 1)
        )
        y = np.abs(outputs[0])
        steps = n + 2 + 4  # a sum, its factors, adding up
        sigma = KAPPA * U * np.sqrt(variance + y * y)
        return [Rounding(sigma, 1.01 * U * (steps * size + y) + 16 * steps * TINY)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        shapes = {
            "few": ((3, 6), (6, 4)), "odd rows": ((2, 5, 7, 10), (10, 34)),
            "one row": ((1, 14), (14, 32)), "blocks": ((1, 38, 70), (70, 96)),
            "odd rows, blocks": ((3, 13, 36), (36, 64)), "more axes": ((2, 3, 5, 38), (38, 32)),
        }  # fmt: skip
        for label, (a, w) in shapes.items():
            yield Case(cls(), (draw(rng, a, "float32"), draw(rng, w, "float32")), label=label)


def items(a: np.ndarray) -> np.ndarray:
    """[items, rows, k]: what is taken by itself, of a factor or a result [..., m, k]."""
    of = 1 if a.ndim > 2 else 0
    return a.reshape(math.prod(a.shape[:of]), math.prod(a.shape[of:-1]), a.shape[-1])


def _rows(a: np.ndarray) -> np.ndarray:
    """`items`, with a row of zeros each if their rows are odd."""
    rows = items(a)
    return np.pad(rows, ((0, 0), (0, rows.shape[1] % 2), (0, 0)))


def _results(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    """y [items, rows, n], without rows added, in the shape that the product has."""
    return y[:, : items(a).shape[1]].reshape(*a.shape[:-1], y.shape[-1])


def _block_matrix(quarters: Sequence[np.ndarray]) -> np.ndarray:
    return np.block([list(quarters[:2]), list(quarters[2:])])
