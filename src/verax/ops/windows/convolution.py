"""Convolution over any number of spatial axes. Weights are [output, input / groups, *kernel]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import DimLike, is_known
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.error_model import Rounding, narrowed, sum_of_products
from verax.numerics.fma import ORDERED, fma
from verax.numerics.reductions import CHANNEL_BLOCK
from verax.ops.common import declared_units
from verax.ops.windows.windows import (
    Fail,
    Ints,
    Pads,
    WindowGeometry,
    Windows,
    expect_dims,
    geometry,
    kernel_dims,
    over_spatial,
    raise_graph_error,
    same_floats,
    spatial_input,
)

CHUNK = 1 << 22
"""Elements of the unfolded input that the reference holds at a time."""


@operator
class Conv(Operator):
    """Cross-correlation of x [n, c, *spatial] with w [o, c / groups, *kernel], plus bias [o].

    kernel_shape: checked against w when given. Empty strides and dilations mean 1, empty pads 0.
    pads: (begin, end) per spatial axis, or "SAME_UPPER" / "SAME_LOWER".
    """

    kernel_shape: Ints = ()
    strides: Ints = ()
    pads: Pads | str = ()
    dilations: Ints = ()
    groups: int = 1

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 3

    def geometry(self, kernel: Sequence[DimLike], fail: Fail = raise_graph_error) -> WindowGeometry:
        """The completed attributes for weights whose spatial dimensions are `kernel`."""
        kernel = kernel_dims(self.kernel_shape, kernel, fail)
        return geometry(kernel, self.strides, self.pads, self.dilations, fail=fail)

    def spatial(self, x: TensorType, w: TensorType) -> Windows:
        """The windows in numbers, for input and weight types of known spatial sizes."""
        return self.geometry(w.dims[2:]).windows(x.shape[2:])

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, w = spatial_input(ctx), ctx.type(1)
        same_floats(ctx, 0, 1, 2)
        check_weights(ctx, x, w, self.groups)
        out, per_group = w.dims[:2]
        if is_known(out) and out % self.groups:
            ctx.fail(f"{out} output channels cannot be split into {self.groups} groups")
        expect_dims(
            ctx,
            1,
            (out, _channels_per_group(x.dims[1], per_group, self.groups), *w.dims[2:]),
            "weight",
        )
        expect_dims(ctx, 2, (out,), "bias")
        sizes = self.geometry(w.dims[2:], ctx.fail).output_dims(x.dims[2:], ctx.fail)
        return [x.with_dims((x.dims[0], out, *sizes))]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index == 2:
            return InputGain(Gain.added)
        w = ctx.type(1)
        axes = tuple(a for a in range(1, w.rank) if w.dims[a] != 1)
        return InputGain(Gain.summed if axes else Gain.bounded, axes)

    def reference(self, ev: Evaluation, x: Any, w: Any, b: Any = None) -> Any:
        y = self._correlate(x, w)
        return y if b is None else y + per_channel(b, y.ndim)

    def canonical(self, ev: Evaluation, x: Any, w: Any, b: Any = None) -> Any:
        """Bias first (else +0), then one FMA per product: input channels of the group in blocks
        of 16, in each the kernel positions ascending, in each the channels. Padding counts as 0.
        """
        if x.dtype not in ORDERED:
            return super().canonical(ev, x, w, b)
        windows = self.geometry(w.shape[2:]).windows(x.shape[2:])
        padded, n, g = windows.padded(x), x.shape[0], self.groups
        weights = w.reshape(g, w.shape[0] // g, *w.shape[1:])
        acc = initial_sums(b, (n, g, weights.shape[1], *windows.output), x.dtype)
        lanes = (1,) * windows.rank
        for block, position in blocks_and_positions(w.shape[1], windows):
            seen = padded.tap(position).reshape(n, g, w.shape[1], *windows.output)
            for c in block:
                weight = weights[(slice(None), slice(None), c, *position)]
                acc = fma(seen[:, :, c : c + 1], weight.reshape(1, *weight.shape, *lanes), acc)
        return acc.reshape(n, w.shape[0], *windows.output)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        x, w, b = (*inputs, None)[:3]
        bias = 0.0 if b is None else per_channel(b, x.ndim)
        absolute, squares = self._sizes(*narrowed(x, w))
        absolute = absolute + np.abs(bias)
        return [sum_of_products(outputs[0], absolute, squares, int(np.prod(w.shape[1:])), bias)]

    def _correlate(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The convolution without bias, as matrix products over unfolded rows of the input."""
        if self._is_depthwise(x, w):  # nothing to multiply as matrices
            windows = self.geometry(w.shape[2:]).windows(x.shape[2:])
            padded = windows.padded(x)
            taps = (padded.tap(k) * per_channel(w[:, 0][over_spatial(k)], x.ndim)
                    for k in windows.positions())  # fmt: skip
            return sum(taps, np.zeros((), x.dtype))
        weights, y = self._matrices(w), self._empty(x, w)
        for rows, columns in self._unfolded(x, w):
            _multiply(weights, columns, y, rows)
        return y.reshape(y.shape[0], w.shape[0], *y.shape[3:])

    def _sizes(self, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sums of the products' sizes and of their squares, from one unfolding."""
        if self._is_depthwise(x, w):
            return self._correlate(np.abs(x), np.abs(w)), self._correlate(x * x, w * w)
        weights = self._matrices(w)
        positive, squared = np.abs(weights), weights * weights
        absolute, squares = self._empty(x, w), self._empty(x, w)
        for rows, columns in self._unfolded(x, w):
            columns = np.abs(columns)
            _multiply(positive, columns, absolute, rows)
            columns *= columns
            _multiply(squared, columns, squares, rows)
        shape = (absolute.shape[0], w.shape[0], *absolute.shape[3:])
        return absolute.reshape(shape), squares.reshape(shape)

    def _is_depthwise(self, x: np.ndarray, w: np.ndarray) -> bool:
        return self.groups == x.shape[1] == w.shape[0]

    def _matrices(self, w: np.ndarray) -> np.ndarray:
        """Weights [groups, outputs / groups, inputs / groups * taps]."""
        # Sizes are written out: -1 could be anything in a batch of 0.
        return w.reshape(self.groups, w.shape[0] // self.groups, int(np.prod(w.shape[1:])))

    def _empty(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Room for results [n, groups, outputs / groups, *spatial]."""
        windows = self.geometry(w.shape[2:]).windows(x.shape[2:])
        channels = (self.groups, w.shape[0] // self.groups)
        return np.empty((x.shape[0], *channels, *windows.output), np.result_type(x, w))

    def _unfolded(self, x: np.ndarray, w: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield rows of the output and the inputs of their windows, [n, groups, inputs / groups *
        taps, positions], CHUNK elements at a time."""
        windows, g = self.geometry(w.shape[2:]).windows(x.shape[2:]), self.groups
        padded, (n, c) = windows.padded(x), x.shape[:2]
        terms = int(np.prod(w.shape[1:]))
        row = n * c * windows.taps * int(np.prod(windows.output[1:]))
        step = max(1, CHUNK // max(1, row))
        for first in range(0, windows.output[0], step):
            rows = slice(first, min(first + step, windows.output[0]))
            seen = [padded.tap(k, rows) for k in windows.positions()]
            columns = seen[0][:, :, None] if len(seen) == 1 else np.stack(seen, axis=2)
            yield rows, columns.reshape(n, g, terms, int(np.prod(seen[0].shape[2:])))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(
            label: str,
            x: Ints,
            w: Ints,
            bias: bool = False,
            dtype: str = "float32",
            **attributes: Any,
        ) -> Case:
            arrays = [rng.standard_normal(x), rng.standard_normal(w)]
            arrays += [rng.standard_normal(w[0])] if bias else []
            return Case(cls(**attributes), tuple(a.astype(dtype) for a in arrays), label=label)

        yield case("plain", (2, 3, 5, 6), (4, 3, 3, 2))
        yield case("bias, more than one channel block", (2, 19, 4, 5), (3, 19, 2, 3), bias=True)
        yield case("kernel_shape", (1, 2, 5, 4), (3, 2, 2, 3), kernel_shape=(2, 3))
        yield case("strides", (2, 3, 7, 9), (4, 3, 2, 3), bias=True, strides=(2, 3))
        yield case("two-ended pads", (2, 3, 5, 4), (2, 3, 3, 2), pads=((2, 1), (0, 3)))
        yield case("pads wider than the kernel", (1, 2, 3, 4), (2, 2, 2, 2), pads=((3, 0), (0, 4)))
        yield case("dilations", (2, 3, 8, 9), (2, 3, 2, 3), dilations=(3, 2), pads=((1, 0), (2, 3)))
        yield case("groups", (2, 6, 4, 5), (9, 2, 3, 2), bias=True, groups=3)
        yield case("depthwise", (2, 5, 4, 6), (5, 1, 3, 2), groups=5, strides=(1, 2))
        yield case("depthwise with multiplier", (2, 3, 5, 4), (6, 1, 2, 3), groups=3, bias=True)
        for rule in ("SAME_UPPER", "SAME_LOWER"):
            yield case(rule, (2, 3, 6, 7), (2, 3, 3, 4), pads=rule, strides=(2, 3), bias=True)
            yield case(f"{rule}, dilated", (1, 3, 8, 5), (2, 3, 2, 3), pads=rule, dilations=(2, 3))
        yield case("one axis", (2, 4, 9), (6, 2, 3), groups=2, strides=(2,), pads=((1, 2),))
        yield case("three axes", (2, 3, 4, 5, 6), (4, 3, 2, 3, 2), strides=(1, 2, 3), bias=True)
        yield case("float64", (2, 3, 5, 4), (4, 3, 2, 3), dtype="float64", bias=True)
        yield case("float16", (2, 3, 5, 4), (4, 3, 2, 3), dtype="float16")
        ties = rng.integers(-2, 3, (2, 3, 4, 5)).astype(np.float32)
        signs = rng.integers(-1, 2, (2, 3, 2, 2)).astype(np.float32)
        yield Case(cls(), (ties, signs, np.array([0.0, -0.0], np.float32)), label="zeros")


def _multiply(weights: np.ndarray, columns: np.ndarray, y: np.ndarray, rows: slice) -> None:
    """weights @ columns as these rows of y [n, groups, outputs / groups, *spatial]."""
    target = y[:, :, :, rows]
    if target.shape == y.shape:
        np.matmul(weights, columns, out=y.reshape(*y.shape[:3], columns.shape[-1]))
    else:
        target[...] = np.matmul(weights, columns).reshape(target.shape)


def per_channel(b: np.ndarray, rank: int) -> np.ndarray:
    """b [..., channels] shaped to broadcast over [batch, ..., channels, *spatial] of `rank`."""
    return b.reshape(1, *b.shape, *(1,) * (rank - 1 - b.ndim))


def initial_sums(b: np.ndarray | None, shape: Ints, dtype: np.dtype) -> np.ndarray:
    """[n, groups, channels / groups, *spatial] that holds the bias (also -0), or +0."""
    sums = np.zeros(shape, dtype)
    if b is not None:
        sums[:] = per_channel(b.reshape(shape[1:3]), len(shape))
    return sums


def blocks_and_positions(channels: int, windows: Windows) -> Iterator[tuple[range, Ints]]:
    """The canonical order: blocks of input channels, and in each the kernel positions."""
    for first in range(0, channels, CHANNEL_BLOCK):
        block = range(first, min(first + CHANNEL_BLOCK, channels))
        for position in windows.positions():
            yield block, position


def check_weights(ctx: Inference, x: TensorType, w: TensorType, groups: int) -> None:
    """Rank of the weights and divisibility of the input channels by the groups."""
    if w.rank != x.rank:
        ctx.fail(f"the weight is {w}, of another rank than the input {x}")
    if groups < 1:
        ctx.fail(f"groups must be positive, not {groups}")
    if is_known(x.dims[1]) and x.dims[1] % groups:
        ctx.fail(f"{x.dims[1]} input channels cannot be split into {groups} groups")


def _channels_per_group(channels: DimLike, per_group: DimLike, groups: int) -> DimLike:
    """Expected input channels per group, taken as given while a size is a symbol."""
    return channels // groups if is_known(channels) else per_group
