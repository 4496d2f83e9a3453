"""Reductions over axes: ReduceSum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare.

Every reduction is `final(combine over element(x))` with a combining rule (sum, max, min, prod);
the canonical order of combining is that of `numerics.reductions`. The axes are an optional input;
without it, or when it is empty, all axes are reduced, or none with `noop_with_empty_axes`. An
empty set gives the rule's neutral element; NaN wins in Max and Min.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import is_known, same
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics import reductions
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import Rounding
from verax.numerics.formats import FORMATS
from verax.ops.common import (
    draw,
    normalize_axes,
    rounding,
    same_dtype,
    sum_rounding,
)
from verax.ops.pointwise.arithmetic import truncated_quotient
from verax.ops.pointwise.elementwise import ANY, NUMERIC

Axes = tuple[int, ...]
_NUMPY = NumpyArith()


class Reduction(Operator):
    """Inputs data and, optionally, axes (a constant tensor of integers)."""

    keepdims: bool
    noop_with_empty_axes: bool
    min_inputs = 1
    max_inputs = 2
    dtypes: ClassVar[tuple[DType, ...]] = NUMERIC
    case_dtypes: ClassVar[tuple[str, ...]] = ("float32", "float16", "int32")
    case_range: ClassVar[tuple[float, float]] = (-4.0, 4.0)
    combine: ClassVar[str] = "sum"
    added_as_numpy: ClassVar[bool] = False
    """Whether float64 is added in NumPy's order, which is the same everywhere, and not that of
    `numerics.reductions`."""

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), self.dtypes)
        data, axes_value = ctx.type(0), ctx.value(1)
        if ctx.has(1) and axes_value is None:
            return (data.with_dims(self._unknown_axes(ctx)),)
        axes = normalize_axes(ctx, () if axes_value is None else axes_value.ravel(), data.rank)
        axes = self.reduced_axes(data.rank, axes)
        if self.keepdims:
            return (data.with_dims([1 if a in axes else d for a, d in enumerate(data.dims)]),)
        return (data.with_dims([d for a, d in enumerate(data.dims) if a not in axes]),)

    def _unknown_axes(self, ctx: Inference) -> list[Any]:
        """Sizes when only running tells the axes: their count must be known at least."""
        data, count = ctx.type(0), ctx.type(1).dims[0] if ctx.type(1).rank else 1
        if self.keepdims:
            return [ctx.fresh() for _ in data.dims]
        if not is_known(count):
            ctx.fail("axes are neither constant nor of known number, so the rank is not known")
        if count == 0:
            count = 0 if self.noop_with_empty_axes else data.rank
        return [ctx.fresh() for _ in range(data.rank - count)]

    def reduced_axes(self, rank: int, axes: Sequence[int] | np.ndarray | None) -> Axes:
        """The axes that are reduced, ascending, from the value of the axes input."""
        named = () if axes is None else tuple(int(a) for a in np.ravel(axes))
        distinct = tuple({a % rank for a in named if -rank <= a < rank})
        if len(distinct) != len(named):
            raise InputError(f"{named} are not different axes of a tensor of rank {rank}")
        if not distinct:
            return () if self.noop_with_empty_axes else tuple(range(rank))
        return tuple(sorted(distinct))

    def gain(self, ctx: Inference, index: int) -> InputGain:
        (gain,), is_static = self.gains, not ctx.has(1) or ctx.value(1) is not None
        return InputGain(
            gain, self.reduced_axes(ctx.type(0).rank, ctx.value(1)) if is_static else ()
        )

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int] | None:
        reduced = self.gain(ctx, index).axes
        if self.keepdims or not reduced:
            return super().moved_axes(ctx, index, axes, output)
        return frozenset(a - sum(b < a for b in reduced) for a in axes if a not in reduced)

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        """The meaning: x reduced over `axis`, axes kept."""
        raise NotImplementedError

    def reference(self, ev: Evaluation, x: Any, axes: Any = None) -> Any:
        axis = self.reduced_axes(np.ndim(x), axes)
        if not ev.outputs[0].dtype.is_float and ev.outputs[0].dtype is not DType.bool_:
            y = self.over_integers(ev, x, axis)
        else:
            y = self.over(ev, x, axis)
        y = np.asarray(y)
        return y if self.keepdims else np.squeeze(y, axis)

    def over_integers(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        """Integers: the float64 meaning truncated toward zero, unless overridden."""
        y = np.trunc(np.asarray(self.over(ev, x.astype(np.float64), axis), np.float64))
        info = np.iinfo(x.dtype)
        return np.clip(np.nan_to_num(y), info.min, info.max).astype(x.dtype)

    def element(self, m: Arith[Any], x: Any) -> Any:
        """What is combined, from each element of the input (float32 or float64)."""
        return x

    def final(self, m: Arith[Any], total: Any, count: int) -> Any:
        """The result from the combined elements (float32 or float64)."""
        return total

    def promised(self, x: np.ndarray, axis: Axes) -> np.ndarray:
        """The canonical result of float32 or float64, axes kept."""
        total = reductions.reduce(self.element(_NUMPY, x), axis, self.combine, keepdims=True)
        return np.asarray(self.final(_NUMPY, total, _count(x, axis)))

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        declared = ev.outputs[0].dtype
        wide = declared is DType.float64
        if not declared.is_float or (wide and self.added_as_numpy):
            return super().canonical(ev, *inputs)
        x = inputs[0].astype(np.float64 if wide else np.float32)
        axis = self.reduced_axes(x.ndim, inputs[1] if len(inputs) > 1 else None)
        y = _NUMPY.convert(self.promised(x, axis), str(declared))
        return y if self.keepdims else np.squeeze(y, axis)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        dtype, (x, *axes_input) = ev.outputs[0].dtype, inputs
        if self.exact or not dtype.is_float:
            return (None,)
        x = np.asarray(x, np.float64)
        axis = self.reduced_axes(x.ndim, axes_input[0] if axes_input else None)
        count = int(np.prod([x.shape[a] for a in axis], dtype=np.int64))
        y = np.asarray(outputs[0])
        with_all_axes = y.reshape([1 if a in axis else n for a, n in enumerate(x.shape)])
        with np.errstate(all="ignore"):
            unshaped = self.rounding_of(dtype, x, with_all_axes, axis, count)
        return (Rounding(unshaped.sigma.reshape(y.shape), unshaped.bound.reshape(y.shape)),)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        """Error model; y has the reduced axes kept."""
        raise NotImplementedError

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(op: Operator, dtype: str, shape: Axes, axes: Axes | None = None) -> Case:
            x = draw(rng, shape, dtype, *cls.case_range)
            if axes is None:
                return Case(op, (x,), label=dtype)
            return Case(op, (x, np.array(axes, np.int64)), constant=(1,), label=dtype)

        make: Any = cls
        for dtype in cls.case_dtypes:
            yield case(make(), dtype, (2, 3, 5))
            yield case(make(), dtype, (2, 3, 37, 4), (2,))
            yield case(make(keepdims=False), dtype, (2, 3, 5, 4), (-1, 1))
            yield case(make(), dtype, (2, 3, 4), ())
            yield case(make(noop_with_empty_axes=True), dtype, (2, 3, 4), ())
        yield case(make(keepdims=False), "float32", (3, 70), (1,))
        yield case(make(), "float32", (), None)


def _sum(x: Any, axis: Axes) -> Any:
    return np.sum(x, axis=axis, keepdims=True, dtype=x.dtype)


@operator
class ReduceSum(Reduction):
    """The sum; 0 over an empty set."""

    gains = (Gain.bounded,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    added_as_numpy = True

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return _sum(x, axis)

    def over_integers(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return _sum(x, axis)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        return sum_rounding(dtype, y, _sum(np.abs(x), axis), _sum(x * x, axis), count)


@operator
class ReduceMean(Reduction):
    """The sum divided by the number of elements; for integers truncated toward zero."""

    gains = (Gain.bounded,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    added_as_numpy = True

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return _sum(x, axis) / _count(x, axis)

    def over_integers(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return truncated_quotient(_sum(x, axis), np.array(_count(x, axis), x.dtype))

    def final(self, m: Arith[Any], total: Any, count: int) -> Any:
        return total if same(count, 1) else m.div(total, m.like(count, total))

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        x = x / max(count, 1)
        return sum_rounding(dtype, y, _sum(np.abs(x), axis), _sum(x * x, axis), count)


def _count(x: np.ndarray, axis: Axes) -> int:
    return int(np.prod([x.shape[a] for a in axis], dtype=np.int64))


class Extremum(Reduction):
    """Max or Min: exact; also on bool, where false < true."""

    gains = (Gain.bounded,)
    exact = True
    dtypes = ANY
    case_dtypes = ("float32", "float16", "int32", "bool")
    largest: ClassVar[bool]

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return self._extreme(x, axis, -np.inf if self.largest else np.inf)

    def over_integers(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        info = np.iinfo(x.dtype)
        return self._extreme(x, axis, info.min if self.largest else info.max)

    def _extreme(self, x: Any, axis: Axes, neutral: float) -> Any:
        if x.dtype == bool:
            return (np.any if self.largest else np.all)(x, axis=axis, keepdims=True)
        if _count(x, axis) == 0:  # no element: the neutral one
            shape = [1 if a in axis else n for a, n in enumerate(x.shape)]
            return np.full(shape, neutral, x.dtype)
        return (np.max if self.largest else np.min)(x, axis=axis, keepdims=True)


@operator
class ReduceMax(Extremum):
    """The largest element; -inf or the smallest integer over an empty set."""

    keepdims: bool = True
    noop_with_empty_axes: bool = False
    combine = "max"
    largest = True


@operator
class ReduceMin(Extremum):
    """The smallest element; inf or the largest integer over an empty set."""

    keepdims: bool = True
    noop_with_empty_axes: bool = False
    combine = "min"
    largest = False


@operator
class ReduceProd(Reduction):
    """The product; 1 over an empty set. Also of sizes."""

    gains = (Gain.bounded,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    combine = "prod"
    symbolic = True
    case_range = (-2.0, 2.0)
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return np.prod(x, axis=axis, keepdims=True, dtype=x.dtype)

    def over_integers(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return np.prod(x, axis=axis, keepdims=True, dtype=x.dtype)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        floor = count * FORMATS[str(dtype)].smallest_subnormal + 2.0**-126
        return rounding(dtype, y, np.sqrt(count), 1.001 * count, floor)


@operator
class ReduceSumSquare(Reduction):
    """The sum of squares."""

    gains = (Gain.summed,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    added_as_numpy = True

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return _sum(x * x, axis)

    def over_integers(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return _sum(x * x, axis)

    def element(self, m: Arith[Any], x: Any) -> Any:
        return m.mul(x, x)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        return sum_rounding(dtype, y, y, _sum(x**4, axis), count)


@operator
class ReduceL1(Reduction):
    """The sum of absolute values."""

    gains = (Gain.summed,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    added_as_numpy = True

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return _sum(np.abs(x), axis)

    def over_integers(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return _sum(np.abs(x), axis)

    def element(self, m: Arith[Any], x: Any) -> Any:
        return m.abs(x)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        return sum_rounding(dtype, y, y, _sum(x * x, axis), count)


@operator
class ReduceL2(Reduction):
    """The square root of the sum of squares."""

    gains = (Gain.summed,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    added_as_numpy = True

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return np.sqrt(_sum(x * x, axis))

    def element(self, m: Arith[Any], x: Any) -> Any:
        return m.mul(x, x)

    def final(self, m: Arith[Any], total: Any, count: int) -> Any:
        return m.sqrt(total)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        """d sqrt(S) = dS / (2 sqrt(S)), but never more than sqrt(|dS|) (squares may underflow)."""
        inner = sum_rounding(dtype, y * y, y * y, _sum(x**4, axis), count)
        last = rounding(dtype, y, 1.0, 1.001)
        sigma = np.minimum(inner.sigma / (2 * y), np.sqrt(inner.sigma))
        bound = np.minimum(inner.bound / np.where(y > 0, y, 0), np.sqrt(inner.bound))
        return Rounding(np.nan_to_num(sigma) + last.sigma, bound + last.bound)


@operator
class ReduceLogSum(Reduction):
    """The logarithm of the sum; -inf over an empty set."""

    gains = (Gain.unbounded,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    case_range = (0.25, 4.0)

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        return ev.arith.log(_sum(x, axis))

    def final(self, m: Arith[Any], total: Any, count: int) -> Any:
        return m.log(total)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        total = _sum(x, axis)
        inner = sum_rounding(dtype, total, _sum(np.abs(x), axis), _sum(x * x, axis), count)
        last = rounding(dtype, y, 2.0, 8.0)
        return Rounding(inner.sigma / np.abs(total) + last.sigma,
                        2 * inner.bound / np.abs(total) + last.bound)  # fmt: skip


@operator
class ReduceLogSumExp(Reduction):
    """log(sum(exp(X))), computed from the differences to the largest element."""

    gains = (Gain.bounded,)
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    case_range = (-8.0, 8.0)

    def over(self, ev: Evaluation, x: Any, axis: Axes) -> Any:
        top = _finite_maximum(x, axis)
        return ev.arith.log(_sum(ev.arith.exp(x - top), axis)) + top

    def promised(self, x: np.ndarray, axis: Axes) -> np.ndarray:
        """log(sum(exp(x - top))) + top; top is 0 where the largest element is infinite."""
        m = _NUMPY
        top = reductions.reduce(x, axis, "max", keepdims=True)
        top = np.where(np.isinf(top), x.dtype.type(0), top)
        total = reductions.reduce(m.exp(m.sub(x, top)), axis, "sum", keepdims=True)
        return m.add(m.log(total), top)

    def rounding_of(
        self, dtype: DType, x: np.ndarray, y: np.ndarray, axis: Axes, count: int
    ) -> Rounding:
        """exp's argument carries its own rounding, weighted by each term's share of the sum."""
        share = np.exp(x - y)
        carried = _sum(share * (np.abs(x) + np.abs(x - _finite_maximum(x, axis))), axis)
        size = np.abs(y) + np.abs(_finite_maximum(x, axis)) + carried + 1
        return rounding(dtype, size, 1.0, 8.0 + np.sqrt(count))


def _finite_maximum(x: np.ndarray, axis: Axes) -> np.ndarray:
    """The largest element, 0 where there is none or it is infinite; axes kept."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(top), top, np.where(np.isnan(top), top, 0.0))
