"""What operator families share: axes, broadcasting, rounding in a declared format, test data.

Not a family: no operator is declared here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verax.ir.assumptions import deciding
from verax.ir.dim import DimLike, is_known, maximum, same
from verax.ir.operator import Evaluation, Inference
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import Rounding, U, sum_of_products
from verax.numerics.formats import FORMATS

HALVES = (DType.float16, DType.bfloat16)
FLOATS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)
INTEGERS = tuple(d for d in DType if d.is_integer and not d.is_narrow)
"""Integers that are computed with."""
SIGNED = tuple(d for d in INTEGERS if d.numpy.kind == "i")


def normalize_axis(ctx: Inference, axis: int, rank: int, name: str = "axis") -> int:
    """`axis` in [0, rank); fails when it is outside [-rank, rank)."""
    if not -rank <= axis < rank:
        ctx.fail(f"{name} is {axis}, the tensor has rank {rank}")
    return axis % rank


def normalize_axes(
    ctx: Inference, axes: Iterable[int], rank: int, name: str = "axes"
) -> tuple[int, ...]:
    """`axes` in [0, rank), in the order given; fails when one is out of range or given twice."""
    normalized = tuple(normalize_axis(ctx, int(a), rank, name) for a in axes)
    if len(set(normalized)) != len(normalized):
        ctx.fail(f"{name} {normalized} names an axis twice")
    return normalized


def broadcast_dims(ctx: Inference, shapes: Sequence[tuple[DimLike, ...]]) -> tuple[DimLike, ...]:
    """NumPy's multi-directional broadcasting, with symbols.

    A symbol beside a number other than 1 must turn out to be that number or 1. Two different
    symbols give the larger one: they must be equal, or one of them 1.
    """
    rank = max((len(s) for s in shapes), default=0)
    if deciding(*(d for s in shapes for d in s)) is not None:
        columns = ([s[axis] for s in shapes if len(s) >= -axis] for axis in range(-rank, 0))
        return tuple(_broadcast(ctx, sizes) for sizes in columns)
    result: list[DimLike] = []
    for axis in range(-rank, 0):
        sizes = [s[axis] for s in shapes if len(s) >= -axis]
        numbers = {s for s in sizes if isinstance(s, int) and s != 1}
        if len(numbers) > 1:
            ctx.fail(
                "shapes do not broadcast: "
                + ", ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
            )
        if numbers:
            result.append(numbers.pop())
            continue
        wide: DimLike = 1
        for size in sizes:
            if size != 1 and size != wide:
                wide = size if wide == 1 else maximum(wide, size)
        result.append(wide)
    return tuple(result)


def _broadcast(ctx: Inference, sizes: Sequence[DimLike]) -> DimLike:
    """The size of an axis of these sizes; each comparison is decided (`ir.assumptions`)."""
    wide: DimLike = 1
    for size in sizes:
        if same(size, 1) or same(size, wide):
            continue
        if same(wide, 1) or wide == 1:
            wide = size
        elif size != 1:
            ctx.require(size == wide, f"shapes do not broadcast: {wide} and {size}")
            wide = size if isinstance(size, int) else wide
    return wide


def aligned_axes(axes: frozenset[int], operand: TensorType, output: TensorType) -> frozenset[int]:
    """The axes of `output` that `axes` of `operand`, which is broadcast to it, become."""
    return frozenset(a + output.rank - operand.rank for a in axes)


def same_dtype(ctx: Inference, indices: Iterable[int], allowed: Sequence[DType]) -> DType:
    """The one dtype of the given inputs; fails when they differ or it is not `allowed`."""
    types = [(i, ctx.type(i)) for i in indices]
    first = types[0][1].dtype
    for i, type_ in types:
        if type_.dtype != first:
            ctx.fail(f"input {i} is {type_.dtype}, input {types[0][0]} is {first}")
    if first not in allowed:
        ctx.fail(f"the element type {first} is not allowed, only {', '.join(allowed)}")
    return first


def as_dtype(value: object) -> DType:
    """A DType given as such or by name, for dtype attributes."""
    return value if isinstance(value, DType) else DType(str(value))


def constant(ev: Evaluation, value: float) -> Any:
    """A float attribute as a number of the working arithmetic.

    Attributes are float32 numbers (in ONNX and in compiled code) unless the tensor is float64.
    """
    first = ev.inputs[0]
    if first is None or first.dtype is not DType.float64:
        value = float(np.float32(value))
    return Fraction(value) if ev.work.kind == "O" else value


def as_exact(x: np.ndarray, work: np.dtype) -> np.ndarray:
    """Numbers of a float format, or that fit into one, in the working dtype."""
    if work.kind == "O" and x.dtype != object:
        return _fractions(x)
    return x.astype(work)


def _fractions(x: np.ndarray) -> np.ndarray:
    to_fraction = np.frompyfunc(lambda v: Fraction(float(v)), 1, 1)
    return np.asarray(to_fraction(x.astype(np.float64)), dtype=object)


def unit_roundoff(dtype: DType) -> float:
    """Unit roundoff of a float dtype."""
    return U if dtype is DType.float32 else FORMATS[str(dtype)].unit_roundoff


def rounding(
    dtype: DType, size: np.ndarray, sigma_units: float, bound_units: float, floor: float = 0.0
) -> Rounding:
    """Error in units of (unit roundoff of `dtype`) x `size`.

    size: what is rounded along the way, usually |y|. floor: an absolute error that is honest
    (results that an implementation flushes to zero), added to the bound.
    """
    u = unit_roundoff(dtype)
    size = np.abs(np.asarray(size, np.float64))
    spacing = FORMATS[str(dtype)].smallest_subnormal
    sigma = sigma_units * u * size + 0.3 * spacing + floor / 8
    return Rounding(sigma, bound_units * u * size + spacing + floor)


def sum_rounding(dtype: DType, y: Any, absolute: Any, squares: Any, n: Any) -> Rounding:
    """`sum_of_products` in the unit roundoff of `dtype`: y a sum of n terms, in any order.

    absolute, squares: sums of the terms' sizes and squares.
    """
    float32_rounding = sum_of_products(np.asarray(y), np.asarray(absolute), np.asarray(squares), n)
    ratio = unit_roundoff(dtype) / U
    tiny = (n + 2) * FORMATS[str(dtype)].smallest_subnormal
    return Rounding(
        float32_rounding.sigma * ratio + 0.3 * tiny, float32_rounding.bound * ratio + tiny
    )


def sum_error(dtype: DType, y: Any, xs: Sequence[Any], scale: float) -> Rounding:
    """A sum of inputs times `scale`, in any order."""
    terms = [np.asarray(x, np.float64) * scale for x in xs]
    absolute = functools.reduce(np.add, map(np.abs, terms))
    return sum_rounding(
        dtype, y, absolute, functools.reduce(np.add, map(np.square, terms)), len(terms)
    )


ErrorModel = Callable[[Any, Evaluation, Sequence[Any], Sequence[Any]], Sequence[Rounding | None]]


def declared_units(model: ErrorModel) -> ErrorModel:
    """Decorates an `error` written in float32 units: scales it to the outputs' declared dtypes."""

    @functools.wraps(model)
    def scaled(
        self: Any, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        roundings: list[Rounding | None] = []
        for error, type_ in zip(model(self, ev, inputs, outputs), ev.outputs):
            if error is not None and type_.dtype is not DType.float32:
                ratio = unit_roundoff(type_.dtype) / U
                spacing = FORMATS[str(type_.dtype)].smallest_subnormal
                error = Rounding(error.sigma * ratio + spacing / 2, error.bound * ratio + spacing)
            roundings.append(error)
        return roundings

    return scaled


def draw(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: DType | str = DType.float32,
    low: float = -4.0,
    high: float = 4.0,
) -> np.ndarray:
    """Test data in [low, high]: some values on a grid of quarters, so that ties and zeros occur."""
    dtype = as_dtype(dtype)
    if dtype is DType.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_integer:
        min_value, max_value = dtype.ends
        lo, hi = max(int(np.ceil(low)), min_value), min(int(high), max_value)
        if dtype.is_narrow:
            return rng.integers(lo, hi, shape, np.int8, endpoint=True).astype(dtype.numpy)
        return rng.integers(lo, hi, shape, dtype=dtype.numpy, endpoint=True)
    x = rng.uniform(low, high, shape)
    quarters = np.clip(np.round(x * 4) / 4, low, high)
    with np.errstate(over="ignore"):
        return np.asarray(np.where(rng.random(shape) < 0.25, quarters, x)).astype(dtype.numpy)


def static(dims: Sequence[DimLike]) -> bool:
    """Whether all sizes are numbers."""
    return all(is_known(d) for d in dims)


def type_of(dtype: DType, dims: Iterable[DimLike]) -> TensorType:
    return TensorType(dtype, tuple(dims))
