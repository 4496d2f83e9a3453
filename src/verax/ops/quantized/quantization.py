"""Quantization: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.

Quotients are rounded to the element type of the scale before they are rounded to integers: that is
the meaning. Other honest kernels divide in float64, or multiply with a rounded reciprocal, or add
the zero point before they round: what each may do near the edge between two integers is stated in
`decides`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.dim import DimLike, ceildiv, is_known
from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import NARROW, DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import KAPPA, Quantity, Rounding, U, relative
from verax.numerics.fixed_point import nearest
from verax.numerics.formats import FORMATS, round_to
from verax.numerics.narrow import clipped
from verax.ops.common import FLOATS, as_dtype, as_exact, draw, normalize_axis, rounding, same_dtype
from verax.ops.quantized.per_element import (
    Constants,
    Parametrized,
    dequantized,
    quantized,
    quantized_to_float,
)

HALVES: dict[str, Callable[[Any], Any]] = {"even": np.rint, "away": nearest}
UNITS = 4.0
"""Roundings of a quotient plus zero point, in units of its size: a scale that was derived from a
range, its reciprocal, the product, and the sum. Some kernels count from the low end of the range,
so that every number is as large as that."""
POWER = DType.float8_e8m0fnu
"""A type of scales alone."""
QUANTIZED = (
    *(DType.int8, DType.uint8, DType.int16, DType.uint16),
    *(d for d in DType if d in NARROW and d is not POWER),
)
_NUMPY = NumpyArith()


def _check_scale(ctx: Inference, axis: int, block_size: int) -> None:
    """Scale and zero point are scalars, one number per index of `axis`, or one per block of it."""
    x, scale = ctx.type(0), ctx.type(1)
    same_dtype(ctx, (1,), (*FLOATS, POWER))
    if ctx.has(2):
        zero = ctx.type(2)
        both_single = all(t.rank <= 1 and all(d == 1 for d in t.dims) for t in (zero, scale))
        if not both_single and (zero.rank != scale.rank or _differ(zero.dims, scale.dims)):
            ctx.fail(f"the zero point {zero} and the scale {scale} differ in shape")
    if all(d == 1 for d in scale.dims) and scale.rank <= 1:
        return
    axis = normalize_axis(ctx, axis, x.rank)
    if block_size == 0:
        ctx.require(scale.rank == 1, f"the scale {scale} is neither a scalar nor one-dimensional")
        size, expected = scale.dims[0], x.dims[axis]
    else:
        ctx.require(block_size > 0, f"block_size is {block_size}")
        ctx.require(scale.rank == x.rank, f"the scale {scale} has another rank than {x}")
        size, expected = scale.dims[axis], ceildiv(x.dims[axis], block_size)
        other_dims = [tuple(d for a, d in enumerate(t.dims) if a != axis) for t in (scale, x)]
        ctx.require(
            not _differ(*other_dims), f"the scale {scale} does not fit {x} beside axis {axis}"
        )
    if is_known(size) and is_known(expected) and size != expected:
        ctx.fail(f"the scale {scale} has {size} numbers along axis {axis} of {x}, not {expected}")


def _differ(left: Sequence[DimLike], right: Sequence[DimLike]) -> bool:
    """Whether two sizes that are both known differ."""
    return any(a != b for a, b in zip(left, right) if is_known(a) and is_known(b))


def _spread(parameter: Any, shape: tuple[int, ...], axis: int, block_size: int) -> Any:
    """Scale or zero point, shaped so that it broadcasts with a tensor of `shape`."""
    parameter = np.asarray(parameter)
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if block_size:
        index = np.arange(shape[axis]) // block_size
        return np.take(parameter, index, axis=axis)
    return parameter.reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))])


def _aligned(parameter: TensorType, x: TensorType, axis: int, block_size: int) -> bool:
    """True if a scale or zero point broadcasts with `x` as it is: a scalar, one number per index of
    the last axis, or one block that is the full axis."""
    if parameter.rank == 0 or not x.rank:
        return parameter.rank == 0
    axis %= x.rank
    if parameter.rank == 1 and (parameter.dims[0] == 1 or not block_size):
        return parameter.dims[0] == 1 or axis == x.rank - 1
    other_dims = [tuple(d for a, d in enumerate(t.dims) if a != axis) for t in (parameter, x)]
    return bool(block_size and parameter.dims[axis] == 1 and other_dims[0] == other_dims[1])


def _quantize(
    x: Any, scale: Any, zero: Any, to: DType, precision: DType, tie_rule: str = "even"
) -> np.ndarray:
    """saturate(round(x / scale) + zero), the quotient rounded to `precision`; NaN gives zero."""
    quotient = np.asarray(x, np.float64) / np.asarray(scale, np.float64)
    quotient = round_to(quotient, FORMATS[str(precision)])
    rounded = HALVES[tie_rule](np.nan_to_num(quotient, nan=0.0)) + np.asarray(zero, np.float64)
    return np.clip(rounded, *to.ends).astype(to.numpy)


def _quantize_to_float(
    x: Any, scale: Any, zero: Any, to: DType, precision: DType, saturate: bool
) -> np.ndarray:
    """x / scale + zero rounded to the narrow float `to`; quotient and sum to `precision` before."""
    form = FORMATS[str(precision)]
    zero = np.asarray(zero, np.float64)
    with np.errstate(all="ignore"):
        quotient = np.asarray(x, np.float64) / np.asarray(scale, np.float64)
        quotient = round_to(quotient, form)
        quotient = np.where(zero == 0, quotient, round_to(quotient + zero, form))
        clipped_quotient = clipped(_NUMPY, quotient, str(to)) if saturate else quotient
        return _NUMPY.convert(clipped_quotient, str(to)).astype(np.float64)


def _quantity(x: Any, scale: Any, zero: Any, units: float, ends: tuple[int, int]) -> Quantity:
    """x / scale + zero, with the rounding of both."""
    with np.errstate(all="ignore"):
        quotient = np.nan_to_num(np.asarray(x, np.float64) / scale, nan=0.0)
    low, high = map(float, ends)
    slack = units * (np.abs(quotient) + np.abs(zero) + (high - low))
    return Quantity(quotient + zero, slack, low, high, zero=zero)


def _is_zero(content: np.ndarray | None) -> bool:
    return content is not None and not content.astype(np.float64).any()


@operator
class QuantizeLinear(Parametrized):
    """saturate(round(x / y_scale) + y_zero_point).

    axis: of one-dimensional scales. block_size: elements of `axis` that share a scale, or 0.
    output_dtype: given or that of the zero point or uint8. precision: type of the quotient,
    by default that of the scale. halves: "even" or "away" (from zero), where a quotient half-way
    between two integers goes. saturate: as of Cast, where the result is a float of 8 or 4 bits: it
    is the quotient plus zero point, rounded to nearest even.
    """

    gains = (Gain.none, Gain.unbounded)
    axis: int = 1
    block_size: int = 0
    output_dtype: DType | None = None
    precision: DType | None = None
    halves: str = "even"
    saturate: bool = True
    min_inputs = 2
    max_inputs = 3
    takes_narrow = True
    exact = True
    no_derivative = "its results are integers, which jump"

    def __post_init__(self) -> None:
        for name in ("output_dtype", "precision"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_dtype(getattr(self, name)))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), (*FLOATS, DType.int32))
        ctx.one_of("halves", self.halves, HALVES)
        _check_scale(ctx, self.axis, self.block_size)
        ctx.require(self.precision in (None, *FLOATS), f"precision is {self.precision}")
        to = ctx.type(2).dtype if ctx.has(2) else self.output_dtype or DType.uint8
        ctx.require(to in QUANTIZED, f"{to} is no quantized type, only {', '.join(QUANTIZED)}")
        if self.output_dtype not in (None, to):
            ctx.fail(f"output_dtype is {self.output_dtype}, the zero point is {to}")
        return (ctx.type(0).with_dtype(to),)

    def reference(self, ev: Evaluation, x: Any, scale: Any, zero: Any = None) -> Any:
        declared = ev.inputs[1]
        assert declared is not None
        scale, zero = (
            _spread(0 if p is None else p, x.shape, self.axis, self.block_size)
            for p in (scale, zero)
        )
        precision, to = self._precision(declared.dtype), ev.outputs[0].dtype
        if to.is_float:
            quantized = _quantize_to_float(x, scale, zero, to, precision, self.saturate)
            return as_exact(quantized, ev.work)
        return _quantize(x, scale, zero, to, precision, self.halves)

    def _precision(self, scale: DType) -> DType:
        return self.precision or (DType.float32 if scale is POWER else scale)

    def per_element(self, m: Arith[Any], to: str, constants: Constants, *xs: Any) -> Any:
        x, scale, zero = (*xs, None)[:3]
        precision = str(self._precision(DType(m.dtype(scale))))
        if DType(to).is_float:
            zero = None if constants[2:] and _is_zero(constants[2]) else zero
            return quantized_to_float(m, x, scale, zero, to, precision, self.saturate)
        if (
            constants[1] is not None
            and (constants[1] == 1).all()
            and precision == m.dtype(x) == "float32"
        ):
            scale = None
        return quantized(m, x, scale, zero, to, precision, self.halves)

    def spread(self, parameter: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(_spread(parameter, shape, self.axis, self.block_size))

    def aligned(self, parameter: TensorType, x: TensorType) -> bool:
        return _aligned(parameter, x, self.axis, self.block_size)

    def decides(self, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
        x, scale, zero = (*inputs, None)[:3]
        declared, to = ev.inputs[1], ev.outputs[0].dtype
        assert declared is not None
        if to.is_float:
            return (None,)
        scale, zero = (
            np.asarray(
                _spread(0 if p is None else p, x.shape, self.axis, self.block_size), np.float64
            )
            for p in (scale, zero)
        )
        unit = FORMATS[str(self._precision(declared.dtype))].unit_roundoff
        return (_quantity(x, scale, zero, UNITS * unit, to.ends),)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Of a float: one number further, where the quotient lies within its rounding of the middle
        between two; None where none does. None for integers: see `decides`."""
        declared, to = ev.inputs[1], ev.outputs[0].dtype
        assert declared is not None
        if not to.is_float:
            return (None,)
        x, scale, zero = (*inputs, None)[:3]
        scale, zero = (
            np.asarray(
                _spread(0 if p is None else p, x.shape, self.axis, self.block_size), np.float64
            )
            for p in (scale, zero)
        )
        unit = FORMATS[str(self._precision(declared.dtype))].unit_roundoff
        with np.errstate(all="ignore"):
            real = np.asarray(x, np.float64) / scale + zero
            slack = UNITS * unit * (np.abs(real) + 2 * np.abs(zero))
            ends = [
                _quantize_to_float(real + side, 1.0, 0.0, to, DType.float64, self.saturate)
                for side in (-slack, slack)
            ]
            width = np.nan_to_num(ends[1] - ends[0], nan=0.0, posinf=np.inf)
        return (Rounding(width, width) if width.any() else None,)

    def divides_exactly(self, shape: tuple[int, ...], scale: Any) -> np.ndarray:
        """Where the scale is a power of two."""
        mantissa, _ = np.frexp(_spread(scale, shape, self.axis, self.block_size).astype(np.float64))
        return np.asarray(mantissa == 0.5)

    def ties(self, inputs: Sequence[Any]) -> Iterator[np.ndarray]:
        """What honest float32 kernels give where the quotient lies exactly half-way: divided or
        multiplied with the reciprocal, the zero point added after rounding or before."""
        x, scale, zero = (*inputs, None)[:3]
        scale, zero = (
            np.asarray(
                _spread(0 if p is None else p, x.shape, self.axis, self.block_size), np.float32
            )
            for p in (scale, zero)
        )
        x = np.asarray(x, np.float32)
        with np.errstate(all="ignore"):
            for quotient in (x / scale, x * (np.float32(1) / scale)):
                yield HALVES[self.halves](quotient.astype(np.float64)) + zero
                yield np.rint(quotient + zero)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 7), low=-40, high=40)
        scalar, zero = np.array(0.25, np.float32), np.array(-3, np.int8)
        yield Case(cls(), (x, scalar))
        yield Case(cls(), (x, scalar, zero))
        yield Case(cls(output_dtype=DType.int16), (x, scalar))
        ties = np.arange(-9, 9, dtype=np.float32) / 8
        yield Case(cls(halves="away"), (ties, scalar, zero), label="halves")
        yield Case(cls(precision=DType.float16), (x, scalar, zero))
        lines = draw(rng, (3,), low=0.125, high=0.5), np.array([3, 100, 200], np.uint8)
        yield Case(cls(), (x, *lines))
        last = draw(rng, (7,), low=0.125, high=0.5), np.arange(-3, 4).astype(np.int8)
        yield Case(cls(axis=-1), (x, *last))
        blocks = draw(rng, (2, 3, 3), low=0.125, high=0.5)
        yield Case(cls(axis=2, block_size=3), (x, blocks, np.full((2, 3, 3), 9, np.uint16)))
        wide = draw(rng, (2, 3, 7), low=-900.0, high=900.0)
        for to in (d for d in QUANTIZED if d.is_narrow):
            zero = np.ones((3,), to.numpy)
            yield Case(cls(), (wide, lines[0], zero), label=str(to))
        yield Case(cls(output_dtype=DType.float8_e4m3fn, saturate=False), (wide, scalar))
        powers = np.array([0.5, 4, 2], POWER.numpy)
        yield Case(cls(output_dtype=DType.float8_e5m2), (wide, powers), label="powers of two")
        yield Case(
            cls(output_dtype=DType.int4, axis=2, block_size=3), (x, blocks), label="blocks of int4"
        )


