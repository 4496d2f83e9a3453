"""Where values lie in memory: buffers, and how a tensor is laid out in one.

A `Buffer` is a piece of one of the memory spaces that a program owns or is handed. A `Placed` value
is a buffer plus a physical layout: plain (row-major, as NumPy has it), blocked (batch, blocks of 16
channels, spatial axes, lane) or pixels (the same with one block of all channels). Each may have a
border of zeros around its spatial axes, which producers never write and convolutions read as
padding.
"""

from __future__ import annotations

import dataclasses
import enum
import math

from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import LANES
from verax.compiler.plan.layouts import Layout, Pads
from verax.ir.types import TensorType

ALIGNMENT = 64


class MemorySpace(enum.StrEnum):
    """Whose memory a buffer is in."""

    arena = "arena"  # planned, reused, zeroed once when the program is loaded
    weights = "weights"  # constants, packed at compile time
    sizes = "sizes"  # the table of a program of open sizes (`size_table`)
    io = "io"  # the caller's arrays: one slot per graph input and output


@dataclasses.dataclass(frozen=True)
class Geometry:
    """What two bordered values must share to share a buffer: sizes with borders, axis by axis, and
    zeros before and after each spatial axis (the third and those that follow)."""

    layout: Layout
    itemsize: int
    extents: tuple[int, ...]
    borders: Pads


@dataclasses.dataclass(eq=False)
class Buffer:
    """`nbytes` of a memory space. `slot` numbers a caller's array. `bordered` buffers hold zero
    borders that nobody writes: they are shared only by values of the same geometry and never
    overlap others (but see `borders`)."""

    space: MemorySpace
    nbytes: int
    slot: int = -1
    geometry: Geometry | None = None
    offset: int = -1

    @property
    def bordered(self) -> bool:
        return self.geometry is not None


@dataclasses.dataclass(frozen=True)
class Pointer:
    """A pointer a kernel gets: a buffer and a byte offset into it; inside of a loop `step` bytes
    further at each run."""

    buffer: Buffer
    byte_offset: Size = 0
    step: Size = 0


@dataclasses.dataclass(frozen=True)
class Physical:
    """A static tensor type in a layout with zero borders of `pads` around its spatial axes."""

    type: TensorType
    layout: Layout = Layout.plain
    pads: Pads = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def spatial(self) -> tuple[int, ...]:
        return self.shape[2:]

    @property
    def blocks(self) -> int:
        """Channel blocks of a blocked tensor."""
        return ceil_div(self.shape[1], LANES)  # type: ignore[return-value]  # as `TensorType.shape`

    @property
    def borders(self) -> Pads:
        """Border per spatial axis (begin, end)."""
        return self.pads or ((0, 0),) * max(0, len(self.shape) - 2)

    @property
    def padded(self) -> tuple[int, ...]:
        """Spatial sizes with borders."""
        return tuple(n + a + b for n, (a, b) in zip(self.spatial, self.borders))

    @property
    def extents(self) -> tuple[int, ...]:
        """Sizes of the physical array: plain (N, C, *padded), blocked (N, blocks, *padded, 16),
        pixels (N, 1, *padded, C)."""
        if self.layout is Layout.blocked:
            return (self.shape[0], self.blocks, *self.padded, LANES)
        if self.layout is Layout.pixels:
            return (self.shape[0], 1, *self.padded, self.shape[1])
        return (*self.shape[:2], *self.padded) if self.pads else self.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Element strides matching `extents`."""
        strides, step = [], 1
        for size in reversed(self.extents):
            strides.append(step)
            step *= size
        return tuple(reversed(strides))

    @property
    def axis_strides(self) -> tuple[int, ...]:
        """Element strides per axis of the type; not of a blocked tensor, which has none for
        channels."""
        assert self.layout is not Layout.blocked
        if self.layout is Layout.plain:
            return self.strides
        batch, _, *space, channel = self.strides
        return (batch, channel, *space)

    @property
    def origin(self) -> int:
        """Element offset of the first logical element."""
        return sum(a * s for (a, _), s in zip(self.borders, self.strides[2:]))

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, borders and spare lanes included."""
        return math.prod(self.extents) * self.type.dtype.itemsize

    @property
    def has_border(self) -> bool:
        return any(a or b for a, b in self.borders)

    @property
    def geometry(self) -> Geometry | None:
        """Of a value with a border."""
        if not self.has_border:
            return None
        return Geometry(self.layout, self.type.dtype.itemsize, self.extents, self.borders)


@dataclasses.dataclass(frozen=True)
class Placed:
    """A value in memory."""

    physical: Physical
    buffer: Buffer
    byte_offset: Size = 0

    @property
    def pointer(self) -> Pointer:
        """Pointer to the first logical element."""
        return Pointer(
            self.buffer,
            self.byte_offset + self.physical.origin * self.physical.type.dtype.itemsize,
        )

    def blocks(self, type_: TensorType, first: int) -> Placed:
        """The channels of a blocked value from block `first` on, as a value of `type_`.

        Its images are as far apart as those of the whole, which its strides do not tell.
        """
        physical = Physical(type_, Layout.blocked, self.physical.pads)
        offset = first * self.physical.strides[1] * type_.dtype.itemsize
        return Placed(physical, self.buffer, self.byte_offset + offset)
