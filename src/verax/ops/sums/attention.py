"""Scaled dot product attention: softmax(Q K^T scale + mask) V, heads of keys and values shared.

Its promised bits are those of its parts, each in its own canonical order: the product Q K^T, the
scale, the mask, Softmax, the product with V. So a network in which they stand apart has the bits of
one in which they are this operator; what a kernel gains is that scores need not stand in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import DimLike, is_known
from verax.ir.dim_forms import broadcasts
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import KAPPA, Rounding, U, sum_of_products
from verax.numerics.fma import ORDERED
from verax.numerics.reductions import LANES
from verax.ops.common import FLOATS, broadcast_dims, constant, declared_units, draw, same_dtype
from verax.ops.sums.linear import expect_equal, multiply_in_order
from verax.ops.sums.softmax import Softmax

PARTS = "qkvy"
"""Queries, keys, values, result."""


@operator
class Attention(Operator):
    """softmax(Q K^T * scale / divisor + mask) V over the last two axes, for every batch and head.

    Q [..., heads, n, d], K [..., shared, m, d], V [..., shared, m, e]; Y [..., heads, n, e]. The
    axes before are broadcast. Query head h reads head h // (heads / shared) of K and of V. With two
    axes there are no heads.

    mask: optional, broadcasts to [..., heads, n, m]; a float is added to the score, a bool keeps it
    where it is true and makes it `hidden` elsewhere. causal: query i is hidden from keys after i.
    masked_to_zero: a query all of whose scores are -inf, that sees nothing, gives zeros, not NaN
    (as in `Softmax`). nan_to_zero: every share that is NaN is 0, whatever it comes from.
    ignores_hidden: each query reads the values of its first keys alone, up to the last one that a
    bool mask of m columns and `causal` leave visible, in whole sixteens (`visible_keys`): what
    stands behind, as in the unused room of a cache, may be NaN. It needs `hidden` of -inf.
    heads_inside: letters of "qkvy" whose tensors have the axes [..., n, heads, features] instead.
    """

    scale: float = 1.0
    divisor: float = 1.0
    causal: bool = False
    hidden: float = -math.inf
    masked_to_zero: bool = False
    nan_to_zero: bool = False
    ignores_hidden: bool = False
    heads_inside: str = ""

    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 4

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        dtype = same_dtype(ctx, (0, 1, 2), FLOATS)
        rank = ctx.type(0).rank
        letters = set(self.heads_inside)
        ctx.require(
            letters <= set(PARTS) and len(letters) == len(self.heads_inside),
            f"heads_inside is {self.heads_inside!r}, not some letters of {PARTS!r}",
        )
        ctx.require(
            rank >= (3 if letters else 2) and ctx.type(1).rank == ctx.type(2).rank == rank,
            f"queries {ctx.type(0)}, keys {ctx.type(1)} and values {ctx.type(2)} need equal ranks, "
            f"{3 if letters else 2} at least",
        )
        q, k, v = (self._ordered(ctx.type(i).dims, PARTS[i]) for i in range(3))
        expect_equal(ctx, q[-1], k[-1], f"features of queries {ctx.type(0)} and keys {ctx.type(1)}")
        expect_equal(ctx, k[-2], v[-2], f"keys {ctx.type(1)} and values {ctx.type(2)}")
        heads: tuple[DimLike, ...] = q[-3:-2]
        for dims, description in ((k, "keys"), (v, "values")):
            for own, query_heads in zip(dims[-3:-2], heads):
                if is_known(own) and is_known(query_heads):
                    fits = own > 0 and query_heads % own == 0
                    ctx.require(
                        fits, f"{query_heads} heads of queries cannot share {own} of {description}"
                    )
        batch = broadcast_dims(ctx, [dims[:-3] for dims in (q, k, v)])
        if ctx.has(3):
            self._check_mask(ctx, (*batch, *heads, q[-2], k[-2]), dtype)
        return [TensorType(dtype, self._ordered((*batch, *heads, q[-2], v[-1]), "y"))]

    def _check_mask(self, ctx: Inference, scores: tuple[DimLike, ...], dtype: DType) -> None:
        mask = ctx.type(3)
        ctx.require(
            mask.dtype in (dtype, DType.bool_), f"a mask is {dtype} or bool, not {mask.dtype}"
        )
        fits = mask.rank <= len(scores) and all(
            broadcasts(own, expected) or not (is_known(own) and is_known(expected))
            for own, expected in zip(mask.dims[::-1], scores[::-1])
        )
        printed = ", ".join(map(str, scores))
        ctx.require(fits, f"the mask {mask} does not broadcast to the scores [{printed}]")

    def _ordered(self, dims: tuple[DimLike, ...], operand: str) -> tuple[DimLike, ...]:
        """The axes of a tensor with its heads before its rows, or back."""
        if operand not in self.heads_inside:
            return dims
        *batch, rows, heads, features = dims
        return (*batch, heads, rows, features)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index > 2:
            return InputGain(Gain.bounded)
        rank = ctx.type(index).rank
        keys = rank - (3 if "v" in self.heads_inside else 2)
        return InputGain(Gain.summed, (keys if index == 2 else rank - 1,))

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int] | None:
        return axes if index == 0 and not self.heads_inside else None

    def operands(self, *tensors: Any) -> tuple[Any, Any, Any]:
        """Q, K and V with heads before rows; K and V with a head for each of the queries', or one
        for all."""
        q, k, v = (
            np.swapaxes(x, -2, -3) if operand in self.heads_inside else x
            for x, operand in zip(tensors, PARTS)
        )
        if q.ndim == 2:
            return q, k, v
        query_heads = q.shape[-3]
        k, v = (
            x
            if x.shape[-3] in (1, query_heads)
            else np.repeat(x, query_heads // x.shape[-3], axis=-3)
            for x in (k, v)
        )
        return q, k, v

    def result(self, y: Any) -> Any:
        """What `operands` did, undone for the result."""
        return np.swapaxes(y, -2, -3) if "y" in self.heads_inside else y

    def masked(self, scores: Any, mask: Any, hidden: Any) -> Any:
        """Scores [..., n, m] with the mask added or applied, and what comes later hidden."""
        if mask is not None:
            scores = np.where(mask, scores, hidden) if mask.dtype == bool else scores + mask
        if self.causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, hidden)
        return scores

    def shares(self, ev: Evaluation, q: Any, k: Any, mask: Any) -> Any:
        """What each value contributes, [..., n, m], in the working arithmetic; Q and K as
        `operands` gives them."""
        factor, divisor = constant(ev, self.scale), constant(ev, self.divisor)
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * factor / divisor
        scores = self.masked(scores, mask, self.hidden)
        if not scores.size:
            return scores
        rows = self.softmax.along(scores.reshape(-1, scores.shape[-1]), ev.arith)
        return self.filled(rows.reshape(scores.shape))

    @property
    def softmax(self) -> Softmax:
        """What makes shares of scores."""
        return Softmax(masked_to_zero=self.masked_to_zero)

    def filled(self, shares: Any) -> Any:
        """Shares with 0 for NaN, where that is asked for."""
        return np.where(np.isnan(shares), shares.dtype.type(0), shares) if self.nan_to_zero else (
            shares
        )  # fmt: skip

    @property
    def reads_visible_alone(self) -> bool:
        """True if what is hidden behind the last visible key is not read."""
        return self.ignores_hidden and self.hidden == -math.inf

    def visible_keys(self, shape: tuple[int, ...], mask: Any) -> Any:
        """How many of its first keys each query reads, for scores of `shape` [..., n, m]: an array
        that broadcasts to [..., n]."""
        *_, queries, keys = shape
        if not self.reads_visible_alone:
            return np.full(1, keys)
        visible = np.ones((1, keys), np.bool_)
        if mask is not None and mask.dtype == bool and mask.shape[-1:] == (keys,):
            visible = mask
        if self.causal:
            visible = visible & np.tri(queries, keys, dtype=np.bool_)
        last = keys - 1 - np.argmax(visible[..., ::-1], axis=-1)
        last = np.where(visible.any(axis=-1), last, 0)
        return np.minimum(keys, (last // LANES + 1) * LANES)

    def weighted(self, multiply: Callable[[Any, Any], Any], shares: Any, v: Any, mask: Any) -> Any:
        """multiply(shares, v), of every query only the values that it reads."""
        read = self.visible_keys(shares.shape, mask)
        if not read.size:
            return multiply(shares, v)
        if read.max() == read.min():
            count = int(read.max())
            return multiply(shares[..., :count], v[..., :count, :])
        result: Any = 0.0
        for count in map(int, np.unique(read)):
            product = multiply(shares[..., :count], v[..., :count, :])
            result = np.where((read == count)[..., None], product, result)
        return result

    def reference(self, ev: Evaluation, *inputs: Any) -> Any:
        q, k, v = self.operands(*inputs[:3])
        shares = self.shares(ev, q, k, _mask(inputs))
        if np.isfinite(v).all():  # nothing times zero
            return self.result(np.matmul(shares, v))
        return self.result(self.weighted(np.matmul, shares, v, _mask(inputs)))

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """One FMA per feature, from +0, ascending; times the scale; by the divisor; the mask added;
        Softmax in its order; one FMA per key, from +0, ascending."""
        if inputs[0].dtype not in ORDERED:
            return super().canonical(ev, *inputs)
        q, k, v = self.operands(*inputs[:3])
        with np.errstate(all="ignore"):
            scores = multiply_in_order(q, np.swapaxes(k, -1, -2))
            scalar_type = scores.dtype.type
            scores = scores * scalar_type(self.scale) / scalar_type(self.divisor)
            scores = self.masked(scores, _mask(inputs), scalar_type(self.hidden))
            if scores.size:
                shares = self.softmax.promised(scores.reshape(-1, scores.shape[-1]))
                scores = self.filled(shares.reshape(scores.shape))
            return self.result(self.weighted(multiply_in_order, scores, v, _mask(inputs)))

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """The rounding of scores, as far as it reaches the result, of shares, and of the sums.

        With shares p, values v and result y, scores moved by d make the result differ by
        sum(p (exp(d) - 1) (v - y)) / sum(p exp(d)).
        """
        q, k, v = self.operands(*inputs[:3])
        mask, y = _mask(inputs), self.result(outputs[0])
        with np.errstate(all="ignore"):
            p = self.shares(ev, q, k, mask)
            if not p.size:
                return (sum_of_products(outputs[0], outputs[0], outputs[0], 0),)
            if self.ignores_hidden:
                v = np.where(np.isfinite(v), v, 0.0)
            scores = self._score_rounding(ev, q, k, mask)
            sigma, bound = (np.where(p > 0, field, 0.0) for field in (scores.sigma, scores.bound))
            below = np.where(p > 0, np.log(np.max(p, axis=-1, keepdims=True) / p), 0.0)
            size, units, max_units = self.softmax.sizes(
                below.reshape(-1, p.shape[-1]), p.reshape(-1, p.shape[-1])
            )
            own, tiny = U * size.reshape(p.shape), 2.0**-124
            weights = (p * sigma) ** 2
            spread = np.matmul(weights, v * v) - 2 * y * np.matmul(weights, v)
            spread = spread + y * y * np.sum(weights, axis=-1, keepdims=True)
            sums = sum_of_products(y, np.matmul(p, np.abs(v)), np.matmul(p * p, v * v), p.shape[-1])
            shifted_shares = p * np.expm1(bound)
            far = np.matmul(shifted_shares, np.abs(v)) + np.abs(y) * np.sum(
                shifted_shares, axis=-1, keepdims=True
            )
            far = far * np.exp(np.max(bound, axis=-1, keepdims=True))
            shared = np.matmul(max_units * own + tiny, np.abs(v))
            share_variance = np.matmul((units * own + tiny / 8) ** 2, v * v)
            total = np.sqrt(np.maximum(spread, 0.0) + share_variance + sums.sigma**2)
        return (Rounding(self.result(total), self.result(far + shared + sums.bound)),)

    def _score_rounding(self, ev: Evaluation, q: Any, k: Any, mask: Any) -> Rounding:
        """Of the scores, scaled and masked."""
        keys, divisor = np.swapaxes(k, -1, -2), float(constant(ev, self.divisor))
        scale = float(constant(ev, self.scale)) / divisor
        products = np.matmul(q, keys)
        absolute, squares = np.matmul(np.abs(q), np.abs(keys)), np.matmul(q * q, keys * keys)
        sum_rounding = sum_of_products(products, absolute, squares, q.shape[-1])
        scaled = products * scale
        sigma, bound = sum_rounding.sigma * abs(scale), sum_rounding.bound * abs(scale)
        roundings = [scaled] * ((self.scale != 1) + (self.divisor != 1))
        if mask is not None and mask.dtype != bool:
            roundings.append(np.where(np.isfinite(mask), scaled + mask, 0.0))
        for rounded in roundings:
            sigma = np.hypot(sigma, KAPPA * U * np.abs(rounded))
            bound = bound + 1.01 * U * np.abs(rounded)
        return Rounding(sigma, bound)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(
            *shapes: tuple[int, ...], dtype: str = "float32", kind: str = "", **fields: Any
        ) -> Case:
            arrays = [draw(rng, s, dtype, -2.0, 2.0) for s in shapes[:3]]
            for shape in shapes[3:]:
                mask = draw(rng, shape, kind or dtype)
                if kind:
                    mask[..., 0] = True  # a row that sees nothing is NaN
                arrays.append(mask)
            return Case(cls(**fields), tuple(arrays), label=f"{dtype} {kind}".strip())

        plain = (2, 3, 7, 5), (2, 3, 19, 5), (2, 3, 19, 6)
        yield case(*plain, scale=0.5)
        yield case(*plain, (3, 1, 19), divisor=2.2360680)
        yield case(*plain, (2, 1, 1, 19), scale=0.375)
        yield case(*plain, (7, 19), kind="bool", hidden=-1000.0)
        yield case(*plain, (3, 7, 1), kind="bool")
        yield case((7, 5), (19, 5), (19, 6), (7, 1))
        yield case((4, 7, 5), (2, 9, 5), (2, 9, 16), causal=True, scale=0.7)
        yield case((2, 6, 7, 16), (2, 1, 33, 16), (2, 3, 33, 4), scale=0.25)
        yield case((1, 2, 3, 5), (4, 2, 6, 5), (4, 2, 6, 32), (4, 1, 3, 6), kind="bool")
        yield case((2, 7, 4, 5), (2, 9, 2, 5), (2, 9, 2, 16), heads_inside="qkvy", scale=-1.5)
        unseen = case(*plain, (2, 1, 7, 19), kind="bool", nan_to_zero=True, scale=0.5)
        unseen.inputs[3][..., ::3, :] = False  # type: ignore[index]
        yield unseen
        yield case((2, 4, 7, 5), (2, 9, 4, 5), (2, 4, 9, 3), heads_inside="ky", causal=True)
        yield case(*plain, dtype="float16", scale=0.5, divisor=3.0)
        yield case(*plain, (7, 19), dtype="float64", scale=0.3)
        masked = case(*plain, (2, 1, 7, 19), kind="bool", masked_to_zero=True, scale=0.5)
        masked.inputs[3][0, :, ::3] = False  # type: ignore[index]
        yield masked
        cached = case((2, 4, 3, 8), (2, 2, 53, 8), (2, 2, 53, 16), (2, 1, 3, 53), kind="bool",
                      ignores_hidden=True)  # fmt: skip
        cached.inputs[3][..., 20:] = False  # type: ignore[index]
        yield cached
        yield case((3, 37, 5), (3, 37, 5), (3, 37, 6), causal=True, ignores_hidden=True)
        masked = case(*plain, (2, 1, 7, 19), masked_to_zero=True, scale=0.5)
        masked.inputs[3][1, :, 1::3] = -np.inf  # type: ignore[index]
        yield masked


def _mask(inputs: Sequence[Any]) -> Any:
    return inputs[3] if len(inputs) > 3 else None
