"""Sliding windows over spatial axes: what convolutions, transposed convolutions and pools share.

`WindowGeometry` has an operator's attributes, completed for a rank; its sizes may be symbols.
`Windows` is the same with every number known: the compiler lowers from it and the
references walk over its taps. Spatial axes are all axes after batch and channels, in any number.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from verax.base.errors import GraphError
from verax.ir.assumptions import assumptions
from verax.ir.dim import DimLike, ceildiv, floordiv, is_known, maximum
from verax.ir.operator import Inference
from verax.ir.types import DType, TensorType

Ints = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]
Slices = tuple[slice, ...]
MAX_TAPS = 1 << 24
"""Elements that a window may have: its taps are walked over one by one."""
STORED = 1 << 20
"""A border is stored around an input that has no more elements with it."""
BORDER_SHARE = 4
"""The same for one that makes it no more than this many times input and output together."""
SAME_RULES = ("SAME_UPPER", "SAME_LOWER")
Fail = Callable[[str], NoReturn]


def raise_graph_error(message: str) -> NoReturn:
    """The `Fail` of code that runs outside of a type rule."""
    raise GraphError(message)


def over_spatial(spatial_index: Sequence[Any]) -> Any:
    """An index that applies `where` to the last axes."""
    return (Ellipsis, *spatial_index)


@dataclass(frozen=True)
class Windows:
    """Windows over spatial axes of known sizes; every field has one entry per spatial axis.

    input, output: sizes before and after. In axis a, output position o reads the input positions
    o * strides[a] + k * dilations[a] - pads[a][0] for k < kernel_shape[a]. For a transposed
    convolution `input` and `output` are its own, and input position i writes the output positions
    i * strides[a] + k * dilations[a] - pads[a][0].
    """

    input: Ints
    output: Ints
    kernel_shape: Ints
    strides: Ints
    dilations: Ints
    pads: Pads

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.input)

    @property
    def extent(self) -> Ints:
        """Input positions that a window spans (the kernel with its dilation)."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel_shape, self.dilations))

    @property
    def taps(self) -> int:
        """Positions in one window."""
        return int(np.prod(self.kernel_shape, dtype=np.int64))

    def positions(self) -> Iterator[Ints]:
        """Kernel positions in ascending (row-major) order."""
        return itertools.product(*map(range, self.kernel_shape))

    def overlaps(self) -> Iterator[Overlap]:
        """The kernel positions that meet the input at all, ascending, and where they do.

        All of them together cost as many steps as windows have elements inside the input, however
        large kernel, dilations and pads are.
        """
        for met in itertools.product(*self._axis_overlaps()):
            position, output, seen = zip(*met) if met else ((), (), ())
            yield Overlap(tuple(position), over_spatial(output), over_spatial(seen))

    @property
    def seen_taps(self) -> int:
        """Kernel positions that meet the input at some output position."""
        return math.prod(map(len, self._axis_overlaps()))

    def _axis_overlaps(self) -> list[list[tuple[int, slice, slice]]]:
        begins = [begin for begin, _ in self.pads]
        numbers = (self.input, self.output, self.kernel_shape, self.strides, self.dilations, begins)
        return [_axis_overlaps(*axis) for axis in zip(*numbers)]

    @property
    def transposed(self) -> Windows:
        """Input and output exchanged: what a transposed convolution's windows are read as.

        Its kernel position k then reads at input position i what the convolution writes there.
        """
        return dataclasses.replace(self, input=self.output, output=self.input)

    def can_store_border(self, lead: int) -> bool:
        """Whether an input [*lead, *input] with its border is small, or no more than BORDER_SHARE
        times as large as input and output together.
        """
        reach = [
            max(begin + n, (o - 1) * s + e)
            for n, o, s, e, (begin, _) in zip(
                self.input, self.output, self.strides, self.extent, self.pads
            )
        ]
        return border_is_modest(lead, self.input, self.output, reach)

    def can_store_pads(self, x: np.ndarray) -> bool:
        """Whether x [..., *input] may be stored with all its pads, wherever windows end."""
        reach = [begin + n + end for n, (begin, end) in zip(self.input, self.pads)]
        lead = math.prod(x.shape[: x.ndim - self.rank])
        return border_is_modest(lead, self.input, self.output, reach)

    def padded(self, x: np.ndarray, fill: Any = 0) -> Padded:
        """x [..., *input] with `fill` around it, to be looked at tap by tap."""
        stored = self.can_store_border(math.prod(x.shape[: x.ndim - self.rank]))
        return Padded(self, self.pad(x, fill) if stored else x, fill, stored)

    def pad(self, x: np.ndarray, fill: Any = 0) -> np.ndarray:
        """x [..., *input] with `fill` around it, so that every window lies inside."""
        reach = [(o - 1) * s + e for o, s, e in zip(self.output, self.strides, self.extent)]
        widths = [
            (begin, max(0, r - n - begin)) for r, n, (begin, _) in zip(reach, self.input, self.pads)
        ]
        if not any(map(any, widths)):
            return x
        lead = [(0, 0)] * (x.ndim - self.rank)
        return np.pad(x, lead + widths, constant_values=fill)

    def tap(self, padded: np.ndarray, position: Ints, rows: slice | None = None) -> np.ndarray:
        """What kernel position `position` sees at every output position: a view [..., *output].

        rows: restricts the first spatial axis of the output (a slice with start and stop).
        """
        slices = []
        for axis, (k, o, s, d) in enumerate(
            zip(position, self.output, self.strides, self.dilations)
        ):
            first, count = 0, o
            if axis == 0 and rows is not None:
                first, count = rows.start, rows.stop - rows.start
            start = first * s + k * d
            slices.append(slice(start, start + (count - 1) * s + 1, s))
        return padded[over_spatial(slices)]

    def counts(self, *, include_pad: bool) -> np.ndarray:
        """Taps of each window inside the input [*output]; with `include_pad`, inside input + pads.

        A window that ceil mode lets hang over the end of the padding is cut there.
        """
        total = np.ones((), np.int64)
        for n, o, k, s, d, (begin, end) in zip(
            self.input, self.output, self.kernel_shape, self.strides, self.dilations, self.pads
        ):
            low, high = (-begin, n + end) if include_pad else (0, n)
            at = np.arange(o) * s - begin
            first, last = -((at - low) // d), -((at - high) // d)
            inside = np.minimum(last, k) - np.maximum(first, 0)
            total = total[..., None] * np.maximum(inside, 0)
        return total


def border_is_modest(
    lead: int, input: Ints, output: Ints, reach: Sequence[int], stored: int = STORED
) -> bool:
    """Whether `lead` maps of sizes `reach` may be stored beside their input and output. stored:
    elements that they may have in any case."""
    map_size, own = math.prod(reach), math.prod(input) + math.prod(output)
    # The share first: of open sizes it holds for nearly all, whatever is stored.
    return map_size <= BORDER_SHARE * own or lead * map_size <= stored


@dataclass(frozen=True)
class Overlap:
    """A kernel position, the output positions at which it meets the input, and what it meets.

    output, input: indices into arrays [..., *output] and [..., *input], of equal shapes.
    """

    position: Ints
    output: Any
    input: Any


@dataclass(frozen=True)
class Padded:
    """An input with a border, stored only where that costs no more than input and output do.

    array: with its border when `stored`, else without.
    """

    windows: Windows
    array: np.ndarray
    fill: Any
    stored: bool

    def tap(self, position: Ints, rows: slice | None = None) -> np.ndarray:
        """What kernel position `position` sees at every output position: [..., *output].

        rows: restricts the first spatial axis of the output (a slice with start and stop). Not to
        be written to: it may be a view.
        """
        if self.stored:
            return self.windows.tap(self.array, position, rows)
        w, x = self.windows, self.array
        first = [0] * w.rank
        output = list(w.output)
        if rows is not None:
            first[0], output[0] = rows.start, rows.stop - rows.start
        seen = np.full((*x.shape[: x.ndim - w.rank], *output), self.fill, x.dtype)
        met = [
            _axis_overlap(n, o, k, s, d, begin - f * s)
            for n, o, k, s, d, (begin, _), f in zip(
                w.input, output, position, w.strides, w.dilations, w.pads, first
            )
        ]
        if all(m is not None for m in met):
            overlaps = [m for m in met if m is not None]
            seen[over_spatial([m[0] for m in overlaps])] = x[over_spatial([m[1] for m in overlaps])]
        return seen


def _axis_overlap(n: int, o: int, k: int, s: int, d: int, begin: int) -> tuple[slice, slice] | None:
    """Output positions at which tap k of an axis lies inside the input, and where; None: never."""
    low = max(0, -((k * d - begin) // s))
    high = min(o, (n - 1 + begin - k * d) // s + 1)
    if low >= high:
        return None
    start = low * s + k * d - begin
    return slice(low, high), slice(start, start + (high - low - 1) * s + 1, s)


def _axis_overlaps(
    n: int, o: int, size: int, s: int, d: int, begin: int
) -> list[tuple[int, slice, slice]]:
    """The taps of an axis that meet the input, ascending, with `_axis_overlap` of each."""
    if not n or not o:
        return []
    if size <= o + n:
        taps: Any = range(size)
    else:  # of a kernel that is larger than what it looks at, the taps of each output position
        at = np.arange(o, dtype=object)[::-1] * s - begin
        ends = [(max(0, -(a // d)), min(size, (n - 1 - a) // d + 1)) for a in at]
        taps, done = [], 0
        for first, last in ends:
            taps += range(max(first, done), last)
            done = max(done, last)
    overlaps = ((k, _axis_overlap(n, o, k, s, d, begin)) for k in taps)
    return [(k, *met) for k, met in overlaps if met is not None]


@dataclass(frozen=True)
class WindowGeometry:
    """Completed attributes of a windowed operator, one entry per spatial axis.

    pads: numbers, or "SAME_UPPER" or "SAME_LOWER" while the input's size may be a symbol.
    ceil_mode: windows that begin inside the input or its left padding may hang over the end.
    """

    kernel_shape: Ints
    strides: Ints
    dilations: Ints
    pads: Pads | str
    ceil_mode: bool = False

    @property
    def extent(self) -> Ints:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel_shape, self.dilations))

    def output_dims(
        self, sizes: Sequence[DimLike], fail: Fail = raise_graph_error
    ) -> tuple[DimLike, ...]:
        """Sizes after sliding the window; fails when a window is larger than its padded input."""
        if isinstance(self.pads, str):
            return tuple(ceildiv(n, s) for n, s in zip(sizes, self.strides))
        dims: list[DimLike] = []
        for axis, (n, e, s, (begin, end)) in enumerate(
            zip(sizes, self.extent, self.strides, self.pads)
        ):
            if self.ceil_mode:
                # As many windows as cover the padded input, but one less if the last begins in the
                # end padding: in one division, as long as that padding is no larger than a window.
                out = floordiv(n + (begin - 1 + min(0, end - e + s)), s) + 1
                if end > e:
                    out = maximum(out, ceildiv(n + (begin + end - e), s))
            else:
                out = floordiv(n + (begin + end - e), s) + 1
            if (is_known(out) or assumptions() is not None) and out < 1:
                fail(
                    f"a window of {e} does not fit into spatial axis {axis} of size {n} "
                    f"with pads {(begin, end)}"
                )
            dims.append(out)
        return tuple(dims)

    def resolved_pads(self, sizes: Sequence[int]) -> Pads:
        """The pads in numbers for an input of these sizes."""
        if not isinstance(self.pads, str):
            return self.pads
        pads = []
        for n, e, s in zip(sizes, self.extent, self.strides):
            total = int(max(0, (ceildiv(n, s) - 1) * s + e - n))
            pads.append(split_same(total, self.pads))
        return tuple(pads)

    def windows(self, sizes: Sequence[int], fail: Fail = raise_graph_error) -> Windows:
        """The windows over an input of these sizes."""
        output = tuple(map(size_of, self.output_dims(sizes, fail)))
        return Windows(
            tuple(map(size_of, sizes)),
            output,
            self.kernel_shape,
            self.strides,
            self.dilations,
            self.resolved_pads(sizes),
        )


def size_of(dim: DimLike) -> int:
    """A dimension as a number, or what stands for one."""
    return dim if assumptions() is not None else int(dim)  # type: ignore[return-value]


def split_same(total: int, rule: str) -> tuple[int, int]:
    """Total padding as (begin, end): SAME_UPPER puts the odd one at the end, SAME_LOWER first."""
    small, large = total // 2, total - total // 2
    return (small, large) if rule == "SAME_UPPER" else (large, small)


def geometry(
    kernel_shape: Sequence[DimLike],
    strides: Ints,
    pads: Pads | str,
    dilations: Ints = (),
    ceil_mode: bool = False,
    fail: Fail = raise_graph_error,
) -> WindowGeometry:
    """Check and complete attributes: empty strides and dilations mean 1, empty pads mean 0."""
    rank = len(kernel_shape)
    if not all(isinstance(k, int) for k in kernel_shape):
        fail(f"the sizes of the kernel must be known, not ({', '.join(map(str, kernel_shape))})")
    if any(k < 1 for k in kernel_shape):  # type: ignore[operator]
        fail(f"kernel_shape must be positive numbers, not ({', '.join(map(str, kernel_shape))})")
    strides = per_axis("strides", strides, rank, 1, fail)
    dilations = per_axis("dilations", dilations, rank, 1, fail)
    if isinstance(pads, str):
        if pads not in SAME_RULES:
            fail(f"pads must be numbers or one of {', '.join(SAME_RULES)}, not {pads!r}")
        if ceil_mode:
            fail("ceil_mode cannot be combined with the rule of SAME padding")
    else:
        pads = pads or ((0, 0),) * rank
        if len(pads) != rank or any(isinstance(p, int) or len(p) != 2 for p in pads):
            fail(f"pads must be {rank} pairs (begin, end), not {pads}{_as_pairs(pads, rank)}")
        if any(p < 0 for pair in pads for p in pair):
            fail(f"pads must not be negative: {pads}")
    numbers = tuple(int(k) for k in kernel_shape)  # type: ignore[arg-type]
    if math.prod(numbers) > MAX_TAPS:
        fail(f"a window of {numbers} is absurdly large")
    return WindowGeometry(numbers, strides, dilations, pads, ceil_mode)


def _as_pairs(pads: Sequence[object], rank: int) -> str:
    """What pads in a row would be as pairs, for whoever wrote them as ONNX or PyTorch does."""
    if not all(isinstance(p, int) for p in pads):
        return ""
    if len(pads) == 2 * rank:
        return f"; all begins and then all ends are {tuple(zip(pads[:rank], pads[rank:]))}"
    return f"; the same on both sides is {tuple(zip(pads, pads))}" if len(pads) == rank else ""


def kernel_dims(kernel_shape: Ints, weights: Sequence[DimLike], fail: Fail) -> Sequence[DimLike]:
    """The kernel's sizes from the attribute, when given, and the weights' spatial dimensions."""
    if not kernel_shape:
        return weights
    differs = any(is_known(w) and w != k for k, w in zip(kernel_shape, weights))
    if len(kernel_shape) != len(weights) or differs:
        fail(f"kernel_shape is {kernel_shape}, the weights have {tuple(weights)}")
    return kernel_shape


def per_axis(name: str, values: Ints, rank: int, min_value: int, fail: Fail) -> Ints:
    """An attribute with one number per spatial axis; when empty, `least` everywhere."""
    values = tuple(values) or (min_value,) * rank
    if len(values) != rank or any(v < min_value for v in values):
        fail(f"{name} must be {rank} numbers of at least {min_value}, not {values}")
    return values


def spatial_input(ctx: Inference, *, integers: bool = False) -> TensorType:
    """Type of input 0 as [batch, channels, *spatial]; fails on other ranks and element types."""
    x = ctx.type(0)
    if x.rank < 3:
        ctx.fail(f"the input needs batch, channel and spatial axes, and is {x}")
    if not x.dtype.is_float and not (integers and x.dtype.is_integer):
        ctx.fail(f"the element type {x.dtype} is not allowed here")
    return x


def lowest(dtype: np.dtype) -> Any:
    """What a maximum over nothing gives: -inf, or the smallest integer."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def same_floats(ctx: Inference, *indices: int) -> DType:
    """The one float type of the given inputs (omitted ones aside); fails when they differ."""
    dtype = ctx.type(indices[0]).dtype
    ctx.require(dtype.is_float, f"input {indices[0]} must be a float tensor, not {dtype}")
    for i in indices[1:]:
        if ctx.has(i) and ctx.type(i).dtype != dtype:
            ctx.fail(f"input {i} is {ctx.type(i).dtype}, input {indices[0]} is {dtype}")
    return dtype


def expect_dims(ctx: Inference, index: int, dims: Sequence[DimLike], name: str) -> None:
    """Fail when optional input `index` is there and its dimensions certainly are not `dims`."""
    if not ctx.has(index):
        return
    type_ = ctx.type(index)
    wrong = type_.rank != len(dims) or any(
        is_known(a) and is_known(b) and a != b for a, b in zip(type_.dims, dims)
    )
    ctx.require(
        not wrong, f"{name} (input {index}) is {type_}, expected [{', '.join(map(str, dims))}]"
    )
