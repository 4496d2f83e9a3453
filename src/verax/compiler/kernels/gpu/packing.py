"""Packing of right factors on a GPU: a thread for each row of 16 columns."""

from __future__ import annotations

from verax.compiler.kernels.convolution.schedule import ConvSchedule, filter_blocks
from verax.compiler.kernels.gpu.staging import is_multiple
from verax.compiler.kernels.gpu.tiles import TileSchedule, tile_schedule
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    I32,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.products.gemm import KNOWN, PackSpec
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open
from verax.compiler.kernels.target import LANES, Target


def _schedules(spec: PackSpec, target: Target) -> tuple[TileSchedule]:
    return (tile_schedule(spec.product.convolution(), target),)


@emits(PackSpec, dtypes=KNOWN, schedules=_schedules, target="gpu", settle=all_open)
def emit_pack(module: ModuleBuilder, pack: PackSpec, schedule: ConvSchedule) -> Kernel:
    """As `gemm.emit_pack_b`. Items: a row of a block of columns of one factor; neighbors are rows
    where those are neighbors in memory, else blocks."""
    spec, b, kind = pack.product, pack.b, pack.product.types.weights
    assert spec.convolution().step == 1, "pairs are packed when the network is compiled"
    f = module.kernel(("pack", pack, schedule.blocks), 2, hint="pack_b")
    if f.kernel is not None:
        return f.kernel
    blocks = filter_blocks(spec.convolution())
    with f.items() as item:
        if b.row == 1:
            outer, inner, block, row = f.split(item.index, spec.inner, blocks, spec.k)
        else:
            outer, inner, row, block = f.split(item.index, spec.inner, spec.k, blocks)
        column = f.imul(block, LANES)
        terms = (outer, b.outer), (inner, b.inner), (row, b.row), (column, b.col)
        source = f.at(f.args[0], *terms, dtype=kind)
        value = _row(f, source, b.col, f.iadd(spec.n, f.imul(column, -1)), spec.n, kind)
        matrix = f.iadd(f.imul(outer, spec.inner), inner), spec.packed_elements
        offset = _offset(f, spec.k, blocks, schedule.blocks, block, row)
        f.store(value, f.at(f.args[1], matrix, offset, dtype=kind))
    factors = spec.outer * spec.inner
    elements = factors * (spec.packed_elements + spec.n * spec.k)
    return f.finish(factors * blocks * spec.k, 0, ELEMENT_SIZES[kind] * elements)


def _offset(
    f: FunctionBuilder, k: Size, blocks: Size, together: int, block: Index, row: Index
) -> Index:
    """Where a block's row lies in panels of `together` blocks, of which the last has what is left
    (`convolution.pack.sections`)."""
    if together == 1:
        return f.imul(f.iadd(f.imul(block, k), row), LANES)
    in_full_panels = blocks // together * together
    panel = f.imul(f.idiv(block, together), together)
    width: Index = together
    remainder = blocks - in_full_panels
    if not is_multiple(blocks, together):
        is_full = f.b.icmp_signed("<", f.i64(block), f.i64(in_full_panels))
        width = f.b.select(is_full, f.i64(together), f.i64(remainder))
    within = f.iadd(block, f.imul(panel, -1))
    elements = f.iadd(f.iadd(f.imul(panel, k), f.imul(row, width)), within)
    return f.imul(elements, LANES)


def _row(
    f: FunctionBuilder, source: ir.Value, step: Size, left: Index, n: Size, kind: str
) -> ir.Value:
    """16 elements `step` apart, zeros from the `left`-th on, where nothing is read."""
    is_full = isinstance(n, int) and n % LANES == 0
    count = f.clamp(left, 0, LANES)
    if isinstance(step, int) and step == 1:
        return f.load(source, kind) if is_full else f.load_first(source, count, kind)
    vector: ir.Value = ir.Constant(f.vector_type(kind), None)
    for lane in range(LANES):
        inside: Index = lane
        if not is_full:  # spare lanes read the first column again
            exists = f.b.icmp_signed("<", f.i64(lane), f.i64(count))
            inside = f.b.select(exists, f.i64(lane), f.i64(0))
        value = f.load(f.at(source, (inside, step), dtype=kind), kind, lanes=0)
        vector = f.b.insert_element(vector, value, ir.Constant(I32, lane))
    if is_full:
        return vector
    return f.b.select(f.first(count), vector, ir.Constant(vector.type, None))
