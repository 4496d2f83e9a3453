"""Where elements lie, and what is done to a result before it is stored.

Activations are blocked: channels in blocks of 16, lane fastest ("NCHW16c"), with one stride for
each of batch, block, depth, row and pixel. A planar tensor (NCHW) is the same with other strides.
Pointers point at the first logical element; a physical border of zeros may lie around it, at
negative offsets and past the end, and is promised by whoever allocates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index
from verax.compiler.kernels.llvm.side_by_side import equal_groups, evaluate_each, in_step, is_chain
from verax.compiler.kernels.sizes import Size
from verax.compiler.kernels.target import LANES
from verax.numerics.arith import PRIMITIVES
from verax.numerics.expr import Apply, Expr, nodes

Triple = tuple[int, int, int]
"""Depth, row, column; 1 (or 0, for pads) where a tensor has fewer axes."""


Sizes = tuple[Size, Size, Size]
"""A triple of which some may be known only when the kernel runs."""


def by(sizes: Sizes) -> str:
    """Three sizes as text: 3x3, or 3x3x3 where there is a depth."""
    return "x".join(map(str, sizes[1:] if sizes[0] == 1 else sizes))


@dataclasses.dataclass(frozen=True)
class Strides:
    """Distances in elements. block: from a block of 16 channels to the next; lane: from a channel
    to the next within a block (1 when blocked)."""

    batch: Size
    block: Size
    depth: Size
    row: Size
    pixel: Size = LANES
    lane: Size = 1

    @property
    def space(self) -> Sizes:
        return self.depth, self.row, self.pixel

    def upright(self) -> Strides:
        """Of the same tensor, its columns as rows."""
        return dataclasses.replace(self, row=self.pixel, pixel=self.row)

    def at(
        self,
        f: FunctionBuilder,
        pointer: ir.Value,
        batch: Index,
        block: Index,
        position: Sequence[Index],
        offset: Sizes = (0, 0, 0),
        dtype: str = "float32",
    ) -> ir.Value:
        """Pointer to a block of channels at spatial index `position` + `offset`."""
        fixed = sum(o * s for o, s in zip(offset, self.space, strict=True))
        terms = list(zip(position, self.space, strict=True))
        start = (batch, self.batch), (block, self.block)
        return f.at(pointer, *start, *terms, fixed, dtype=dtype)


def blocked_strides(channels: int, size: Triple, border: Sequence[tuple[int, int]] = ()) -> Strides:
    """Strides of a dense blocked tensor of `channels` and `size`, with `border` = (before, after)
    physical zeros around depth, row and column."""
    d, h, w = _physical(size, border)
    block = d * h * w * LANES
    return Strides(-(-channels // LANES) * block, block, h * w * LANES, w * LANES)


def planar_strides(channels: int, size: Triple, border: Sequence[tuple[int, int]] = ()) -> Strides:
    """Strides of a dense NCHW tensor; see `blocked_strides`."""
    d, h, w = _physical(size, border)
    plane = d * h * w
    return Strides(channels * plane, LANES * plane, h * w, w, 1, plane)


def _physical(size: Triple, border: Sequence[tuple[int, int]]) -> Triple:
    before_after = list(border) or [(0, 0)] * 3
    d, h, w = (n + b + a for n, (b, a) in zip(size, before_after, strict=True))
    return d, h, w


@dataclasses.dataclass(frozen=True)
class Operand:
    """A further input of an epilogue. kind: "channel", one value per output channel, padded to 16;
    or "tensor", with the output's logical shape and its own `strides`, some of which may be 0;
    lanes must be neighbors (1) or one value (0)."""

    kind: str
    strides: Strides | None = None
    dtype: str = dataclasses.field(kw_only=True)


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """What happens to a result on its way to memory: `expr` over the accumulator (input 0) and
    the operands (inputs 1, 2, ...)."""

    expr: Expr
    operands: tuple[Operand, ...] = ()


MANY_OPERATIONS = 12
"""An expression of so many, or with a function, is evaluated in a loop over what a tile has
stored: written out for every vector of a tile it takes the registers that hold the others."""


def calls_function(expr: Expr) -> bool:
    """Whether an expression has an elementary function: a polynomial and more for each vector."""
    return any(isinstance(n, Apply) and n.function not in PRIMITIVES for n in nodes(expr))


def is_long(epilogue: Epilogue | None) -> bool:
    """Whether an epilogue takes many operations for each vector."""
    if epilogue is None:
        return False
    operations = sum(isinstance(n, Apply) for n in nodes(epilogue.expr))
    return operations > MANY_OPERATIONS or calls_function(epilogue.expr)


def fused(epilogue: Epilogue | None) -> str:
    """How a spec's text tells of its epilogue."""
    return (
        f" + {len(epilogue.operands)} operands"
        if epilogue and epilogue.operands
        else (" + expression" if epilogue else "")
    )


