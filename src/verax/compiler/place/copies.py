"""Copies between layouts, and the accesses that loop kernels need for placed values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.place.storage import LANES, Physical, Placed, Pointer
from verax.compiler.plan.layouts import Layout
from verax.ir.dim import same
from verax.numerics.expr import Const, Expr, Input


def copies(source: Physical, target: Physical, expr: Expr | None = None) -> Iterator[LoopSpec]:
    """Loops (source, target) that together copy every element, whatever the two layouts are.

    expr: what is written, over the element read (input 0); by default that element itself.
    """
    dtype, stored = str(source.type.dtype), str(target.type.dtype)
    for (dims, read), (_, written) in zip(_walks(source, target), _walks(target, source)):
        yield LoopSpec(
            dims,
            (Access(dtype, *read),),
            (Access(stored, *written),),
            (expr or Input(0, dtype),),
        )


Walk = tuple[tuple[int, ...], tuple[tuple[int, ...], int]]


def _walks(physical: Physical, counterpart: Physical) -> Iterator[Walk]:
    """Index spaces that cover the tensor, with `physical`'s strides and offset in each.

    If either side is blocked: the whole channel blocks, then the channels of the last, partial one.
    """
    if Layout.blocked not in (physical.layout, counterpart.layout):
        yield physical.shape, (physical.axis_strides, 0)
        return
    n, channels, *space = physical.shape
    full, partial_lanes = divmod(channels, LANES)
    if physical.layout is Layout.blocked:
        batch, block, *steps, _ = physical.strides
        lane = 1
    else:
        batch, lane, *steps = physical.axis_strides
        block = LANES * lane
    if full:
        yield (n, full, *space, LANES), ((batch, block, *steps, lane), 0)
    if partial_lanes:
        yield (n, *space, partial_lanes), ((batch, *steps, lane), full * block)


@dataclasses.dataclass(frozen=True)
class View:
    """A row-major value, or a box of one: its strides need not be dense."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: Pointer

    def subview(self, box: Sequence[slice]) -> View:
        """The elements inside `box` (slices with start and stop)."""
        offset = sum(s.start * step for s, step in zip(box, self.strides))
        byte_offset = self.pointer.byte_offset + offset * ELEMENT_SIZES[self.dtype]
        shape = tuple(s.stop - s.start for s in box)
        return View(self.dtype, shape, self.strides, Pointer(self.pointer.buffer, byte_offset))


def view(placed: Placed) -> View:
    """A row-major placed value as a view."""
    assert placed.physical.layout is Layout.plain
    physical = placed.physical
    return View(str(physical.type.dtype), physical.shape, physical.strides, placed.pointer)


def copy_view(source: View, target: View) -> LoopSpec:
    """The loop (source, target) that copies one view into another of the same shape."""
    return LoopSpec(
        source.shape,
        (Access(source.dtype, source.strides),),
        (Access(target.dtype, target.strides),),
        (Input(0, source.dtype),),
    )


def fill(target: Physical, value: np.ndarray) -> LoopSpec:
    """The loop (target) that writes `value` (one element) everywhere."""
    dtype = str(target.type.dtype)
    expr: Expr = Const(value.item(), dtype)
    return LoopSpec(target.shape, (), (Access(dtype, target.strides),), (expr,))


def broadcast_strides(
    shape: Sequence[int], strides: Sequence[int], to: Sequence[int]
) -> tuple[int, ...]:
    """Strides of a tensor [shape] walked over the dims `to` it broadcasts to."""
    missing = len(to) - len(shape)
    return (0,) * missing + tuple(
        s if not same(n, 1) and (same(n, t) or n != 1) else 0
        for n, s, t in zip(shape, strides, to[missing:], strict=True)
    )
