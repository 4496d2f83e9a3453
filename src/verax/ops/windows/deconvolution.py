"""Transposed convolution, the adjoint of convolution.

Weights are [input, output / groups, *kernel].

The meaning is a scatter: every input element adds a scaled kernel to the output, which is cropped
by the pads. The promised bits are those of the equal gather, in which each output position sums
over the taps that reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.ir.dim import DimLike, is_known
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import TensorType
from verax.numerics.error_model import Rounding, sum_of_products
from verax.numerics.fma import ORDERED, fma
from verax.ops.common import declared_units
from verax.ops.windows.convolution import (
    CHUNK,
    blocks_and_positions,
    check_weights,
    initial_sums,
    per_channel,
)
from verax.ops.windows.windows import (
    Fail,
    Ints,
    Pads,
    Slices,
    WindowGeometry,
    Windows,
    expect_dims,
    geometry,
    kernel_dims,
    over_spatial,
    per_axis,
    raise_graph_error,
    same_floats,
    size_of,
    spatial_input,
    split_same,
)


@operator
class ConvTranspose(Operator):
    """Transposed convolution of x [n, c, *spatial] with w [c, o / groups, *kernel], plus bias [o].

    pads: cropped from the output, (begin, end) per axis; or "SAME_UPPER" / "SAME_LOWER", with which
    the output is strides times the input. output_shape: spatial sizes of the output, from which
    the pads follow; then `pads` is a rule or empty, and empty puts the odd one at the beginning,
    like SAME_LOWER. Where the output is larger than the kernels reach, it holds the bias.
    """

    kernel_shape: Ints = ()
    strides: Ints = ()
    pads: Pads | str = ()
    dilations: Ints = ()
    groups: int = 1
    output_padding: Ints = ()
    output_shape: Ints = ()

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 3

    def geometry(self, kernel: Sequence[DimLike], fail: Fail = raise_graph_error) -> WindowGeometry:
        """The completed attributes for weights whose spatial dimensions are `kernel`."""
        kernel = kernel_dims(self.kernel_shape, kernel, fail)
        if self.output_shape and self.pads and not isinstance(self.pads, str):
            fail("pads in numbers and output_shape cannot both be given")
        return geometry(kernel, self.strides, self.pads, self.dilations, fail=fail)

    def spatial(self, x: TensorType, w: TensorType) -> Windows:
        """The windows in numbers, for input and weight types of known spatial sizes."""
        return self._windows(x.shape[2:], w.dims[2:])

    def output_dims(
        self, sizes: Sequence[DimLike], form: WindowGeometry, fail: Fail = raise_graph_error
    ) -> tuple[DimLike, ...]:
        """Spatial sizes of the output."""
        extra = per_axis("output_padding", self.output_padding, len(sizes), 0, fail)
        if self.output_shape:
            return per_axis("output_shape", self.output_shape, len(sizes), 1, fail)
        if isinstance(form.pads, str):
            return tuple(n * s for n, s in zip(sizes, form.strides))
        dims = tuple(
            (n - 1) * s + e + more - begin - end
            for n, s, e, more, (begin, end) in zip(
                sizes, form.strides, form.extent, extra, form.pads
            )
        )
        if any(is_known(d) and d < 1 for d in dims):
            fail(f"pads {form.pads} leave nothing of the output: {dims}")
        return dims

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x, w = spatial_input(ctx), ctx.type(1)
        same_floats(ctx, 0, 1, 2)
        check_weights(ctx, x, w, self.groups)
        expect_dims(ctx, 1, (x.dims[1], *w.dims[1:]), "weight")
        out = w.dims[1] * self.groups
        expect_dims(ctx, 2, (out,), "bias")
        sizes = self.output_dims(x.dims[2:], self.geometry(w.dims[2:], ctx.fail), ctx.fail)
        return [x.with_dims((x.dims[0], out, *sizes))]

    def gain(self, ctx: Inference, index: int) -> InputGain:
        if index == 2:
            return InputGain(Gain.added)
        w, strides = ctx.type(1), self.strides or (1,) * (ctx.type(1).rank - 2)
        overlapping = (a for a, s in enumerate(strides, 2) if w.dims[a] != 1 and w.dims[a] != s)
        return InputGain(Gain.summed, (int(index == 0), *overlapping))

    def reference(self, ev: Evaluation, x: Any, w: Any, b: Any = None) -> Any:
        y = self._scatter(x, w)
        return y if b is None else y + per_channel(b, y.ndim)

    def canonical(self, ev: Evaluation, x: Any, w: Any, b: Any = None) -> Any:
        """Bias first (else +0), then one FMA per product: input channels of the group in blocks
        of 16; in each, ascending, the kernel positions that fall into the output position's stride
        phase; in each the channels. Input positions outside of the input count as 0.
        """
        if x.dtype not in ORDERED:
            return super().canonical(ev, x, w, b)
        windows, n, g = self._windows(x.shape[2:], w.shape[2:]), x.shape[0], self.groups
        per_group = x.shape[1] // g
        inputs = x.reshape(n, g, per_group, *windows.input)
        weights = w.reshape(g, per_group, *w.shape[1:])
        acc = initial_sums(b, (n, g, w.shape[1], *windows.output), x.dtype)
        if not x.size:  # nothing to gather from
            return acc.reshape(n, g * w.shape[1], *windows.output)
        lanes = (1,) * windows.rank
        for block, position in blocks_and_positions(per_group, windows):
            phase, indices, inside = _gather(windows, position)
            seen = np.where(inside, inputs[over_spatial(indices)], x.dtype.type(0))
            for c in block:
                weight = weights[(slice(None), c, slice(None), *position)]
                weight = weight.reshape(1, *weight.shape, *lanes)
                acc[over_spatial(phase)] = fma(
                    seen[:, :, c : c + 1], weight, acc[over_spatial(phase)]
                )
        return acc.reshape(n, g * w.shape[1], *windows.output)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        x, w, b = (*inputs, None)[:3]
        windows = self._windows(x.shape[2:], w.shape[2:])
        reach = [-(-k // s) for k, s in zip(windows.kernel_shape, windows.strides)]
        if any(d > 1 for d in windows.dilations):
            reach = list(windows.kernel_shape)
        n = x.shape[1] // self.groups * int(np.prod(reach))
        bias = 0.0 if b is None else per_channel(b, x.ndim)
        absolute = self._scatter(np.abs(x), np.abs(w)) + np.abs(bias)
        return [sum_of_products(outputs[0], absolute, self._scatter(x * x, w * w), n, bias)]

    def _windows(self, sizes: Sequence[int], kernel: Sequence[DimLike]) -> Windows:
        form = self.geometry(kernel)
        output = tuple(map(size_of, self.output_dims(sizes, form)))
        pads = form.pads
        if self.output_shape or isinstance(pads, str):
            extra = per_axis(
                "output_padding", self.output_padding, len(sizes), 0, raise_graph_error
            )
            totals = [
                max(0, (n - 1) * s + more + e - o)
                for n, s, more, e, o in zip(sizes, form.strides, extra, form.extent, output)
            ]
            rule = self.pads if isinstance(self.pads, str) else "SAME_LOWER"
            pads = tuple(split_same(total, rule) for total in totals)
        assert not isinstance(pads, str)
        return Windows(tuple(sizes), output, form.kernel_shape, form.strides, form.dilations, pads)

    def _scatter(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The transposed convolution without bias: matrix products, their rows added in place."""
        windows, g = self._windows(x.shape[2:], w.shape[2:]), self.groups
        n, c = x.shape[:2]
        weights = w.reshape(g, c // g, w.shape[1] * windows.taps).swapaxes(1, 2)
        pixels = x.reshape(n, g, c // g, int(np.prod(windows.input)))
        y = np.zeros((n, g * w.shape[1], *windows.output), np.result_type(x, w))
        fits_memory = n * g * w.shape[1] * windows.taps * int(np.prod(windows.input)) <= CHUNK
        products = np.matmul(weights, pixels) if fits_memory else None
        for tap in windows.transposed.overlaps():
            if products is not None:
                shape = (n, y.shape[1], *windows.kernel_shape, *windows.input)
                tap_product = products.reshape(shape)[(slice(None), slice(None), *tap.position)]
            else:
                flat = np.ravel_multi_index(tap.position, windows.kernel_shape)
                tap_product = np.matmul(weights[:, flat :: windows.taps], pixels)
                tap_product = tap_product.reshape(n, y.shape[1], *windows.input)
            y[tap.input] += tap_product[tap.output]
        return y

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
            op = cls(**attributes)
            arrays = [rng.standard_normal(x), rng.standard_normal(w)]
            arrays += [rng.standard_normal(w[1] * op.groups)] if bias else []
            return Case(op, tuple(a.astype(dtype) for a in arrays), label=label)

        yield case("plain", (2, 3, 4, 5), (3, 4, 3, 2))
        yield case("bias, more than one channel block", (2, 18, 3, 4), (18, 2, 2, 3), bias=True)
        yield case("kernel_shape", (1, 2, 3, 4), (2, 3, 2, 3), kernel_shape=(2, 3))
        yield case("strides", (2, 3, 4, 3), (3, 2, 3, 4), bias=True, strides=(2, 3))
        yield case("strides past the kernel", (2, 3, 4, 3), (3, 2, 2, 1), strides=(3, 2), bias=True)
        yield case(
            "two-ended pads", (2, 3, 5, 4), (3, 2, 3, 4), pads=((2, 1), (0, 3)), strides=(2, 1)
        )
        yield case(
            "dilations", (2, 3, 4, 5), (3, 2, 3, 2), dilations=(2, 3), strides=(3, 2), bias=True
        )
        yield case("groups", (2, 6, 3, 4), (6, 2, 2, 3), groups=3, strides=(2, 2), bias=True)
        yield case("depthwise", (2, 5, 3, 4), (5, 1, 3, 2), groups=5, strides=(2, 1))
        yield case(
            "output_padding", (2, 3, 4, 3), (3, 2, 3, 4), strides=(2, 3), output_padding=(1, 2),
            pads=((1, 1), (2, 0)), bias=True,
        )  # fmt: skip
        for rule in ("", "SAME_UPPER", "SAME_LOWER"):
            yield case(
                f"output_shape {rule}", (2, 3, 4, 3), (3, 2, 4, 3), strides=(2, 3), pads=rule or (),
                output_shape=(7, 8), bias=True,
            )  # fmt: skip
        yield case("larger output_shape", (1, 2, 3, 4), (2, 3, 3, 4), strides=(3, 2),
                   output_shape=(10, 11), bias=True)  # fmt: skip
        for rule in ("SAME_UPPER", "SAME_LOWER"):
            yield case(rule, (2, 3, 4, 5), (3, 2, 4, 5), pads=rule, strides=(3, 2))
        yield case("one axis", (2, 4, 5), (4, 3, 3), groups=2, strides=(2,), pads=((0, 1),))
        yield case("three axes", (2, 3, 2, 3, 4), (3, 2, 2, 3, 2), strides=(2, 1, 3), bias=True)
        yield case("float64", (2, 3, 4, 5), (3, 4, 3, 2), dtype="float64", bias=True)


def _gather(windows: Windows, position: Ints) -> tuple[Slices, Any, np.ndarray]:
    """What one tap gives: the output positions of its stride phase (slices), the input positions
    they read (index arrays, clipped into the input), and which of those are really inside.
    """
    phases, indices, inside = [], [], []
    for i, o, k, s, d, (begin, _) in zip(
        windows.input, windows.output, position, windows.strides, windows.dilations, windows.pads
    ):
        first = (k * d - begin) % s
        phases.append(slice(first, None, s))
        read = (np.arange(first, o, s) + begin - k * d) // s
        indices.append(np.clip(read, 0, i - 1))
        inside.append((read >= 0) & (read < i))
    mask = np.ones((), bool)
    for axis in inside:
        mask = mask[..., None] & axis
    return tuple(phases), np.ix_(*indices), mask