@operator
class DequantizeLinear(Parametrized):
    """(x - x_zero_point) x_scale. Attributes as in `QuantizeLinear`."""

    gains = (Gain.none, Gain.bounded)
    axis: int = 1
    block_size: int = 0
    output_dtype: DType | None = None
    min_inputs = 2
    max_inputs = 3
    takes_narrow = True
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"

    def __post_init__(self) -> None:
        if self.output_dtype is not None:
            object.__setattr__(self, "output_dtype", as_dtype(self.output_dtype))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0, 2) if ctx.has(2) else (0,), (*QUANTIZED, DType.int32))
        _check_scale(ctx, self.axis, self.block_size)
        to = self.output_dtype or ctx.type(1).dtype
        ctx.require(to in FLOATS, f"output_dtype is {to}, not a float type")
        return (ctx.type(0).with_dtype(to),)

    def reference(self, ev: Evaluation, x: Any, scale: Any, zero: Any = None) -> Any:
        declared = ev.inputs[0]
        assert declared is not None
        scale, zero = (
            _spread(0 if p is None else p, x.shape, self.axis, self.block_size)
            for p in (scale, zero)
        )
        return ((x if declared.dtype.is_float else x.astype(np.int64)) - zero) * scale

    def per_element(self, m: Arith[Any], to: str, constants: Constants, *xs: Any) -> Any:
        x, scale, zero = (*xs, None)[:3]
        if constants[2:] and DType(m.dtype(x)).is_float and _is_zero(constants[2]):
            zero = None
        return dequantized(m, x, scale, zero, to)

    def spread(self, parameter: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(_spread(parameter, shape, self.axis, self.block_size))

    def rows_by_scale(self, shape: tuple[int, ...], scale: np.ndarray, columns: int) -> int:
        """How many rows of a matrix whose columns are the axis `columns` share the scales of their
        columns, in groups of equal size; 0 where scales do not lie so."""
        rows = shape[1 - columns]
        if scale.size == 1 and scale.ndim <= 1:
            return rows
        if not self.block_size:
            return rows if self.axis % 2 == columns else 0
        return 0 if self.axis % 2 == columns or rows % self.block_size else self.block_size

    def aligned(self, parameter: TensorType, x: TensorType) -> bool:
        return _aligned(parameter, x, self.axis, self.block_size)

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """One product; int32 values may be rounded to float first, and those of fewer bits may be
        counted from the low end of their range: q scale + (low - zero) scale."""
        x, scale = inputs[:2]
        product_rounding = rounding(ev.outputs[0].dtype, outputs[0], 2 * KAPPA, 2.01)
        declared = ev.inputs[0]
        assert declared is not None
        if product_rounding is None or declared.dtype.is_float or declared.dtype.itemsize > 2:
            return (product_rounding,)
        low, high = map(float, declared.dtype.ends)
        width = np.abs(np.asarray(_spread(scale, x.shape, self.axis, self.block_size), np.float64))
        added = U * width * (high - low)
        return (
            Rounding(
                np.hypot(product_rounding.sigma, KAPPA * added), product_rounding.bound + 2 * added
            ),
        )

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x, scalar = draw(rng, (2, 3, 7), "uint8", 0, 255), np.array(0.3, np.float32)
        yield Case(cls(), (x, scalar))
        yield Case(cls(), (x, scalar, np.array(128, np.uint8)))
        yield Case(cls(output_dtype=DType.float16), (x, scalar))
        lines = draw(rng, (3,), low=0.125, high=0.5), np.array([3, 100, 200], np.uint8)
        yield Case(cls(), (x, *lines))
        yield Case(cls(axis=-1), (x.astype(np.int8), draw(rng, (7,), low=0.125, high=0.5)))
        blocks = draw(rng, (2, 3, 3), low=0.125, high=0.5)
        yield Case(cls(axis=2, block_size=3), (x, blocks, np.full((2, 3, 3), 9, np.uint8)))
        yield Case(cls(), (draw(rng, (4, 5), "int32", -(2**30), 2**30), scalar))
        for stored in (d for d in QUANTIZED if d.is_narrow):
            codes = draw(rng, (2, 3, 7), stored, -9.0, 9.0)
            yield Case(cls(), (codes, lines[0], np.ones((3,), stored.numpy)), label=str(stored))
            yield Case(cls(axis=2, block_size=3), (codes, blocks), label=f"blocks of {stored}")
        codes = draw(rng, (2, 3, 7), "float8_e5m2")
        powers = np.array([0.5, 4, 2], POWER.numpy)
        for to in (DType.float32, DType.float16, DType.bfloat16):
            yield Case(cls(output_dtype=to), (codes, powers), label=f"powers of two to {to}")


@operator
class DynamicQuantizeLinear(Operator):
    """uint8 values, their scale and zero point, chosen so that min(x, 0) .. max(x, 0) fits.

    The scale is computed in float32, each step rounded; it is 1 when x is all zero.
    """

    gains = (Gain.none,)
    no_derivative = "its results are integers, which jump"
    no_hypotheses = "it has no attributes; what holds for any operator is tried"

    @property
    def output_count(self) -> int:
        return 3

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        same_dtype(ctx, (0,), (DType.float32,))
        x = ctx.type(0)
        return (x.with_dtype(DType.uint8), x.with_dims(()), TensorType(DType.uint8, ()))

    def reference(self, ev: Evaluation, x: Any) -> Any:
        x = np.asarray(x, np.float32)
        low, high = np.float32(min(0.0, x.min(initial=0))), np.float32(max(0.0, x.max(initial=0)))
        scale = (high - low) / np.float32(255) if high > low else np.float32(1)
        zero = np.rint(np.clip(-low / scale, 0, 255)).astype(np.uint8)
        return _quantize(x, scale, zero, DType.uint8, DType.float32), scale, zero

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """The scale: a difference and a quotient, or a product with a rounded 1 / 255. That of
        zeros alone is 0 by the formula and 1 for most: it stands for nothing."""
        if np.size(inputs[0]) and not np.any(inputs[0]):
            return (None, Rounding(np.ones(()), np.ones(())), None)
        return (None, relative(np.asarray(outputs[1], np.float64), 2 * KAPPA, 3.01), None)

    def decides(self, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
        unit, ends = FORMATS["float32"].unit_roundoff, DType.uint8.ends
        x = np.asarray(inputs[0], np.float64)
        low, high = min(0.0, x.min(initial=0)), max(0.0, x.max(initial=0))
        scale = (high - low) / 255 or 1.0
        # The scale's own two roundings come on top of those of a given scale.
        zero = _quantity(np.float64(-low), scale, 0.0, (UNITS + 2) * unit, ends)
        first, last = (int(e) for e in zero.ends())
        zero_point = float(np.rint(zero.real))
        values = _quantity(x, scale, zero_point, (UNITS + 2) * unit, ends)
        shifts = tuple(n - int(zero_point) for n in range(first, last + 1))
        return (dataclasses.replace(values, shifts=shifts), None, zero)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(), (draw(rng, (2, 3, 7)),))
        yield Case(cls(), (draw(rng, (5,), low=1.0, high=3.0),))
        yield Case(cls(), (np.zeros((2, 3), np.float32),))
