"""Pooling over windows: the largest element, the mean, the p-norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from verax.ir.gains import Gain, InputGain
from verax.ir.operator import MEANING, Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import Rounding, relative, sum_of_products
from verax.numerics.fma import ORDERED, fma
from verax.ops.common import declared_units
from verax.ops.windows.windows import (
    Fail,
    Ints,
    Pads,
    WindowGeometry,
    Windows,
    geometry,
    lowest,
    raise_graph_error,
    spatial_input,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Pool(Operator):
    """What pools share: their attributes and the type rule of their windows.

    Empty strides and dilations mean 1, empty pads 0. ceil_mode keeps a last window that hangs over
    the end padding, if it begins inside the input or its begin padding.
    """

    gains = (Gain.bounded,)
    kernel_shape: Ints
    strides: Ints = ()
    pads: Pads | str = ()
    dilations: Ints = ()
    ceil_mode: bool = False

    integers: ClassVar[bool] = False

    def geometry(self, rank: int, fail: Fail = raise_graph_error) -> WindowGeometry:
        """The completed attributes for an input with `rank` spatial axes."""
        if len(self.kernel_shape) != rank:
            fail(f"kernel_shape is {self.kernel_shape}, the input has {rank} spatial axes")
        return geometry(
            self.kernel_shape, self.strides, self.pads, self.dilations, self.ceil_mode, fail
        )

    def spatial(self, x: TensorType) -> Windows:
        """The windows in numbers, for an input type of known spatial sizes."""
        return self.windows(x.shape)

    def windows(self, shape: Sequence[int]) -> Windows:
        """The windows over an input of shape [batch, channels, *spatial]."""
        return self.geometry(len(shape) - 2).windows(shape[2:])

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = spatial_input(ctx, integers=self.integers)
        sizes = self.geometry(x.rank - 2, ctx.fail).output_dims(x.dims[2:], ctx.fail)
        return [x.with_dims((*x.dims[:2], *sizes))]


@operator
class MaxPool(Pool):
    """The largest element of each window; NaN wins. Padding is never chosen.

    with_indices adds an int64 output: for each window the position of its first largest element in
    the flattened input, counted in row-major order, or with storage_order 1 in column-major order
    over the spatial axes; -1 for a window that holds nothing but padding.
    """

    storage_order: int = 0
    with_indices: bool = False

    integers: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    @property
    def output_count(self) -> int:
        return 1 + self.with_indices

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        if self.storage_order not in (0, 1):
            ctx.fail(f"storage_order must be 0 or 1, not {self.storage_order}")
        (y,) = super().infer(ctx)
        return [y, y.with_dtype(DType.int64)][: self.output_count]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return InputGain(Gain.unbounded if self.output_count > 1 else Gain.bounded)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        return self._largest(x, np.maximum)

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """The meaning in the declared dtype; of two zeros the positive one is larger."""
        return self._largest(x, larger)

    def _largest(self, x: np.ndarray, larger_of: Callable[[Any, Any], Any]) -> Any:
        windows = self.windows(x.shape)
        y = np.full((*x.shape[:2], *windows.output), lowest(x.dtype), x.dtype)
        for tap in windows.overlaps():
            y[tap.output] = larger_of(y[tap.output], x[tap.input])
        return (y, self._indices(x, y, windows)) if self.with_indices else y

    def _indices(self, x: np.ndarray, y: np.ndarray, windows: Windows) -> np.ndarray:
        batch, spatial = x.shape[:2], x.shape[2:]
        order = "C" if self.storage_order == 0 else "F"
        inside = np.arange(int(np.prod(spatial))).reshape(spatial, order=order)  # type: ignore[call-overload]
        planes = np.arange(int(np.prod(batch))).reshape(*batch, *(1,) * windows.rank)
        numbers = np.broadcast_to(inside, x.shape) + planes * inside.size
        indices = np.full(y.shape, -1, np.int64)
        for tap in windows.overlaps():
            value, largest, old = x[tap.input], y[tap.output], indices[tap.output]
            hit = (value == largest) | ((value != value) & (largest != largest))
            indices[tap.output] = np.where((old < 0) & hit, numbers[tap.input], old)
        return indices

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for label, shape, attributes in window_cases():
            yield Case(cls(**attributes), (_floats(rng, shape),), label=label)
        ties = rng.integers(-2, 3, (2, 3, 5, 6))
        form: dict[str, Any] = {"kernel_shape": (2, 3), "strides": (2, 1), "with_indices": True}
        for dtype in ("float32", "float64", "int8", "uint8"):
            yield Case(cls(**form), (ties.astype(dtype),), label=f"ties, {dtype}")
        for order in (0, 1):
            for label, shape, attributes in window_cases():
                x = _floats(rng, shape)
                op = cls(**attributes, storage_order=order, with_indices=True)
                yield Case(op, (x,), label=f"{label}, indices in order {order}")
        nans = _floats(rng, (2, 3, 6, 5))
        nans[rng.random(nans.shape) < 0.1] = np.nan
        yield Case(cls(**form, pads=((1, 0), (0, 2))), (nans,), label="NaN")


@operator
class AveragePool(Pool):
    """The mean of each window, over the elements inside the input.

    count_include_pad: padding counts as zeros that are part of the mean; what a window hangs over
    the end of the padding in ceil mode does not.
    """

    count_include_pad: bool = False

    def reference(self, ev: Evaluation, x: Any) -> Any:
        windows = self.windows(x.shape)
        return window_sums(windows, x) / self._counts(windows, x.dtype)

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """The taps in ascending order, added to +0; then one division."""
        return self.reference(ev, x) if x.dtype in ORDERED else super().canonical(ev, x)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        windows = self.windows(inputs[0].shape)
        x, n = inputs[0], self._counts(windows, inputs[0].dtype)
        absolute, squares = window_sums(windows, np.abs(x)) / n, window_sums(windows, x**2) / n**2
        return [sum_of_products(outputs[0], absolute, squares, n)]

    def _counts(self, windows: Windows, dtype: np.dtype) -> np.ndarray:
        return windows.counts(include_pad=self.count_include_pad).astype(dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for include in (False, True):
            for label, shape, attributes in window_cases():
                op = cls(**attributes, count_include_pad=include)
                yield Case(op, (_floats(rng, shape),), label=f"{label}, pads counted: {include}")
        x = rng.standard_normal((2, 3, 4, 5))
        yield Case(cls(kernel_shape=(3, 2)), (x,), label="float64")


@operator
class LpPool(Pool):
    """The p-norm of each window, (sum |x|^p)^(1/p)."""

    p: int = 2
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        ctx.require(self.p > 0, f"p must be positive, not {self.p}")
        return super().infer(ctx)

    def reference(self, ev: Evaluation, x: Any) -> Any:
        windows = self.windows(x.shape)
        return root(window_sums(windows, powers_of(ev, x, self.p)), self.p, ev.arith)

    def canonical(self, ev: Evaluation, x: Any) -> Any:
        """The taps in ascending order: for p = 1 added to +0, for p = 2 multiplied with themselves
        and added by FMA, then a square root. Other p: the float64 meaning, rounded once.
        """
        if x.dtype not in ORDERED or self.p > 2:
            return super().canonical(ev, x)
        windows = self.windows(x.shape)
        sizes = np.abs(x)
        if self.p == 1:
            return window_sums(windows, sizes)
        acc = np.zeros((*x.shape[:2], *windows.output), x.dtype)
        for tap in windows.overlaps():
            seen = sizes[tap.input]
            acc[tap.output] = fma(seen, seen, acc[tap.output])
        return np.sqrt(acc)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        windows = self.windows(inputs[0].shape)
        powers = np.abs(inputs[0]) ** self.p
        total, squares = window_sums(windows, powers), window_sums(windows, powers**2)
        return [norm_error(outputs[0], total, squares, max(1, windows.seen_taps), self.p)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for p in (1, 2, 3):
            for label, x, attributes in window_cases():
                yield Case(cls(**attributes, p=p), (_floats(rng, x),), label=f"{label}, p = {p}")


def larger(a: Any, b: Any) -> Any:
    """Elementwise maximum: NaN wins, +0 is larger than -0."""
    result = np.maximum(a, b)
    if result.dtype.kind != "f":
        return result
    return np.where((a == 0) & (b == 0) & ~(np.signbit(a) & np.signbit(b)), 0, result)


def powers_of(ev: Evaluation, x: Any, p: int) -> Any:
    """|x|^p of a float array."""
    if p == 1:
        return np.abs(x)
    return x * x if p == 2 else ev.arith.pow(np.abs(x), np.asarray(p, x.dtype))


def root(total: Any, p: int, m: NumpyArith = MEANING) -> Any:
    """total^(1/p) of a float array, with the power of `m`."""
    if p == 1:
        return total
    return np.sqrt(total) if p == 2 else m.pow(total, np.asarray(1 / p, total.dtype))


def norm_error(y: Any, total: Any, squares: Any, n: Any, p: int) -> Rounding:
    """Error of y = total^(1/p), where total is a sum of n powers and squares the sum of squares."""
    inner, own = sum_of_products(total, total, squares, n), relative(y, 2.0, 8.0)
    if p == 1:
        return inner
    slope = np.where(total > 0, y / np.where(total > 0, p * total, 1), 0)
    return Rounding(np.hypot(inner.sigma * slope, own.sigma), inner.bound * slope + own.bound)


def window_sums(windows: Windows, x: np.ndarray) -> Any:
    """Sum over each window, taps in ascending order added to +0; padding adds nothing to it."""
    total = np.zeros((*x.shape[:2], *windows.output), x.dtype)
    for tap in windows.overlaps():
        total[tap.output] += x[tap.input]
    return total


def _floats(rng: np.random.Generator, shape: Ints) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def window_cases() -> Iterator[tuple[str, Ints, dict[str, Any]]]:
    """Input shapes and window attributes that every pool is tested with."""
    yield "plain", (2, 3, 5, 6), {"kernel_shape": (3, 2)}
    yield "strides", (2, 3, 7, 9), {"kernel_shape": (2, 3), "strides": (2, 3)}
    yield "pads", (2, 3, 5, 4), {"kernel_shape": (3, 4), "pads": ((2, 1), (0, 3))}
    yield "dilations", (1, 2, 7, 8), {"kernel_shape": (2, 3), "dilations": (3, 2)}
    for rule in ("SAME_UPPER", "SAME_LOWER"):
        form: dict[str, Any] = {"kernel_shape": (3, 2), "strides": (2, 3), "pads": rule}
        yield rule, (2, 2, 6, 7), form
    ceil: dict[str, Any] = {"ceil_mode": True, "kernel_shape": (3, 2), "strides": (2, 3)}
    yield "ceil_mode", (2, 3, 6, 7), ceil
    yield "ceil_mode, pads", (2, 2, 6, 7), {**ceil, "pads": ((1, 1), (0, 1))}
    yield "ceil_mode, window in the padding", (1, 2, 4, 3), {**ceil, "pads": ((0, 2), (1, 1))}
    yield "ceil_mode, dilations", (1, 2, 8, 9), {**ceil, "dilations": (2, 3), "pads": ((1, 0),) * 2}
    one = {"kernel_shape": (4,), "strides": (3,), "pads": ((1, 2),), "ceil_mode": True}
    yield "one axis", (2, 3, 9), one
    yield "three axes", (2, 2, 4, 5, 6), {"kernel_shape": (2, 3, 2), "strides": (2, 1, 3)}
