"""Convolutions of small integers, accumulated exactly: what quantized networks compute inside.

Products and sums are exact integers that wrap around like the accumulator they lie in. Padding
counts as the input's zero point, that is as zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.ops.common import as_dtype, draw
from verax.ops.windows.convolution import Conv, check_weights
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.windows import Ints, Pads, expect_dims, spatial_input

DATA = (DType.int8, DType.uint8, DType.int16)
WEIGHTS = (DType.int8, DType.uint8)
SUMS = (DType.int32, DType.int64)


def _check_integers(ctx: Inference, to: DType, weight_axis: int) -> None:
    """Element types of all inputs, and the shapes of the zero points."""
    for index, allowed in ((0, DATA), (1, WEIGHTS)):
        dtype = ctx.type(index).dtype
        ctx.require(dtype in allowed, f"input {index} is {dtype}, not {', '.join(allowed)}")
        if not ctx.has(index + 2):
            continue
        zero = ctx.type(index + 2)
        if zero.dtype != dtype:
            ctx.fail(f"the zero point {index + 2} is {zero.dtype}, input {index} is {dtype}")
        if zero.rank and index == 0:
            ctx.fail(f"the zero point of the data is {zero}, not a scalar")
        if zero.rank:
            expect_dims(ctx, 3, (ctx.type(1).dims[weight_axis],), "zero point of the weights")
    ctx.require(to in SUMS, f"the sums are {to}, not {', '.join(SUMS)}")


def _centered(values: Any, zero: Any, axis: int = 0) -> np.ndarray:
    """values - zero point as float64: exact, and matrix products of it are fast."""
    wide = np.asarray(values, np.float64)
    if zero is None:
        return wide
    zero = np.asarray(zero, np.float64)
    shape = [-1 if a == axis else 1 for a in range(wide.ndim)] if zero.ndim else []
    return wide - zero.reshape(shape)


def _wrapped(sums: np.ndarray, to: DType) -> np.ndarray:
    """Exact sums (below 2^53) as they lie in the accumulator."""
    return sums.astype(np.int64).astype(to.numpy)


def _draw(rng: np.random.Generator, x: Ints, w: Ints, kind: str, zero: Ints) -> list[Any]:
    """Data, weights, their zero points: one for the data, of shape `zero` for the weights."""
    info = np.iinfo(kind)
    weights = "uint8" if kind == "uint8" else "int8"
    low = np.iinfo(weights)
    return [
        draw(rng, x, kind, info.min, info.max),
        draw(rng, w, weights, low.min, low.max),
        np.array(info.max // 3, kind),
        draw(rng, zero, weights, low.min // 2, low.max // 2),
    ]


@operator
class ConvInteger(Operator):
    """`Conv` of (x - x_zero_point) and (w - w_zero_point), inputs in this order.

    x_zero_point: a scalar. w_zero_point: a scalar or one per output channel. Both default to 0.
    output_dtype: of the accumulator, int32 or int64. Other attributes as in `Conv`.
    """

    kernel_shape: Ints = ()
    strides: Ints = ()
    pads: Pads | str = ()
    dilations: Ints = ()
    groups: int = 1
    output_dtype: DType = DType.int32

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 4
    exact = True
    no_derivative = "its results are integers, which jump"

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_dtype", as_dtype(self.output_dtype))

    def convolution(self) -> Conv:
        """The convolution over the same windows."""
        return Conv(
            kernel_shape=self.kernel_shape,
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            groups=self.groups,
        )

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        _check_integers(ctx, self.output_dtype, 0)
        types = tuple(t.with_dtype(DType.float64) for t in (ctx.type(0), ctx.type(1)))
        (y,) = self.convolution().infer(Inference(types, (), ctx.place))
        return [y.with_dtype(self.output_dtype)]

    def reference(self, ev: Evaluation, x: Any, w: Any, xz: Any = None, wz: Any = None) -> Any:
        sums = self.convolution().reference(ev, _centered(x, xz), _centered(w, wz))
        return _wrapped(sums, self.output_dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(label: str, x: Ints, w: Ints, kind: str, inputs: int, **attributes: Any) -> Case:
            arrays = _draw(rng, x, w, kind, (w[0],) if inputs == 4 else ())
            return Case(cls(**attributes), tuple(arrays[:inputs]), label=label)

        yield case("plain", (2, 3, 5, 6), (4, 3, 3, 2), "int8", 2)
        yield case("zero point", (2, 3, 5, 4), (4, 3, 3, 2), "uint8", 3, kernel_shape=(3, 2))
        yield case("zero points per channel", (2, 3, 5, 6), (4, 3, 2, 3), "int8", 4, strides=(2, 3))
        yield case("pads", (2, 3, 5, 4), (2, 3, 3, 2), "int8", 3, pads=((2, 1), (0, 3)))
        yield case("SAME", (2, 3, 6, 7), (2, 3, 3, 4), "int8", 3, pads="SAME_UPPER", strides=(2, 3))
        yield case("dilations", (1, 3, 8, 9), (2, 3, 2, 3), "int8", 3, dilations=(3, 2))
        yield case("groups", (2, 6, 4, 5), (9, 2, 3, 2), "int8", 3, groups=3)
        yield case("wide", (2, 3, 5, 6), (4, 3, 3, 2), "int16", 3, output_dtype=DType.int64)
        yield case("one axis", (2, 4, 9), (6, 2, 3), "uint8", 4, groups=2, strides=(2,))


@operator
class ConvTransposeInteger(Operator):
    """`ConvTranspose` of (x - x_zero_point) and (w - w_zero_point), inputs in this order.

    x_zero_point, w_zero_point: scalars, 0 by default. output_dtype: of the accumulator, int32 or
    int64. Other attributes as in `ConvTranspose`.
    """

    strides: Ints = ()
    pads: Pads | str = ()
    dilations: Ints = ()
    groups: int = 1
    output_padding: Ints = ()
    output_dtype: DType = DType.int32

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 4
    exact = True
    no_derivative = "its results are integers, which jump"

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_dtype", as_dtype(self.output_dtype))

    def convolution(self) -> ConvTranspose:
        """The transposed convolution over the same windows."""
        return ConvTranspose(
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            groups=self.groups,
            output_padding=self.output_padding,
        )

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = spatial_input(ctx, integers=True)
        check_weights(ctx, x, ctx.type(1), self.groups)
        if ctx.has(3) and ctx.type(3).rank:
            ctx.fail(f"the zero point of the weights is {ctx.type(3)}, not a scalar")
        _check_integers(ctx, self.output_dtype, 1)
        types = tuple(t.with_dtype(DType.float64) for t in (x, ctx.type(1)))
        (y,) = self.convolution().infer(Inference(types, (), ctx.place))
        return [y.with_dtype(self.output_dtype)]

    def reference(self, ev: Evaluation, x: Any, w: Any, xz: Any = None, wz: Any = None) -> Any:
        sums = self.convolution().reference(ev, _centered(x, xz), _centered(w, wz))
        return _wrapped(sums, self.output_dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(label: str, x: Ints, w: Ints, kind: str, inputs: int, **attributes: Any) -> Case:
            arrays = _draw(rng, x, w, kind, ())
            return Case(cls(**attributes), tuple(arrays[:inputs]), label=label)

        yield case("plain", (2, 3, 4, 5), (3, 4, 3, 2), "int8", 2)
        yield case("zero points", (2, 3, 4, 5), (3, 4, 3, 2), "uint8", 4, strides=(2, 3))
        yield case("pads", (2, 3, 4, 5), (3, 2, 3, 4), "int8", 3, pads=((1, 0), (2, 1)))
        yield case("SAME", (2, 3, 4, 5), (3, 2, 3, 4), "int8", 3, pads="SAME_UPPER", strides=(2, 3))
        yield case("dilations", (1, 2, 4, 5), (2, 3, 2, 3), "int8", 3, dilations=(3, 2))
        yield case("groups", (2, 6, 4, 3), (6, 2, 3, 2), "int8", 3, groups=3)
        extra = {"strides": (2, 3), "output_padding": (1, 2)}
        yield case("wide", (2, 3, 4, 5), (3, 4, 3, 2), "int16", 3, output_dtype="int64", **extra)
