"""The pass ahead of Winograd's transforms: how large the input is, by pixel, tile and output.

It reads the input once and leaves tables (`winograd_tiles.Tables`) that the transforms look into:
where a tile must be scaled, where an output sees zeros only, where something is not finite.
"""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

from verax.compiler.kernels.convolution.winograd_tiles import Tables, WinogradInput
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open, ceil_div, static_size
from verax.compiler.kernels.target import LANES, Target
from verax.numerics import power_of_two, winograd

BITS = "int32"
QUARTER = 4
"""Lanes of 128 bits, within which shuffles are cheap."""


@dataclasses.dataclass(frozen=True)
class WinogradScales:
    """Magnitudes of the pixels that tiles of `source` see, scales of the tiles, factors of outputs.

    Arguments of the kernel: x, magnitudes, scales, factors.
    """

    source: WinogradInput

    def __str__(self) -> str:
        return f"float32 scales of {self.source.tiling} of {self.source.channels} channels"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return self.source.dtypes


def lanes_of(target: Target) -> int:
    """Magnitudes in a register."""
    return target.vector_bits // 32


@emits(WinogradScales, dtypes=("float32",), settle=all_open)
def emit_scales(module: ModuleBuilder, spec: WinogradScales) -> Kernel:
    """The kernel that fills the tables. Items: chunks of rows of tiles of an image and a group."""
    f = module.kernel(("winograd_scales", spec), 4)
    if f.kernel is not None:
        return f.kernel
    source, tables, tiling = spec.source, spec.source.tables, spec.source.tiling
    x, magnitudes, scales, factors = f.args
    blocks = -(-source.channels // LANES) // source.groups
    with f.items() as item:
        image, chunk = f.split(item.index, tables.chunks)
        batch, group = f.split(image, source.groups)
        first = f.imul(chunk, tables.chunk)
        trips: Index = f.clamp(f.iadd(tiling.down, f.imul(first, -1)), 0, tables.chunk)
        seen = source.x.at(
            f, x, batch, f.imul(group, blocks), [0, f.imul(first, tiling.tile), 0], dtype=BITS
        )
        seen = f.at(seen, source.first, dtype=BITS)
        rows = f.at(magnitudes, (item.index, tables.chunk_elements), dtype=BITS)
        with f.loop(f.iadd(f.imul(trips, tiling.tile), 2)) as r:
            _emit_magnitudes(
                f,
                source,
                f.at(seen, (r.index, source.x.row), dtype=BITS),
                f.at(rows, (r.index, tables.reach), dtype=BITS),
            )
        lanes = lanes_of(f.module.target)
        with f.loop(trips) as t, f.loop(tables.width // lanes) as c:
            down = f.iadd(f.imul(image, tiling.down), f.iadd(first, t.index))
            col = f.imul(c.index, lanes)
            above = f.imul(t.index, tiling.tile * tables.reach)
            emit_scales_of_columns(
                f,
                tables,
                lanes,
                f.at(rows, above, col, dtype=BITS),
                f.at(scales, (down, tables.width // tiling.tile), f.idiv(col, tiling.tile)),
                f.at(factors, (f.imul(down, tiling.tile), tables.width), col),
            )
    pixels = tiling.tiles * tiling.tile**2
    return f.finish(tables.images * tables.chunks, 0, 4 * pixels * (source.channels + 2))


def _emit_magnitudes(
    f: FunctionBuilder, source: WinogradInput, row: ir.Value, target: ir.Value
) -> None:
    """Of a row of pixels, as many at a time as a register has lanes."""
    lanes = lanes_of(f.module.target)
    width = source.tiling.across * source.tiling.tile + 2
    count = min(lanes, width) if isinstance(width, int) else lanes

    def piece_at(col: Index, count: int) -> tuple[ir.Value, ir.Value]:
        start = f.at(row, (col, source.x.pixel), dtype=BITS)
        magnitudes = _largest(f, source, start, count, lanes)
        return _in_order(f, magnitudes, lanes), f.at(target, col, dtype=BITS)

    fits = nullcontext() if isinstance(width, int) else f.when(_is_least(f, width, count))
    with fits, f.loop(ceil_div(width, count)) as piece:
        col = f.clamp(f.imul(piece.index, count), 0, width - count)  # the last may reach back
        f.store(*piece_at(col, count))
    if not isinstance(width, int):
        with f.when(f.b.not_(_is_least(f, width, count))), f.loop(width) as pixel:
            value, address = piece_at(pixel.index, 1)
            f.store(f.b.extract_element(value, ir.Constant(I32, 0)), address)


def _is_least(f: FunctionBuilder, width: Size, count: int) -> ir.Value:
    return f.b.icmp_signed(">=", f.i64(width), f.i64(count))


def _largest(
    f: FunctionBuilder, source: WinogradInput, start: ir.Value, pixels: int, lanes: int
) -> list[Typed]:
    """Of each pixel, `lanes` magnitudes, of which the largest is that of all its channels."""
    m = LlvmArith(f, lanes)
    full, left = divmod(source.channels // source.groups, LANES)
    remainder = static_size(left)
    magnitudes: list[Typed] = []

    def larger(before: list[Typed], block: Index, valid: int) -> list[Typed]:
        """With a block of channels, of which the first `valid` exist."""
        after = list(before)
        for offset in range(0, valid, lanes):
            lane_masks = [power_of_two.MAGNITUDE_MASK * (offset + i < valid) for i in range(lanes)]
            mask = Typed(ir.Constant(f.vector_type(BITS, lanes), lane_masks), BITS)
            for p in range(pixels):
                address = f.at(start, (block, source.x.block),
                             p * source.x.pixel + offset,
                             dtype=BITS)  # fmt: skip
                magnitude = m.and_(m.bind(f.load(address, BITS, lanes), BITS), mask)
                if p == len(after):
                    after.append(magnitude)
                else:
                    after[p] = m.max(after[p], magnitude)
        return after

    if full == 1:
        magnitudes = larger(magnitudes, 0, LANES)
    elif full:
        none = m.const(0, BITS).value
        with f.loop(full, carry=[none] * pixels) as block:
            carried = [Typed(v, BITS) for v in block.values]
            block.next([v.value for v in larger(carried, block.index, LANES)])
        magnitudes = [Typed(v, BITS) for v in block.results]
    return larger(magnitudes, full, remainder) if remainder else magnitudes


def _in_order(f: FunctionBuilder, vectors: list[Typed], lanes: int) -> ir.Value:
    """Lane i is the largest of vector i: halves of two vectors are set against each other until
    one is left. Within 128 bits first, as registers are made of those."""
    m = LlvmArith(f, lanes)
    vectors = vectors + [m.const(0, BITS)] * (lanes - len(vectors))
    width = 1
    while len(vectors) > 1:
        if width < QUARTER:  # elements within each 128 bits
            even = [
                side * lanes + quarter + i
                for quarter in range(0, lanes, QUARTER)
                for side in (0, 1)
                for i in (0, 2)
            ]
            step = 1
        else:  # whole quarters
            even = [
                side * lanes + quarter + i
                for side in (0, 1)
                for quarter in range(0, lanes, 2 * QUARTER)
                for i in range(QUARTER)
            ]
            step = QUARTER
        neighbors = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [
            m.max(
                *(
                    Typed(f.b.shuffle_vector(a.value, b.value, _lanes([i + k for i in even])), BITS)
                    for k in (0, step)
                )
            )
            for a, b in neighbors
        ]
        width *= 2
    return vectors[0].value


def _lanes(numbers: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(numbers)), numbers)


def emit_scales_of_columns(
    f: FunctionBuilder,
    tables: Tables,
    lanes: int,
    rows: ir.Value,
    scales: ir.Value,
    factors: ir.Value,
) -> None:
    """Of so many columns of outputs of a row of tiles."""
    m, tile = LlvmArith(f, lanes), tables.tiling.tile
    none = m.const(0, BITS)

    def across(row: Index, finite: bool = False) -> Typed:
        """The largest of each three neighbors in a row of magnitudes."""
        columns = []
        for i in range(3):
            address = f.at(rows, (row, tables.reach), i, dtype=BITS)
            value = m.bind(f.load(address, BITS, lanes), BITS)
            columns.append(m.select(m.lt(value, limit), value, none) if finite else value)
        return m.max(m.max(columns[0], columns[1]), columns[2])

    def over_tile(value: Typed) -> Typed:
        """The largest of the tile's lanes, in each of them."""
        step = 1
        while step < tile:
            shuffled = f.shuffle(value.value, [i ^ step for i in range(lanes)])
            value, step = m.max(value, Typed(shuffled, BITS)), 2 * step
        return value

    def largest_finite(_: Any, __: Typed) -> tuple[Typed, ...]:
        with f.loop(tables.tiling.size, carry=[none.value]) as row:
            row.next([m.max(Typed(row.values[0], BITS), across(row.index, True)).value])
        return (over_tile(Typed(row.results[0], BITS)),)

    limit = m.const(winograd.NOT_FINITE, BITS)
    seen = [across(i) for i in range(tables.tiling.size)]
    fields = [m.max(m.max(seen[i], seen[i + 1]), seen[i + 2]) for i in range(tile)]
    largest = fields[0]
    for field in fields[1:]:
        largest = m.max(largest, field)
    largest = over_tile(largest)
    odd = m.ge(largest, limit)
    (finite,) = m.rarely(odd, largest_finite, (largest,), (largest,))
    scale, inverse = winograd.scales(m, finite)
    for i, field in enumerate(fields):
        f.store(winograd.factor(m, field, inverse).value, f.at(factors, i * tables.width))
    marked = m.select(odd, m.neg(scale), scale)
    f.store(f.shuffle(marked.value, list(range(0, lanes, tile))), scales)
