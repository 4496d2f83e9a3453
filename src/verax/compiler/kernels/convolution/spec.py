"""What a convolution kernel computes: `ConvSpec`, and the phases its outputs fall into.

The canonical order, which no schedule may change: the accumulator starts as the bias (or +0); for
each block of 16 input channels of the group, for each kernel position in ascending order, for each
real channel of the block, acc = fma(x, w, acc). Padded positions take part, with x = 0. Sums of
integers are exact, modulo the size of the sum, in any order.

A transposed convolution is computed by gathering: an output position meets those kernel positions
that match its phase of the stride, again in ascending order. Within a phase everything is an
ordinary convolution.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from verax.compiler.kernels.dtypes import ContractionTypes
from verax.compiler.kernels.layout import (
    Epilogue,
    Sizes,
    Strides,
    Triple,
    by,
    fused,
    operand_dtypes,
)
from verax.compiler.kernels.sizes import Size, ceil_div, maximum, minimum, static_size
from verax.compiler.kernels.target import LANES
from verax.ir.dim import same

Borders: TypeAlias = "tuple[tuple[int, int], tuple[int, int], tuple[int, int]]"
"""Per axis, how many zeros before and after."""
STEPS = {("int16", "int16"): 2, ("bfloat16", "bfloat16"): 2, ("uint8", "int8"): 4}
"""Types of data and weights -> channels that an instruction takes; of others one."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """Output positions that share their kernel positions; per axis (depth, row, column).

    taps: indices of the kernel positions, ascending. tap_step: input positions from a tap to the
    next. first: input position of the first tap at the first output. step: input positions per
    output position. count: outputs; they are output positions out_first + i * out_step.
    """

    taps: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    tap_step: Triple
    first: Triple
    step: Triple
    count: Sizes
    out_first: Triple = (0, 0, 0)
    out_step: Triple = (1, 1, 1)

    @property
    def tap_counts(self) -> Triple:
        d, h, w = (len(t) for t in self.taps)
        return d, h, w


@dataclasses.dataclass(frozen=True)
class ConvSpec:
    """A convolution, or with `transposed` a transposed one.

    channels, filters: real input and output channels, over all groups. kernel, strides, dilations,
    pads (before), output: per axis. x, y: strides of input and output; x may be planar. types: of
    elements.
    Arguments of the kernel: x, packed weights, packed bias if `bias`, epilogue operands, y.

    For products of matrices, on the direct kernel only: initial: in place of the packed bias comes
    a tensor with these strides (lane 0: one value for all filters). weight_strides: elements from
    the packed weights of one image, and of one depth, to the next. exact: y ends with its last
    filter, so spare lanes are neither stored nor read from operands.

    paired: bytes by `paired_bytes`, whose further steps come in place of a tensor of `initial`.
    """

    batch: Size
    channels: Size
    filters: Size
    output: Sizes
    kernel: Triple
    x: Strides
    y: Strides
    groups: int = 1
    strides: Triple = (1, 1, 1)
    dilations: Triple = (1, 1, 1)
    pads: Triple = (0, 0, 0)
    bias: bool = True
    transposed: bool = False
    epilogue: Epilogue | None = None
    initial: Strides | None = None
    weight_strides: tuple[Size, Size] = (0, 0)
    exact: bool = False
    paired: bool = False
    types: ContractionTypes = dataclasses.field(kw_only=True)

    def __str__(self) -> str:
        """Channels, kernel, output, and what is not ordinary; the algorithm first."""
        kind = "depthwise" if self.depthwise else "direct" if self.aligned else "grouped"
        kind = "paired" if self.paired else kind
        suffix = " transposed" if self.transposed else ""
        groups = f" in {self.groups} groups" if self.groups > 1 and not self.depthwise else ""
        return (
            f"{kind}{suffix} {self.types} convolution{groups} {self.batch} x {self.channels} to "
            f"{self.filters} x {by(self.output)}, kernel {by(self.kernel)}, stride "
            f"{by(self.strides)}{fused(self.epilogue)}"
        )

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of everything read, added in and written."""
        return *self.types.names, *operand_dtypes(self.epilogue)

    @property
    def step(self) -> int:
        """Input channels that are multiplied together: pairs of 16 bits, or four bytes, as machines
        have it."""
        return STEPS.get((self.types.x, self.types.weights), 1)

    @property
    def extra_arguments(self) -> int:
        """Between the weights and the epilogue's operands."""
        return bool(self.bias) + bool(self.initial or self.paired)

    def steps(self, channels: Size) -> Size:
        """Steps that so many channels take."""
        return channels if self.step == 1 else ceil_div(channels, self.step)

    @property
    def group_channels(self) -> Size:
        return self.channels // self.groups

    @property
    def group_filters(self) -> Size:
        return self.filters // self.groups

    @property
    def aligned(self) -> bool:
        """Whether groups begin at whole blocks, on both sides: the fast path."""
        if self.groups == 1:
            return True
        planar = self.x.block == self.x.lane * LANES
        return (planar or self.group_channels % LANES == 0) and self.group_filters % LANES == 0

    @property
    def depthwise(self) -> bool:
        """Whether each channel has its own single filter."""
        return (
            self.groups > 1 and self.groups == self.channels == self.filters and not self.transposed
        )

    @property
    def flops(self) -> Size:
        """Two for each multiply-add, padded positions included."""
        steps = sum(math.prod(r.tap_counts) * math.prod(r.count) for r in self.phases())
        return 2 * self.batch * self.filters * self.group_channels * steps

    def upright(self) -> ConvSpec:
        """The same, where all is in one row: as rows of a pixel each. The direct kernel divides its
        work by rows, and goes through what a cache holds for all filters: sums of 512 channels over
        3,199 places took a third of the time."""
        row = self.kernel[1], self.pads[1], self.strides[1]
        is_one_row = same(self.output[1], 1) and row == (1, 0, 1)
        if self.depthwise or not self.aligned or not is_one_row or self.kernel[2] == 1:
            return self
        epilogue = self.epilogue
        if epilogue is not None:
            operands = tuple(
                dataclasses.replace(o, strides=o.strides and o.strides.upright())
                for o in epilogue.operands
            )
            epilogue = dataclasses.replace(epilogue, operands=operands)
        return dataclasses.replace(
            self,
            output=_upright(self.output),
            kernel=_upright(self.kernel),
            strides=_upright(self.strides),
            dilations=_upright(self.dilations),
            pads=_upright(self.pads),
            x=self.x.upright(),
            y=self.y.upright(),
            epilogue=epilogue,
        )

    def phases(self) -> list[Phase]:
        """The outputs, partitioned; a single phase unless transposed."""
        if not self.transposed:
            first = tuple(-p for p in self.pads)
            taps = tuple(tuple(range(k)) for k in self.kernel)
            return [Phase(taps, self.dilations, first, self.strides, self.output)]  # type: ignore[arg-type]
        axes = [
            _axis_phases(*axis)
            for axis in zip(
                self.kernel, self.strides, self.dilations, self.pads, self.output, strict=True
            )
        ]
        return [Phase(*zip(*combined, strict=True)) for combined in itertools.product(*axes)]  # type: ignore[arg-type]

    def input_extent(self) -> tuple[tuple[Size, Size], tuple[Size, Size], tuple[Size, Size]]:
        """Per axis, the first input position read and one past the last: what must exist in
        memory, as data or as a border of zeros."""
        bounds = []
        for axis in range(3):
            begins: list[Size] = [0]
            ends: list[Size] = []
            for r in self.phases():
                taps, outs = len(r.taps[axis]), r.count[axis]
                if taps and outs != 0:
                    far = r.first[axis] + (taps - 1) * r.tap_step[axis]
                    begins += [r.first[axis], far]
                    ends.append(maximum(r.first[axis], far) + (outs - 1) * r.step[axis])
            end = maximum(*ends) if ends else 0
            bounds.append((minimum(*begins), (max(end, 0) if isinstance(end, int) else end) + 1))
        return tuple(bounds)  # type: ignore[return-value]

    def border(self, size: Sizes, max_after: Sequence[int] = (0, 0, 0)) -> Borders:
        """Zeros needed (before, after) the input of `size`, per axis. max_after: after an axis of
        open size, where how many depends on it."""
        before = (-static_size(lo) for lo, _ in self.input_extent())
        after = (hi - n for (_, hi), n in zip(self.input_extent(), size, strict=True))
        ends = (
            max(0, n) if isinstance(n, int) else m for n, m in zip(after, max_after, strict=True)
        )
        return tuple(zip(before, ends, strict=True))  # type: ignore[return-value]


def _upright(sizes: Any) -> Any:
    depth, row, column = sizes
    return depth, column, row


def _axis_phases(
    kernel: int, stride: int, dilation: int, pad: int, output: Size
) -> list[tuple[tuple[int, ...], int, int, int, Size, int, int]]:
    """Per phase of one axis of a transposed convolution, the fields of its Phase. An output of open
    size has at least as many elements as the stride.

    Output o meets kernel position k where o + pad - k * dilation is a multiple of the stride, and
    reads the input position that is the quotient.
    """
    phases = []
    for offset in range(min(stride, output) if isinstance(output, int) else stride):
        taps = tuple(k for k in range(kernel) if (offset + pad - k * dilation) % stride == 0)
        first = (offset + pad - taps[0] * dilation) // stride if taps else 0
        step = -dilation // math.gcd(stride, dilation)
        count = ceil_div(output - offset, stride)
        phases.append((taps, step, first, 1, count, offset, stride))
    return phases