def operand_dtypes(epilogue: Epilogue | None) -> tuple[str, ...]:
    """Element types of what an epilogue reads and gives."""
    return () if epilogue is None else (*(o.dtype for o in epilogue.operands), epilogue.expr.dtype)


def load_operands(
    f: FunctionBuilder,
    epilogue: Epilogue | None,
    pointers: Sequence[ir.Value],
    batch: Index,
    block: Index,
    position: Sequence[Index],
    offset: Sizes,
    count: Index | None,
    loaded: dict[tuple[int, Index], ir.Value],
) -> list[ir.Value]:
    """The operands' vectors for the block of output channels at `position` + `offset`.

    count: number of channels of this block that tensors have; None for 16. loaded: cache of the
    operands that do not depend on the position, by (operand index, block); extended here.
    """
    vectors = []
    operands = epilogue.operands if epilogue else ()
    for i, (operand, pointer) in enumerate(zip(operands, pointers, strict=True)):
        if operand.strides is None:
            if (i, block) not in loaded:
                address = f.at(pointer, (block, LANES), dtype=operand.dtype)
                loaded[i, block] = f.load(address, operand.dtype)
            vectors.append(loaded[i, block])
        else:
            address = operand.strides.at(f, pointer, batch, block, position, offset, operand.dtype)
            vectors.append(load_lanes(f, operand.strides, address, count, operand.dtype))
    return vectors


def load_lanes(
    f: FunctionBuilder,
    strides: Strides,
    address: ir.Value,
    count: Index | None = None,
    dtype: str = "float32",
) -> ir.Value:
    """A block of channels: 16 neighbors, the first `count` of them, or one value for all."""
    if strides.lane == 0:
        return f.broadcast(address, dtype)
    assert strides.lane == 1, "a vector of channels is loaded from neighbors"
    return f.load(address, dtype) if count is None else f.load_first(address, count, dtype)


def finished(
    f: FunctionBuilder,
    epilogue: Epilogue | None,
    pointers: Sequence[ir.Value],
    values: Sequence[ir.Value],
    locations: Sequence[tuple[Index, Index, Sequence[Index], Sizes]],
    counts: Sequence[Index | None] = (),
) -> Iterator[ir.Value]:
    """`values`, vectors of 16, after `epilogue`, whose operands lie at `pointers`.

    locations: (batch, block, position, offset) of each value. counts: see `load_operands`. An
    iterator, which emits a vector's code when it is consumed; epilogues with elementary functions
    are emitted for several vectors at once."""
    counts = counts or [None] * len(values)
    if epilogue is None:
        yield from values
        return
    size = in_step(f.module.target) if is_chain([epilogue.expr]) else 1
    loaded: dict[tuple[int, Index], ir.Value] = {}
    for first, trips, width in equal_groups(len(values), size):
        for start in range(first, first + trips * width, width):
            inputs = [
                [values[i], *load_operands(f, epilogue, pointers, *locations[i], counts[i], loaded)]
                for i in range(start, start + width)
            ]
            for (value,) in evaluate_each(f, [epilogue.expr], inputs):
                yield value
