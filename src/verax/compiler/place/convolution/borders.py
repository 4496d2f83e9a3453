"""Which buffers with borders of zeros keep memory of their own, and which have them written anew.

A border that nobody writes stays zero if nothing else ever lies there: that costs no time, but such
buffers share memory with their own kind alone, and made arenas two to three times as large as what
lives at once. So only small buffers keep theirs. Of the others, the large images, a border is a
small part: it is written in every run, just before the step that writes what it surrounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.place.calls import KernelCall, Step
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.memory import Lifetime, bordered_bytes, most_alive
from verax.compiler.place.storage import Buffer, Geometry, Placed, Pointer
from verax.numerics.expr import Const

KEPT_SHARE = 0.2
"""What buffers that keep their borders may take, as a share of the bytes that live at once."""
SLACK = 1 << 20
"""Bytes more than live at once that are not worth a step."""
_ZEROS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def write_borders(
    lowering: Lowering, lifetimes: Mapping[Buffer, Lifetime], times: Mapping[int, int]
) -> None:
    """Add the steps that write borders, and take the mark of one from the buffers that have them.

    lifetimes: of all arena buffers, in the steps there are. times: the step that begins at a time.
    What is first written inside of a branch or loop keeps its border.
    """
    min_arena = most_alive(lifetimes)
    kinds: dict[Geometry, dict[Buffer, Lifetime]] = {}
    for buffer, alive in lifetimes.items():
        if buffer.geometry is not None:
            kinds.setdefault(buffer.geometry, {})[buffer] = alive
    sizes = {kind: bordered_bytes(buffers) for kind, buffers in kinds.items()}
    borderless_arena = most_alive({b: t for b, t in lifetimes.items() if not b.bordered})
    if borderless_arena + sum(sizes.values()) <= min_arena * (1 + KEPT_SHARE) + SLACK:
        return
    before: dict[int, list[Step]] = {}
    border_bytes = 0
    for kind in sorted(kinds, key=lambda kind: sizes[kind]):
        border_bytes += sizes[kind]
        if border_bytes <= KEPT_SHARE * min_arena:
            continue
        for buffer, (first, _) in kinds[kind].items():
            if first in times:
                before.setdefault(times[first], []).extend(
                    _filling(lowering, buffer, kind, 0, _ZEROS[kind.itemsize])
                )
                buffer.geometry = None
    lowering.calls.steps = [
        one for i, step in enumerate(lowering.calls.steps) for one in (*before.get(i, ()), step)
    ]


def write_border(lowering: Lowering, placed: Placed, fill: int) -> None:
    """Append the steps that fill the border of an integer value with `fill` in every run."""
    kind = placed.physical.geometry
    assert kind is not None, "a value with a border"
    placed.buffer.geometry = None
    dtype = str(placed.physical.type.dtype)
    lowering.calls.steps += _filling(lowering, placed.buffer, kind, fill, dtype)


def _filling(
    lowering: Lowering, buffer: Buffer, kind: Geometry, fill: int, dtype: str
) -> Iterator[KernelCall]:
    """The calls that write the border of a buffer."""
    strides = [math.prod(kind.extents[i + 1 :]) for i in range(len(kind.extents))]
    label = f"{fill or 'zeros'} around an image"
    for offset, dims, steps in _sides(kind, strides):
        spec = LoopSpec(dims, (), (Access(dtype, steps),), (Const(fill, dtype),))
        target = Pointer(buffer, offset * kind.itemsize)
        yield KernelCall(spec, lowering.calls.schedule(spec), (target,), label)


Box = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Elements before it, dims, strides."""


def _sides(kind: Geometry, strides: list[int]) -> Iterator[Box]:
    """The boxes that a border is made of: before and after the first spatial axis, then of what
    lies between along the next one. Two that are alike are one with an axis more."""
    dims, offset = list(kind.extents), 0
    for axis, (begin, end) in enumerate(kind.borders, start=2):
        inside, step = dims[axis] - begin - end, strides[axis]
        sides = [(start, n) for start, n in ((0, begin), (begin + inside, end)) if n]
        pair = begin == end
        for start, count in sides[:1] if pair else sides:
            twice, apart = ((2,), ((begin + inside) * step,)) if pair else ((), ())
            yield (
                offset + start * step,
                (*dims[:axis], *twice, count, *dims[axis + 1 :]),
                (*strides[:axis], *apart, *strides[axis:]),
            )
        dims[axis] = inside
        offset += begin * strides[axis]
