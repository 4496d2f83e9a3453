"""Reduction kernels: sums, means, extremes, softmax and normalizations, in the canonical order.

A `ReduceSpec` walks each row in stages. Two ways to run it give the same bits, because the order
of `numerics.reductions` is interleaved partial results: "along" makes them the lanes of a vector or
two (the row is contiguous), "across" makes each a vector, which holds it for sixteen neighboring
rows (the rows are interleaved, as in NCHW16c or a reduction over channels of a planar tensor).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_TYPES,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.reduce.in_step import InStep, Kept
from verax.compiler.kernels.reduce.plan import (
    across_dim,
    outer_moved_last,
    simplified,
    with_known_groups,
    with_unit_reduced,
)
from verax.compiler.kernels.reduce.spec import ReduceSpec, Stage
from verax.compiler.kernels.reduce.strips import Strip, calls
from verax.compiler.kernels.reduce.walks import across, along
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, ceil_div, static_size
from verax.compiler.kernels.target import LANES
from verax.numerics.expr import input_dtypes
from verax.numerics.reductions import in_blocks

__all__ = ["ReduceSpec", "Stage", "emit_reduce"]

_ITEM_ELEMENTS = 4096  # rows are grouped until a work item holds about so many elements
_BATCH = 64  # rows, at most, that go through each walk before any goes through the next
SHORT, MOST_TOGETHER = 256, 1024
"""Elements up to which rows are walked four at a time, and those up to which they are two at a
time, or four where an element takes a function."""


@emits(ReduceSpec, dtypes=ELEMENT_TYPES, settle=with_known_groups)
def emit_reduce(module: ModuleBuilder, spec: ReduceSpec) -> Kernel:
    """The kernel of `spec`; the same spec gives the same kernel.

    args: a pointer per input, per row output, per element output. An element output may be the
    very memory of an input with equal strides.
    """
    n_args = len(spec.inputs) + len(spec.row_outputs) + len(spec.element_outputs)
    fb = module.kernel(spec, n_args, hint="reduce")
    if fb.finished:
        assert fb.kernel is not None
        return fb.kernel
    plain = simplified(spec)
    if spec.rows == 0:
        return fb.finish(0)
    side_by_side = across_dim(plain)
    if side_by_side is None:
        items = _emit_along(fb, plain)
    else:
        items = _emit_across(fb, outer_moved_last(plain, side_by_side))
    return fb.finish(items, spec.rows * spec.length * spec.operations, spec.bytes)


# --- emission


def _run(strips: Sequence[Strip]) -> None:
    """The stages of strips in step, then what is written of them."""
    rows = InStep(strips)
    for stages in _walks(strips[0].spec, rows.across):
        _reduce(rows, stages)
    rows.write_rows()
    _write_elements(rows)


def _reduce(rows: InStep, stages: Sequence[Stage]) -> None:
    values = across(rows.first, stages) if rows.across else along(rows.strips, stages)
    for stage, value in zip(stages, values, strict=True):
        rows.take(value, stage.finish)


def _walks(spec: ReduceSpec, across: bool) -> list[list[Stage]]:
    """The stages, those together that need nothing of each other and take as many elements, so that
    a row is read once; across, only sums of floats are."""
    walks: list[list[Stage]] = []
    for index, stage in enumerate(spec.stages):
        first = index - len(walks[-1]) if walks else 0
        needs = any(i >= len(spec.inputs) + first for i in input_dtypes(stage.element))
        pair = (stage, *walks[-1][-1:]) if walks else ()
        is_different = any(s.group_stride != stage.group_stride for s in pair)
        alone = is_different or (
            across and not all(in_blocks(s.kind, s.element.dtype) for s in pair)
        )
        if alone or not walks or needs:
            walks.append([stage])
        else:
            walks[-1].append(stage)
    return walks


def _write_elements(rows: InStep) -> None:
    strips, first = rows.strips, rows.first
    if not first.spec.element_outputs:
        return
    exprs = (
        [e for _, e in first.spec.element_outputs]
        if first.reused_final is None
        else [first.reused_final]
    )
    exprs = rows.hoist(exprs)

    def write(vector_ranges: Sequence[tuple[Index, Index]]) -> None:
        strip_ranges = [(strip, k, count) for k, count in vector_ranges for strip in strips]
        results = [strip.values(exprs, k, count) for strip, k, count in strip_ranges]
        for (strip, k, count), values in zip(strip_ranges, results, strict=True):
            for i, (access, _) in enumerate(first.spec.element_outputs):
                strip.store(first.first_element + i, access, k, values[i], count)

    length = first.spec.length
    width, count = (1, first.rows) if first.rows else (LANES, LANES)
    unroll = max(1, 2 // len(strips))
    step = unroll * width
    done = length // step * step
    if done != 0:
        with first.fb.loop(done, step=step) as loop:
            write([(first.fb.iadd(loop.index, u * width), count) for u in range(unroll)])
    if not isinstance(length, int):
        fb = first.fb
        for at in range(0, step, width):
            left = first.fb.clamp(length - done - at, 0, width)
            with fb.when(fb.b.icmp_signed("==", fb.i64(left), fb.i64(width))):
                write([(done + at, count)])
            if width > 1:
                is_part = fb.b.icmp_signed("<", fb.i64(left), fb.i64(width))
                with fb.when(fb.b.and_(is_part, fb.b.icmp_signed(">", fb.i64(left), fb.i64(0)))):
                    write([(done + at, left)])
        return
    if length - done >= width:
        write([(done, count)])
        done += width
    if length > done:
        write([(done, length - done)])


def _grouped_loop(fb: FunctionBuilder, units: Size, group: int) -> tuple[Size, ir.Value, ir.Value]:
    """(items, first unit, end) of a call when `group` units make an item; the last is shorter."""
    items = ceil_div(units, group)
    first = fb.b.mul(fb.begin, fb.i64(group))
    end = fb.b.mul(fb.end, fb.i64(group))
    past = fb.b.icmp_signed(">", end, fb.i64(units))
    return items, first, fb.b.select(past, fb.i64(units), end)


def _emit_along(fb: FunctionBuilder, spec: ReduceSpec) -> Size:
    """One row at a time, vectorized along it; the number of work items."""
    if not spec.reduced:  # rows of one element
        spec = with_unit_reduced(spec)
    together = _rows_together(spec)
    group = _rows_of_item(spec.length, together)
    items, first, end = _grouped_loop(fb, spec.rows, group)

    def strips(first: Index, count: int) -> list[Strip]:
        row_indices = [fb.iadd(first, i) for i in range(count)]
        row_coordinates = [fb.split(r, *spec.outer[1:]) if spec.outer else [] for r in row_indices]
        return [Strip(fb, spec, coordinates, rows=0) for coordinates in row_coordinates]

    if together > 1:
        count = fb.b.sub(end, first)
        batched_rows = fb.b.mul(fb.b.udiv(count, fb.i64(together)), fb.i64(together))
        middle = fb.b.add(first, batched_rows)
        _emit_batches(fb, spec, strips, together, min(group, _BATCH), first, middle)
        first = middle
    if together == 1 or spec.rows % together != 0:
        with fb.loop(end, start=first) as loop:
            _run(strips(loop.index, 1))
    return items


def _emit_batches(
    fb: FunctionBuilder,
    spec: ReduceSpec,
    strips: Callable[[Index, int], list[Strip]],
    together: int,
    batch: int,
    first: Index,
    end: ir.Value,
) -> None:
    """Rows from `first` to `end`, a multiple of `together`: those of a batch go through each walk
    before any goes through the next. A row waits for what it has summed up, its lanes, a division,
    a root; meanwhile others have something to do."""
    walks = _walks(spec, across=False)
    if len(walks) + bool(spec.element_outputs) == 1:
        with fb.loop(end, step=together, start=first) as loop:
            _run(strips(loop.index, together))
        return
    memory = Kept(fb, spec, batch)
    with fb.loop(end, step=batch, start=first) as batch_loop:
        past = fb.i64(fb.iadd(batch_loop.index, batch))
        stop = fb.b.select(fb.b.icmp_signed("<", past, end), past, end)

        def in_step(first: Index, done: int) -> tuple[InStep, Index]:
            rows = InStep(strips(first, together))
            row_in_batch = fb.iadd(first, fb.imul(batch_loop.index, -1))
            rows.recall(memory, row_in_batch, done)
            return rows, row_in_batch

        done = 0
        for stages in walks:
            with fb.loop(stop, step=together, start=batch_loop.index) as loop:
                rows, index_in_batch = in_step(loop.index, done)
                _reduce(rows, stages)
                rows.keep(memory, index_in_batch, done)
                done += len(stages)
                if done == len(spec.stages):
                    rows.write_rows()
        with fb.loop(stop, step=together, start=batch_loop.index) as loop:
            _write_elements(in_step(loop.index, done)[0])


def _rows_of_item(length: Size, together: int) -> int:
    """Rows of a work item, of so many elements, which are walked `together`."""
    if not isinstance(length, int):
        return together
    return max(1, _ITEM_ELEMENTS // max(length, 1) // together) * together


def _rows_together(spec: ReduceSpec) -> int:
    """Rows that are walked in step: those so short that what a row ends with is much of it. Softmax
    of 103 elements takes 0.64 of the time, LayerNorm of 96 0.78."""
    has_few_rows = isinstance(spec.rows, int) and spec.rows < 4
    if (
        has_few_rows
        or not spec.stages
        or not isinstance(spec.length, int)
        or spec.length > MOST_TOGETHER
    ):
        return 1
    exprs = [s.element for s in spec.stages] + [e for _, e in spec.element_outputs]
    return 4 if spec.length <= SHORT or any(map(calls, exprs)) else 2


def _emit_across(fb: FunctionBuilder, spec: ReduceSpec) -> Size:
    """Sixteen rows at a time, vectorized across them; the number of work items."""
    if not spec.reduced:
        spec = with_unit_reduced(spec)
    extent = spec.outer[-1]
    strips = ceil_div(extent, LANES)
    units = spec.rows // extent * strips
    group = _rows_of_item(spec.length, LANES) // LANES
    items, first, end = _grouped_loop(fb, units, group)
    remainder = extent % LANES
    with fb.loop(end, start=first) as loop:
        *outer, strip = fb.split(loop.index, *spec.outer[1:-1], strips)
        if len(spec.outer) == 1:
            outer = []
        coordinates = [*outer, fb.imul(strip, LANES)]
        if not isinstance(extent, int):
            is_full = fb.b.icmp_signed("<", fb.i64(strip), fb.i64(extent // LANES))
            with fb.b.if_else(is_full) as (full_block, last):
                with full_block:
                    _run([Strip(fb, spec, coordinates, rows=LANES)])
                with last:
                    for first_row, count in fb.remainder(remainder, LANES):
                        row = [*outer, fb.iadd(coordinates[-1], first_row)]
                        _run([Strip(fb, spec, row, rows=count)])
        elif not remainder:
            _run([Strip(fb, spec, coordinates, rows=LANES)])
        elif strips == 1:
            _run([Strip(fb, spec, coordinates, rows=static_size(remainder))])
        else:
            is_last = fb.b.icmp_signed("==", fb.i64(strip), fb.i64(strips - 1))
            with fb.b.if_else(is_last) as (last, full_block):
                with last:
                    _run([Strip(fb, spec, coordinates, rows=static_size(remainder))])
                with full_block:
                    _run([Strip(fb, spec, coordinates, rows=LANES)])
    return items
