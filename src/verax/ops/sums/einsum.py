"""Einstein summation: products of tensors summed over the labels that the output does not name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import DimLike, is_known
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.error_model import Rounding, sum_of_products
from verax.numerics.fma import ORDERED, fma
from verax.ops.common import broadcast_dims, declared_units, draw, same_dtype
from verax.ops.pointwise.elementwise import NUMERIC

DOTS = "..."


@operator
class Einsum(Operator):
    """Sum of products as `equation` says, e.g. "bij,bjk->bik"; letters label axes.

    Without "->" the output has the labels that occur once, in alphabetical order. "..." stands for
    further axes, which broadcast. A label repeated in one term takes the diagonal.
    """

    equation: str

    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int | None] = None
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "its attributes at other values are what is tried"

    def terms(self) -> tuple[list[list[str]], list[str]]:
        """Labels of each input and of the output; "..." is one label."""
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        inputs = [_labels(term) for term in left.split(",")]
        if arrow:
            return inputs, _labels(right)
        labels = [label for term in inputs for label in term]
        once = sorted(label for label in set(labels) if labels.count(label) == 1 and label != DOTS)
        return inputs, [DOTS] * (DOTS in labels) + once

    def axis_labels(self, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
        """A label for every axis of each input and of the output; those of "..." are "...0", ..."""
        terms, output = self.terms()
        spare = [r - len(t) + 1 if DOTS in t else 0 for t, r in zip(terms, ranks, strict=True)]
        names = [f"...{i}" for i in range(max(spare))]

        def named(term: list[str], own: list[str]) -> list[str]:
            return [n for label in term for n in (own if label == DOTS else [label])]

        inputs = [named(t, names[len(names) - n :]) for t, n in zip(terms, spare)]
        return inputs, named(output, names)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        dtype = same_dtype(ctx, range(len(ctx.types)), NUMERIC)
        inputs, output = self.terms()
        letters = {label for term in (*inputs, output) for label in term} - {DOTS}
        if not all(c.isascii() and c.isalpha() for c in letters):
            ctx.fail(f"labels must be letters: {self.equation!r}")
        if len(inputs) != len(ctx.types):
            ctx.fail(f"{self.equation!r} is for {len(inputs)} inputs, not {len(ctx.types)}")
        sizes: dict[str, DimLike] = {}
        ellipsis_dims: list[tuple[DimLike, ...]] = []
        for i, term in enumerate(inputs):
            dims = ctx.type(i).dims
            spare = len(dims) - (len(term) - (DOTS in term))
            if spare < 0 or term.count(DOTS) > 1 or (spare and DOTS not in term):
                ctx.fail(f"{''.join(term)!r} does not fit input {i}, {ctx.type(i)}")
            at = term.index(DOTS) if DOTS in term else len(term)
            ellipsis_dims.append(dims[at : at + spare])
            named = [*term[:at], *term[at + 1 :]]
            own: dict[str, DimLike] = {}
            for label, size in zip(named, (*dims[:at], *dims[at + spare :])):
                first = own.setdefault(label, size)
                if is_known(first) and is_known(size) and first != size:
                    ctx.fail(f"{label!r} is {first} and {size} in input {i}, {ctx.type(i)}")
                (wide,) = broadcast_dims(ctx, [(sizes.get(label, 1),), (size,)])
                sizes[label] = wide
        if len(set(output)) != len(output) or not set(output) <= {*sizes, DOTS}:
            ctx.fail(f"the output of {self.equation!r} repeats a label or has one of its own")
        shared = broadcast_dims(ctx, ellipsis_dims)
        if DOTS not in output and shared:
            ctx.fail(f"{self.equation!r} sums over '...': name the axes instead")
        output_dims = [shared if label == DOTS else (sizes[label],) for label in output]
        return [TensorType(dtype, sum(output_dims, ()))]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        terms, output = self.axis_labels([ctx.type(i).rank for i in range(len(ctx.types))])
        summed = tuple(a for a, label in enumerate(terms[index]) if label not in output)
        return InputGain(Gain.summed if summed else Gain.bounded, summed)

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int]:
        terms, output_labels = self.axis_labels([ctx.type(i).rank for i in range(len(ctx.types))])
        labels = {terms[index][a] for a in axes}
        return frozenset(a for a, label in enumerate(output_labels) if label in labels)

    def reference(self, ev: Evaluation, *inputs: Any) -> Any:
        return self._sum(inputs)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """Two inputs of float32 or float64: one FMA per product, from +0; the summed labels run in
        row-major order of their first appearance. Other inputs of floats: in float64 products from
        left to right, added to +0 in that order, and rounded once.
        """
        if inputs[0].dtype not in ORDERED:
            return super().canonical(ev, *inputs)
        terms, output = self.axis_labels([x.ndim for x in inputs])
        if not products_in_order(terms):
            return self._in_float64(inputs, terms, output).astype(inputs[0].dtype)
        summed = summed_labels(terms, output)
        a, b = (_aligned(x, t, output + summed) for x, t in zip(inputs, terms))
        sizes = np.broadcast_shapes(a.shape[len(output) :], b.shape[len(output) :])
        acc = np.zeros(np.broadcast_shapes(a.shape[: len(output)], b.shape[: len(output)]), a.dtype)
        for at in np.ndindex(*sizes):
            acc = fma(_at(a, at), _at(b, at), acc)
        return acc

    def _in_float64(
        self, inputs: Sequence[np.ndarray], terms: Sequence[list[str]], output: list[str]
    ) -> np.ndarray:
        """See `canonical`."""
        own = [list(dict.fromkeys(t)) for t in terms]
        summed = summed_labels(own, output)
        if len(inputs) == 1 and not summed:  # a move, which keeps the sign of zero
            return _aligned(_diagonal(inputs[0], terms[0]), own[0], output)
        factors = [
            _aligned(_diagonal(x.astype(np.float64), t), o, output + summed)
            for x, t, o in zip(inputs, terms, own)
        ]
        shape = np.broadcast_shapes(*(f.shape for f in factors))
        total = np.zeros(shape[: len(output)])
        for at in np.ndindex(*shape[len(output) :]):
            total += reduce(np.multiply, [_at(f, at) for f in factors])
        return total

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        if not ev.outputs[0].dtype.is_float:
            return [None]
        absolute = self._sum([np.abs(x) for x in inputs])
        squares = self._sum([x * x for x in inputs])
        products = self._sum([np.ones_like(x) for x in inputs])
        n = products + max(0, len(inputs) - 2)
        return [sum_of_products(outputs[0], absolute, squares, n)]

    def _sum(self, inputs: Sequence[Any]) -> Any:
        terms, output = self.terms()
        equation = ",".join(map("".join, terms)) + "->" + "".join(output)
        # A product of sums is not the sum of products where one is infinite.
        finite = all(np.isfinite(np.asarray(x, np.float64)).all() for x in inputs)
        return np.einsum(equation, *inputs, optimize=len(inputs) > 1 and finite)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        cases: list[tuple[str, list[tuple[int, ...]]]] = [
            ("ij,jk->ik", [(3, 5), (5, 4)]),
            ("bij,bjk->bik", [(2, 3, 19), (2, 19, 4)]),
            ("ij , jk", [(3, 5), (5, 4)]),
            ("bhid,bhjd->bhij", [(2, 3, 4, 7), (2, 3, 5, 7)]),
            ("...ij,...kj->...ki", [(2, 1, 3, 5), (2, 4, 6, 5)]),
            ("ij->ji", [(3, 5)]),
            ("ij->i", [(3, 5)]),
            ("ii->i", [(4, 4)]),
            ("bii", [(2, 3, 3)]),
            ("i,j->ij", [(3,), (4,)]),
            ("ij,jk->k", [(3, 5), (5, 4)]),
            ("ijk,il,jl->kl", [(2, 3, 5), (2, 4), (3, 4)]),
            ("ij,ij->", [(3, 5), (3, 5)]),
        ]
        for equation, shapes in cases:
            arrays = tuple(draw(rng, s) for s in shapes)
            yield Case(cls(equation=equation), arrays, label=equation)
        for dtype in ("float64", "int32"):
            pair = draw(rng, (3, 5), dtype), draw(rng, (5, 4), dtype)
            yield Case(cls(equation="ij,jk->ki"), pair, label=dtype)


def _labels(term: str) -> list[str]:
    before, ellipsis, after = term.partition(DOTS)
    return [*before, *([DOTS] if ellipsis else []), *after]


def products_in_order(terms: Sequence[Sequence[str]]) -> bool:
    """Whether float32 inputs of these axes are multiplied and added in an order that is promised:
    two of them, no label twice in one."""
    return len(terms) == 2 and all(len(set(t)) == len(t) for t in terms)


def summed_labels(terms: Sequence[Sequence[str]], output: Sequence[str]) -> list[str]:
    """Labels that are summed over, the slowest first."""
    labels = dict.fromkeys(label for term in terms for label in term)
    return [label for label in labels if label not in output]


def _aligned(x: np.ndarray, own: list[str], order: list[str]) -> np.ndarray:
    """x, whose axes are `own`, with its axes in `order`, of size 1 where it lacks one."""
    present = [label for label in order if label in own]
    sizes = dict(zip(own, x.shape))
    x = x.transpose([own.index(label) for label in present])
    return x.reshape([sizes.get(label, 1) for label in order])


def _diagonal(x: np.ndarray, labels: list[str]) -> np.ndarray:
    """x with one axis per label, where a label that was repeated takes the diagonal."""
    own = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return np.einsum(x, [own[label] for label in labels], list(own.values()))


def _at(x: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """x at `index` of its last axes; an axis of size 1 broadcasts."""
    sizes = x.shape[x.ndim - len(index) :]
    full_index: Any = (Ellipsis, *(i if n > 1 else 0 for i, n in zip(index, sizes)))
    return x[full_index]
