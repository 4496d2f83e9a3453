"""The arithmetics in which recurrent operators state one step: float64, promised bits, rounding.

A step is written once, over `StepOps`; value types differ. `Plain` is NumPy in the working dtype,
`Promised` the canonical order, `Noisy` carries the spread of honest rounding along: each
result's variance and hard bound, errors of different values taken as independent. Matrices and
vectors are arrays; only what depends on the sequence is a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from verax.ir.operator import Evaluation
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import KAPPA, TINY, Rounding, U, sum_of_products
from verax.numerics.expr import evaluate
from verax.numerics.fma import fma
from verax.ops.pointwise.elementwise import _NUMPY as NUMPY
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.sums.linear import multiply_in_order

V = TypeVar("V")
Array = Any


class StepOps(ABC, Generic[V]):
    """What one step of a recurrent operator is made of. Values are [..., batch, features]."""

    @abstractmethod
    def exact_input(self, x: Array) -> V:
        """An input of the operator: exact."""

    @abstractmethod
    def bias(self, first: Array, second: Array) -> V:
        """first + second, where sums of products start."""

    @abstractmethod
    def take(self, x: V, index: Any) -> V:
        """x[index]."""

    @abstractmethod
    def product(self, x: V, matrix: Array, start: V) -> V:
        """start + x @ matrix.T."""

    @abstractmethod
    def along(self, total: V, vector: Array, x: V) -> V:
        """total + vector * x: one more term of a sum that `product` gave."""

    @abstractmethod
    def mul(self, a: V, b: V) -> V: ...

    @abstractmethod
    def add(self, a: V, b: V) -> V: ...

    @abstractmethod
    def complement(self, a: V) -> V:
        """1 - a."""

    @abstractmethod
    def blend(self, z: V, a: V, b: V) -> V:
        """(1 - z) a + z b."""

    @abstractmethod
    def curve(self, op: Elementwise, x: V) -> V:
        """An activation."""

    @abstractmethod
    def clip(self, x: V, limit: float | None) -> V:
        """x held between -limit and limit."""

    @abstractmethod
    def choose(self, mask: Array, a: V, b: V | None) -> V:
        """a where mask, else b (None: 0)."""


class Plain(StepOps[Array]):
    """The meaning, in the working dtype of an evaluation."""

    def __init__(self, ev: Evaluation) -> None:
        self.ev = ev

    def exact_input(self, x: Array) -> Array:
        return x

    def bias(self, first: Array, second: Array) -> Array:
        return first + second

    def take(self, x: Array, index: Any) -> Array:
        return x[index]

    def product(self, x: Array, matrix: Array, start: Array) -> Array:
        return start + np.matmul(x, matrix.T)

    def along(self, total: Array, vector: Array, x: Array) -> Array:
        return total + vector * x

    def mul(self, a: Array, b: Array) -> Array:
        return a * b

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def complement(self, a: Array) -> Array:
        return 1 - a

    def blend(self, z: Array, a: Array, b: Array) -> Array:
        return self.add(self.mul(self.complement(z), a), self.mul(z, b))

    def curve(self, op: Elementwise, x: Array) -> Array:
        return op.reference(self.ev, x)

    def clip(self, x: Array, limit: float | None) -> Array:
        return x if limit is None else np.clip(x, -limit, limit)

    def choose(self, mask: Array, a: Array, b: Array | None) -> Array:
        return np.where(mask, a, np.zeros((), np.asarray(a).dtype) if b is None else b)


class Promised(Plain):
    """The canonical order, in float32 or float64: sums of products from their start, one FMA per
    product in ascending order of the features; everything else rounded operation by operation."""

    def product(self, x: Array, matrix: Array, start: Array) -> Array:
        flat = x.reshape(-1, x.shape[-1])
        shape = *x.shape[:-1], matrix.shape[0]
        begin = np.broadcast_to(start, shape).reshape(-1, matrix.shape[0])
        return multiply_in_order(flat, np.ascontiguousarray(matrix.T), begin).reshape(shape)

    def along(self, total: Array, vector: Array, x: Array) -> Array:
        return fma(vector, x, total)

    def complement(self, a: Array) -> Array:
        return a.dtype.type(1) - a

    def curve(self, op: Elementwise, x: Array) -> Array:
        expression = op.expression([str(x.dtype)])
        assert expression is not None
        return np.asarray(evaluate(expression, NUMPY, [x]))

    def clip(self, x: Array, limit: float | None) -> Array:
        if limit is None:
            return x
        bound = x.dtype.type(limit)
        return np.clip(x, -bound, bound)


@dataclass(frozen=True)
class ProductSum:
    """A sum of products that further terms may join, as one sum: its own rounding is not yet in.

    absolute, squares: of all terms, the bias among the absolute ones; carried, bounded: variance
    and bound of what the terms bring along.
    """

    absolute: Array
    squares: Array
    count: int
    bias: Array
    carried: Array
    bounded: Array

    def __getitem__(self, index: Any) -> ProductSum:
        terms = (self.absolute, self.squares, self.bias, self.carried, self.bounded)
        absolute, squares, bias, carried, bounded = (p[index] for p in terms)
        return ProductSum(absolute, squares, self.count, bias, carried, bounded)


@dataclass(frozen=True)
class Spread:
    """A value with the variance and the hard bound of its float32 error."""

    value: Array
    variance: Array
    bound: Array
    sum: ProductSum | None = None

    @classmethod
    def exact(cls, value: Array) -> Spread:
        return cls(value, np.zeros(np.shape(value)), np.zeros(np.shape(value)))


MOST_SLOPE = 1.2
"""No activation that has a minimum between its ends (Gelu, Swish, Mish, ...) is steeper."""


class Noisy(StepOps[Spread]):
    """The meaning in float64 with the rounding of float32 beside it (see NUMERICS: the sum of
    products, one rounded operation, an elementwise operator's own model)."""

    def __init__(self, ev: Evaluation) -> None:
        self.ev = ev

    def exact_input(self, x: Array) -> Spread:
        return Spread.exact(x)

    def bias(self, first: Array, second: Array) -> Spread:
        """A sum of two terms, which products will join."""
        total, none = first + second, np.zeros(np.shape(first))
        terms = ProductSum(np.abs(first) + np.abs(second), none, 1, total, none, none)
        return _summed(total, terms)

    def take(self, x: Spread, index: Any) -> Spread:
        selected = (x.value[index], x.variance[index], x.bound[index])
        return Spread(*selected, None if x.sum is None else x.sum[index])

    def product(self, x: Spread, matrix: Array, start: Spread) -> Spread:
        """The terms join those of the start: runtimes add them in any order."""
        transposed, before = matrix.T, start.sum
        assert before is not None
        sizes, value = np.abs(transposed), start.value + x.value @ transposed
        return _summed(
            value,
            ProductSum(
                before.absolute + np.abs(x.value) @ sizes,
                before.squares + (x.value * x.value) @ (transposed * transposed),
                before.count + len(transposed),
                np.broadcast_to(before.bias, value.shape),
                before.carried + x.variance @ (transposed * transposed),
                before.bounded + x.bound @ sizes,
            ),
        )

    def along(self, total: Spread, vector: Array, x: Spread) -> Spread:
        before, term = total.sum, vector * x.value
        assert before is not None
        return _summed(
            total.value + term,
            ProductSum(
                before.absolute + np.abs(term),
                before.squares + term * term,
                before.count + 1,
                before.bias,
                before.carried + vector * vector * x.variance,
                before.bounded + np.abs(vector) * x.bound,
            ),
        )

    def mul(self, a: Spread, b: Spread) -> Spread:
        carried = a.value**2 * b.variance + b.value**2 * a.variance + a.variance * b.variance
        bound = np.abs(a.value) * b.bound + np.abs(b.value) * a.bound + a.bound * b.bound
        return _rounded(a.value * b.value, carried, bound)

    def add(self, a: Spread, b: Spread) -> Spread:
        return _rounded(a.value + b.value, a.variance + b.variance, a.bound + b.bound)

    def complement(self, a: Spread) -> Spread:
        return _rounded(1 - a.value, a.variance, a.bound)

    def blend(self, z: Spread, a: Spread, b: Spread) -> Spread:
        """Also computed as a + z (b - a), which rounds in units of a where 1 - z is small."""
        value = (1 - z.value) * a.value + z.value * b.value
        apart = b.value - a.value
        carried = (
            (1 - z.value) ** 2 * a.variance
            + z.value**2 * b.variance
            + apart**2 * z.variance
            + z.variance * (a.variance + b.variance)
        )
        bound = (
            (np.abs(1 - z.value) + z.bound) * a.bound
            + (np.abs(z.value) + z.bound) * b.bound
            + np.abs(apart) * z.bound
        )
        size = np.abs(a.value) + np.abs(b.value)
        own = KAPPA * U * np.sqrt(value**2 + 2 * (z.value * apart) ** 2 + 0.5 * a.value**2)
        return Spread(value, carried + own**2, 1.01 * bound + 4 * U * (size + bound) + 4 * TINY)

    def curve(self, op: Elementwise, x: Spread) -> Spread:
        """An error as large as the activation makes one standard deviation to either side."""
        y = op.reference(self.ev, x.value)
        type_ = TensorType(DType.float32, np.shape(y))
        (own,) = op.error(Evaluation((type_,), (type_,)), [x.value], [y])
        root = np.sqrt(x.variance)
        ends = [op.reference(self.ev, x.value + side * root) for side in (-1, 1)]
        carried = np.maximum(np.abs(ends[0] - y), np.abs(ends[1] - y)) ** 2
        far = [op.reference(self.ev, x.value + side * x.bound) for side in (-1, 1)]
        bound = np.maximum(np.abs(far[0] - y), np.abs(far[1] - y))
        # Between its ends an activation may turn: at 0, or where it has its minimum.
        kink = np.abs(op.reference(self.ev, np.zeros(())) - y)
        bound = np.maximum(bound, np.where(np.abs(x.value) <= x.bound, kink, 0.0))
        if op.kind in ("Gelu", "Swish", "Mish", "HardSwish"):
            bound = np.maximum(bound, MOST_SLOPE * x.bound)
        if own is None:
            return Spread(y, carried, bound)
        # ONNX Runtime's RNN computes tanh x as 2 sigmoid(2 x) - 1.
        absolute = U * abs(getattr(op, "alpha", 1.0)) if op.kind.endswith("Tanh") else 0.0
        variance = carried + own.sigma**2 + (0.5 * absolute) ** 2
        return Spread(y, variance, bound + own.bound + 4 * absolute + 32 * U * bound)

    def clip(self, x: Spread, limit: float | None) -> Spread:
        if limit is None:
            return x
        y = np.clip(x.value, -limit, limit)
        root = np.sqrt(x.variance)
        ends = [np.abs(np.clip(x.value + side * root, -limit, limit) - y) for side in (-1, 1)]
        far = [np.abs(np.clip(x.value + side * x.bound, -limit, limit) - y) for side in (-1, 1)]
        # The limit itself is rounded to float32.
        own = np.where(np.abs(x.value) + x.bound >= limit, U * limit, 0.0)
        return Spread(y, np.maximum(*ends) ** 2 + (KAPPA * own) ** 2, np.maximum(*far) + own)

    def choose(self, mask: Array, a: Spread, b: Spread | None) -> Spread:
        b = b or Spread.exact(np.zeros(np.shape(a.value)))
        return Spread(
            np.where(mask, a.value, b.value),
            np.where(mask, a.variance, b.variance),
            np.where(mask, a.bound, b.bound),
        )


def _summed(value: Array, total: ProductSum) -> Spread:
    own = sum_of_products(value, total.absolute, total.squares, total.count, total.bias)
    growth = 1.001 * (total.count + 2) * U
    bound = own.bound + total.bounded * (1 + growth)
    return Spread(value, own.sigma**2 + total.carried, bound, total)


def _rounded(value: Array, carried: Array, bound: Array) -> Spread:
    """One rounded operation on what brings errors along."""
    own = (KAPPA * U * np.abs(value)) ** 2
    return Spread(value, carried + own, bound + 1.001 * U * (np.abs(value) + bound) + TINY)


def stack_roundings(spreads: Sequence[Spread], axis: int) -> Rounding:
    """`Rounding` of the values stacked along a new axis."""
    sigma = np.stack([np.sqrt(p.variance) for p in spreads], axis)
    return Rounding(sigma, np.stack([p.bound for p in spreads], axis))
