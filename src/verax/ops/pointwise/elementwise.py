"""`Elementwise`: operators whose output element depends on one element of each input.

Not a family: it is the base of arithmetic, comparison, logic, rounding, transcendental,
activation, cast and where. A subclass states its float64 `reference` and, once more,
`compute(m, *xs)` over `verax.numerics.arith.Arith`: the canonical bits, from which both
the NumPy oracle and compiled code are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.operator import Case, Evaluation, Inference, Operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import PRIMITIVES, Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import KAPPA, Rounding
from verax.numerics.expr import Apply, Expr, Input, TracingArith, evaluate, nodes
from verax.numerics.formats import FORMATS
from verax.ops.common import (
    FLOATS,
    INTEGERS,
    aligned_axes,
    broadcast_dims,
    draw,
    rounding,
    same_dtype,
)

NUMERIC = FLOATS + INTEGERS
ANY = (*NUMERIC, DType.bool_)
STORED = tuple(DType)
"""Every element type, those included in which nothing is computed."""
_NUMPY = NumpyArith()


class Elementwise(Operator):
    """Base of elementwise operators with multi-directional broadcasting.

    dtypes: element types allowed; all inputs have the same. result: element type of the output
    (None: that of the inputs). sigma_units, bound_units: rounding in units of unit roundoff times
    `magnitude`; floor: absolute error that honest implementations make near zero.
    """

    dtypes: ClassVar[tuple[DType, ...]] = NUMERIC
    result: ClassVar[DType | None] = None
    sigma_units: ClassVar[float] = KAPPA
    bound_units: ClassVar[float] = 1.001
    floor: ClassVar[float] = 0.0
    case_dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    case_range: ClassVar[tuple[float, float]] = (-4.0, 4.0)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        present = [i for i in range(len(ctx.types)) if ctx.has(i) or i < self.min_inputs]
        dtype = same_dtype(ctx, present, self.dtypes)
        dims = broadcast_dims(ctx, [ctx.type(i).dims for i in present])
        return (TensorType(self.result or dtype, dims),)

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int]:
        return aligned_axes(axes, ctx.type(index), output)

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        """The canonical bits over `m`; omitted optional inputs are None.

        Raises TypeError for dtypes that have no canonical order and are left to the reference.
        """
        raise NotImplementedError

    def promised(self, m: Arith[Any], *xs: Any) -> Any:
        """`compute` with float16 and bfloat16 carried in float32 and rounded once at the end."""
        half_types = [
            m.dtype(x) for x in xs if x is not None and m.dtype(x) in ("float16", "bfloat16")
        ]
        if not half_types:
            return self.compute(m, *xs)
        wide = [
            m.convert(x, "float32") if x is not None and m.dtype(x) == half_types[0] else x
            for x in xs
        ]
        y = self.compute(m, *wide)
        return m.convert(y, half_types[0]) if m.dtype(y) == "float32" else y

    def expression(self, dtypes: Sequence[DType | str | None]) -> Expr | None:
        """The scalar meaning as an expression over Input(i), for inputs of `dtypes`.

        None for an omitted input. The result is None when these dtypes have no canonical
        expression (powers of integers, ...).
        """
        inputs = [None if d is None else Input(i, str(d)) for i, d in enumerate(dtypes)]
        try:
            expr = self.promised(TracingArith(), *inputs)
        except TypeError:
            return None
        named = [n for n in nodes(expr) if isinstance(n, Apply) and n.function not in PRIMITIVES]
        return expr if all(n.dtype in ("float32", "float64") for n in named) else None

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        expr = self.expression([None if t is None else t.dtype for t in ev.inputs])
        if expr is None:
            return super().canonical(ev, *inputs)
        out = np.asarray(evaluate(expr, _NUMPY, inputs))
        shape = np.broadcast_shapes(out.shape, *(x.shape for x in inputs if x is not None))
        return np.broadcast_to(out, shape)

    def magnitude(self, y: Any, *xs: Any) -> Any:
        """Size of what is rounded on the way to y (float64 arrays); |y| by default."""
        return np.abs(y)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        dtype = ev.outputs[0].dtype
        if self.exact or not dtype.is_float:
            return (None,)
        with np.errstate(all="ignore"):
            size = np.broadcast_to(self.magnitude(outputs[0], *inputs), np.shape(outputs[0]))
        return (rounding(dtype, size, self.sigma_units, self.bound_units, self.floor),)

    @classmethod
    def variants(cls) -> Iterator[Operator]:
        """The operator with every attribute away from its default at least once."""
        yield cls()

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        low, high = cls.case_range
        shapes = _case_shapes(cls.min_inputs)
        for op in cls.variants():
            for dtype in cls.case_dtypes:
                for group in shapes:
                    xs = tuple(draw(rng, s, dtype, low, high) for s in group)
                    yield Case(op, xs, label=dtype)


def _case_shapes(count: int) -> list[tuple[tuple[int, ...], ...]]:
    if count == 1:
        return [((2, 3, 5),), ((7,),)]
    if count == 2:
        return [((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (3, 1)), ((), (4, 3)), ((2, 1, 4), (3, 1))]
    return [((2, 3, 5),) * count, ((3, 1), (2, 1, 5), (), *(((5,),) * (count - 3)))]


class Binary(Elementwise):
    """Two inputs of one dtype."""

    min_inputs = 2
    max_inputs = 2


class Addition(Binary):
    """A plus or minus B: never more is rounded away than the smaller of the two is large, as the
    larger one is a number that could have been given itself."""

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        (rounding,) = super().error(ev, inputs, outputs)
        if rounding is None:
            return (None,)
        with np.errstate(all="ignore"):
            y = np.abs(np.asarray(outputs[0], np.float64))
            larger = np.maximum(*(np.abs(np.asarray(x, np.float64)) for x in inputs))
            # As float64 has it: what even float64 loses beside a mask of -3e38 is no error.
            smaller = np.abs(y - larger)
        spacing = FORMATS[str(ev.outputs[0].dtype)].smallest_subnormal
        limit = np.broadcast_to(smaller, rounding.sigma.shape) + spacing
        return (Rounding(np.fmin(rounding.sigma, limit), np.fmin(rounding.bound, limit)),)


def power_of_two(x: Any) -> np.ndarray:
    """Where the numbers are powers of two, of either sign: products with them are exact."""
    return np.asarray(np.abs(np.frexp(np.asarray(x, np.float64))[0]) == 0.5)
