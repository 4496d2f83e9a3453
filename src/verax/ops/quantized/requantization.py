"""Integer arithmetic between quantized values: Requantize, AveragePoolInteger, SoftmaxInteger.

All are exact: they mean the integers that LiteRT's reference kernels compute, roundings included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import Quantity, U
from verax.numerics.fixed_point import (
    doubling_high_product,
    exp_of_negative,
    interpolated,
    interpolation_table,
    inverse_root,
    quantized_factor,
    reciprocal_of_one_plus,
    rounded_shift,
    scaled,
    scaled_once,
    scaled_wide,
    wrap32,
)
from verax.ops.common import as_dtype, draw, normalize_axis
from verax.ops.quantized.per_element import Constants, Parametrized, requantized
from verax.ops.windows.pooling import AveragePool, window_cases, window_sums
from verax.ops.windows.windows import Ints, Pads, expect_dims

NARROW = (DType.int8, DType.uint8, DType.int16)
TARGETS = (*NARROW, DType.int32)
ROUNDINGS = {"twice": scaled, "short": scaled_wide, "once": scaled_once}
DIFF_BITS = 5
"""Integer bits of the differences whose exponential SoftmaxInteger takes."""
SUM_BITS = 12
"""Integer bits of its sum of exponentials."""


@operator
class Requantize(Parametrized):
    """saturate(zero_point + round(x multiplier 2^(shift - 31))), clipped to low .. high.

    Inputs: x int32 or int64, multiplier int32, shift int32; the last two are scalars or one number
    per index of `axis`. rounding: "twice", "short" or "once", the functions `scaled`, `scaled_wide`
    and `scaled_once` of `numerics.fixed_point`; int64 needs one of the last two. low, high: by
    default the whole range of output_dtype.
    """

    axis: int = 1
    zero_point: int = 0
    low: int | None = None
    high: int | None = None
    output_dtype: DType = DType.int8
    rounding: str = "twice"

    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 3
    exact = True
    no_derivative = "its results are integers, which jump"
    no_hypotheses = "its attributes at other values are what is tried"

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_dtype", as_dtype(self.output_dtype))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, to = ctx.type(0), self.output_dtype
        ctx.require(x.dtype in (DType.int32, DType.int64), f"the input is {x}")
        ctx.one_of("rounding", self.rounding, ROUNDINGS)
        narrow = x.dtype is DType.int32
        ctx.require(narrow or self.rounding != "twice", "int64 is not rounded twice")
        ctx.require(to in TARGETS, f"output_dtype is {to}, not {', '.join(TARGETS)}")
        for index in (1, 2):
            factor = ctx.type(index)
            ctx.require(factor.dtype is DType.int32, f"input {index} is {factor}, not int32")
            if factor.rank:
                axis = normalize_axis(ctx, self.axis, x.rank)
                expect_dims(ctx, index, (x.dims[axis],), "factor")
        return [x.with_dtype(to)]

    def reference(self, ev: Evaluation, x: Any, multiplier: Any, shift: Any) -> Any:
        factors = [self.spread(f, x.shape) for f in (multiplier, shift)]
        rounded = ROUNDINGS[self.rounding](x, *factors) + self.zero_point
        return np.clip(rounded, *self.ends()).astype(self.output_dtype.numpy)

    def ends(self) -> tuple[int, int]:
        """The lowest and the highest result."""
        info = np.iinfo(self.output_dtype.numpy)
        low = int(info.min) if self.low is None else max(self.low, int(info.min))
        high = int(info.max) if self.high is None else min(self.high, int(info.max))
        return low, max(low, high)

    def per_element(self, m: Arith[Any], to: str, constants: Constants, *xs: Any) -> Any:
        x, multiplier, shift = xs
        factors = constants[1], constants[2]
        ends = self.ends()
        rounded = requantized(
            m, x, (multiplier, shift), factors, self.rounding, self.zero_point, ends
        )
        return m.convert(rounded, to)

    def spread(self, parameter: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        if not np.ndim(parameter):
            return np.asarray(parameter)
        axis = self.axis % max(len(shape), 1)
        return np.reshape(parameter, [-1 if a == axis else 1 for a in range(len(shape))])

    def decides(self, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
        """Kernels round halves up, away from zero or to even, once or twice, and some multiply in
        float32: each moves the edge by at most the factor's rounding and a unit of the first
        rounding, 2^shift."""
        x, multiplier, shift = (np.asarray(a, np.float64) for a in inputs)
        lanes = [-1 if a == self.axis % max(x.ndim, 1) else 1 for a in range(x.ndim)]
        factor, unit = (np.reshape(a, lanes) if a.ndim else a for a in (multiplier, shift))
        real = x * factor * 2.0 ** (unit - 31) + self.zero_point
        slack = 2 * U * np.abs(real) + np.minimum(2.0**unit, 0.5)
        info = np.iinfo(self.output_dtype.numpy)
        low, high = (
            b if a is None else a for a, b in ((self.low, info.min), (self.high, info.max))
        )
        return (
            Quantity(
                real, slack, float(low), float(max(low, high)), is_free=True, zero=self.zero_point
            ),
        )

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = rng.integers(-(2**24), 2**24, (2, 3, 5), dtype=np.int32)
        one = [np.array(v, np.int32) for v in quantized_factor(7.3e-6)]
        up = [np.array(v, np.int32) for v in quantized_factor(3.7)]
        lines = np.array([quantized_factor(f) for f in (1e-5, 0.3, 2e-7)], np.int32).T
        yield Case(cls(), (x, *one))
        yield Case(cls(zero_point=-7, low=-7, high=100), (x, *one))
        yield Case(cls(output_dtype=DType.uint8, zero_point=128), (x, *lines))
        yield Case(cls(axis=-2), (x, *lines), label="per index of an axis")
        yield Case(cls(output_dtype=DType.int32), (x, *up), label="above one")
        ties = np.array([-3, -2, -1, 0, 1, 2, 3, 5], np.int32)
        half = [np.array(v, np.int32) for v in quantized_factor(0.5)]
        yield Case(cls(axis=0), (ties, *half), label="ties")
        wide = rng.integers(-(2**40), 2**40, (2, 3, 5), dtype=np.int64)
        tiny = [np.array(v, np.int32) for v in quantized_factor(2.0**-27)]
        yield Case(cls(output_dtype=DType.int16, rounding="short"), (wide, *tiny))
        sums = rng.integers(-(2**29), 2**29, (2, 3, 5), dtype=np.int64)
        small = [np.array(v, np.int32) for v in quantized_factor(2.9e-5)]
        yield Case(cls(output_dtype=DType.int16, rounding="once"), (sums, *small))


@operator
class AveragePoolInteger(Operator):
    """Means of windows of x [n, c, *spatial] over the positions inside of the input, rounded to the
    nearest integer, halves away from zero; then clipped to low .. high.

    Scale and zero point of the result are those of the input. Windows as in `AveragePool`.
    """

    kernel_shape: Ints = ()
    strides: Ints = ()
    pads: Pads | str = ()
    low: int | None = None
    high: int | None = None

    exact = True
    no_derivative = "its results are integers, which jump"
    no_hypotheses = "its attributes at other values are what is tried"

    def pool(self) -> AveragePool:
        """The pool over the same windows."""
        return AveragePool(kernel_shape=self.kernel_shape, strides=self.strides, pads=self.pads)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        ctx.require(x.dtype in NARROW, f"the input is {x}, not {', '.join(NARROW)}")
        (y,) = self.pool().infer(Inference((x.with_dtype(DType.float64),), (), ctx.place))
        return [y.with_dtype(x.dtype)]

    def reference(self, ev: Evaluation, x: Any) -> Any:
        windows = self.pool().windows(x.shape)
        total = window_sums(windows, x.astype(np.int64))
        counts = windows.counts(include_pad=False).astype(np.int64)
        size = (np.abs(total) + counts // 2) // np.maximum(counts, 1)
        ends = self.ends(x.dtype)
        return np.clip(np.where(total > 0, size, -size), *ends).astype(x.dtype)

    def ends(self, dtype: Any) -> tuple[int, int]:
        """The lowest and the highest result; of ends that have changed places the highest."""
        info = np.iinfo(dtype)
        low = int(info.min) if self.low is None else self.low
        high = int(info.max) if self.high is None else self.high
        return low, high

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for label, shape, attributes in window_cases():
            if attributes.keys() <= {"kernel_shape", "strides", "pads"}:
                yield Case(cls(**attributes), (draw(rng, shape, "int8", -128, 127),), label=label)
        x = draw(rng, (2, 3, 5, 6), "uint8", 0, 255)
        yield Case(cls(kernel_shape=(2, 3), low=100, high=140), (x,), label="clipped")


@operator
class SoftmaxInteger(Operator):
    """Softmax of beta scale (x - zero point) along the last axis, on integers.

    factor: beta times the scale of the input; its zero point plays no part. For x of 8 bits the
    result has the scale 1 / 2^bits and the lowest integer as zero point (gemmlowp's exponential and
    reciprocal). For x of 16 bits it has 16, the scale 2^-15 and the zero point 0 (tables of both,
    interpolated). Source: LiteRT's reference softmax.
    """

    factor: float = 1.0
    output_dtype: DType = DType.int8

    exact = True
    no_derivative = "its results are integers, which jump"
    no_hypotheses = "its attributes at other values are what is tried"

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_dtype", as_dtype(self.output_dtype))

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, to = ctx.type(0), self.output_dtype
        ctx.require(x.dtype in NARROW, f"the input is {x}, not {', '.join(NARROW)}")
        ctx.require(to in NARROW, f"output_dtype is {to}, not {', '.join(NARROW)}")
        wide = DType.int16
        ctx.require(x.dtype is not wide or to is wide, f"the input is {x}, output_dtype {to}")
        ctx.require(x.rank > 0, "a scalar has no last axis")
        ctx.require(self.factor > 0, f"the factor {self.factor} is not positive")
        return [x.with_dtype(to)]

    def reference(self, ev: Evaluation, x: Any) -> Any:
        to = self.output_dtype
        info = np.iinfo(to.numpy)
        if not x.size:
            return x.astype(to.numpy)
        if x.dtype == np.int16:
            return self._by_tables(x)
        largest = float(2**31 - 1)
        multiplier, shift = quantized_factor(min(self.factor * 2 ** (31 - DIFF_BITS), largest))
        radius = (2**DIFF_BITS - 1) * 2.0 ** (31 - DIFF_BITS) / 2.0**shift
        difference = x.astype(np.int64) - x.max(axis=-1, keepdims=True)
        counted = difference >= -np.floor(radius)
        exponential = exp_of_negative(scaled(np.where(counted, difference, 0), multiplier, shift),
                                      DIFF_BITS)  # fmt: skip
        terms = np.where(counted, rounded_shift(exponential, SUM_BITS), 0)
        total = wrap32(terms.sum(axis=-1, keepdims=True))
        lead = 31 - np.floor(np.log2(total)).astype(np.int64)  # leading zeros of 32 bits
        reciprocal = reciprocal_of_one_plus((total << lead) - 2**31)
        exponent = SUM_BITS - lead + 31 - 8 * to.itemsize
        rounded = rounded_shift(doubling_high_product(reciprocal, exponential), exponent)
        rounded = np.where(counted, rounded + info.min, info.min)
        return np.clip(rounded, info.min, info.max).astype(to.numpy)

    def _by_tables(self, x: np.ndarray) -> np.ndarray:
        """exp of -10 .. 0 and 1 / (1 + t) of 0 .. 1, both with 15 fraction bits."""
        steps = 2**16 - 1
        factor = quantized_factor(self.factor / (10.0 / steps))
        difference = x.astype(np.int64) - x.max(axis=-1, keepdims=True)
        at = np.clip(scaled(difference, *factor) + 2**15 - 1, -(2**15), 2**15 - 1)
        terms = interpolated(at, exp_table())
        total = terms.sum(axis=-1, keepdims=True)
        lead = 32 - np.frexp(total.astype(np.float64))[1]  # leading zeros of 32 bits
        shifted = ((total << (lead - 1)) + 2**13) >> 14
        at = np.clip(shifted - 3 * 2**15, -(2**15), 2**15 - 1)
        right = 31 - lead
        result = terms * interpolated(at, reciprocal_table()) + (np.int64(1) << (right - 1))
        return np.clip(result >> right, 0, 2**15 - 1).astype(np.int16)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x = draw(rng, (2, 3, 7), "int8", -128, 127)
        words = draw(rng, (3, 11), "int16", -9000, 9000)
        yield Case(cls(factor=0.0007, output_dtype=DType.int16), (words,), label="tables")
        yield Case(cls(factor=0.03), (x,))
        yield Case(cls(factor=0.5), (x,), label="far apart")
        yield Case(cls(factor=0.1, output_dtype=DType.int16), (x,))
        bytes_ = draw(rng, (4, 5), "uint8", 0, 255)
        yield Case(cls(factor=0.02, output_dtype=DType.uint8), (bytes_,))


@operator
class L2NormalizeInteger(Operator):
    """x - zero_point over its Euclidean length along the last axis, in units of 1/128, around the
    middle of the type. Source: LiteRT's reference kernels (an inverse root of 31 bits)."""

    zero_point: int = 0

    exact = True
    no_derivative = "its results are integers, which jump"
    no_hypotheses = "its attributes at other values are what is tried"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = ctx.type(0)
        ctx.require(x.dtype in NARROW[:2], f"the input is {x}, not int8 or uint8")
        ctx.require(x.rank > 0, "a scalar has no last axis")
        return [x]

    def reference(self, ev: Evaluation, x: Any) -> Any:
        info = np.iinfo(x.dtype)
        centered = x.astype(np.int64) - self.zero_point
        multiplier, shift = inverse_root((centered * centered).sum(axis=-1, keepdims=True))
        if info.min:
            rounded = scaled(centered, multiplier, shift + 7)
        else:
            rounded = scaled(centered * 128, multiplier, shift) + 128
        return np.clip(rounded, info.min, info.max).astype(x.dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(cls(), (draw(rng, (2, 3, 7), "int8", -128, 127),))
        yield Case(cls(zero_point=113), (draw(rng, (3, 5), "uint8", 0, 255),))
        yield Case(cls(zero_point=-4), (np.full((2, 3), -4, np.int8),), label="all zero")


@cache
def exp_table() -> np.ndarray:
    """exp of -10 .. 0, [513], to be `interpolated`."""
    return _unit_table(NumpyArith().exp, (-10.0, 0.0))


@cache
def reciprocal_table() -> np.ndarray:
    """1 / (1 + t) of 0 .. 1, likewise."""
    return _unit_table(lambda t: 1 / (1 + t), (0.0, 1.0))


def _unit_table(function: Callable[[np.ndarray], np.ndarray], ends: tuple[float, float]) -> Any:
    """`function` over `ends` in 2^16 - 1 steps, with 15 fraction bits."""
    step, unit = (ends[1] - ends[0]) / (2**16 - 1), 2.0 / (2**16 - 1)
    zero = -(2**15) - ends[0] / step
    low, high = (step * (end - zero) for end in (-(2**15), 2**15 - 1))
    output = (unit * -(2**15), unit * (2**15 - 1))
    return interpolation_table(function, (low, high), output, np.float64)
