"""How the work of an attention kernel is cut: by rule, and what measuring may choose instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from verax.compiler.kernels.convolution.schedule import fits
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.products.attention_spec import F32, AttentionSchedule, AttentionSpec
from verax.compiler.kernels.registry import Stage
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES, Target

SCORES_BYTES = 1 << 16
"""What the scores of a group may take of the caches nearest to a core."""


def _fits(spec: AttentionSpec, blocks: int, rows: int, target: Target) -> bool:
    """Whether a tile fits the registers; a vector of float64 takes twice as many."""
    return fits(blocks * ELEMENT_SIZES[spec.dtype] // ELEMENT_SIZES[F32], rows, target)


def attention_schedule(spec: AttentionSpec, target: Target) -> AttentionSchedule:
    """A schedule by rule: the tiles of products of matrices, as many as scratch memory allows."""
    if spec.rows_of is not None:
        return _schedule_of_rows(spec, target)
    blocks = 2 if target.registers * target.vector_bits >= 32 * 512 else 1
    rows = max((r for r in range(1, 13) if _fits(spec, blocks, r, target)), default=1)
    queries, row = static_size(spec.n), static_size(spec.row)
    rows = min(rows, queries)
    max_tiles = SCORES_BYTES // (rows * row * ELEMENT_SIZES[spec.dtype])
    return AttentionSchedule(rows, blocks, max(1, min(max_tiles, 4, queries // rows)))


def _schedule_of_rows(spec: AttentionSpec, target: Target) -> AttentionSchedule:
    """Of keys and values that are not packed: as many queries at a time as registers allow, for
    whose sake keys are transposed once."""
    max_rows = max((r for r in range(1, 13) if _fits(spec, 1, r, target)), default=1)
    queries = static_size(spec.n)
    tiles = -(-queries // max_rows)
    rows = -(-queries // tiles)
    widths = [b for b in (1, 2, 4) if b * LANES <= spec.e and _fits(spec, b, rows, target)]
    return AttentionSchedule(rows, max(widths, default=1), max(1, queries // rows))


def admits(spec: AttentionSpec, target: Target, schedule: object) -> bool:
    """Whether the kernel may have a schedule: tiles in registers, scores in cache."""
    if not isinstance(schedule, AttentionSchedule):
        return False
    scores = schedule.rows * schedule.tiles * spec.row * ELEMENT_SIZES[spec.dtype]
    return (
        schedule.rows >= 1
        and 1 <= schedule.blocks <= 4
        and (schedule.rows == 1 or _fits(spec, schedule.blocks, schedule.rows, target))
        and 1 <= schedule.tiles <= max(1, spec.n // schedule.rows)
        and schedule.rows <= spec.n
        and (schedule.tiles == 1 or scores <= 16 * SCORES_BYTES)
    )


def stages(spec: AttentionSpec, target: Target) -> tuple[Stage, ...]:
    """Tiles of scores, then how many share a panel."""

    def tiles(best: AttentionSchedule) -> Iterator[AttentionSchedule]:
        for blocks in (1, 2, 3, 4):
            row_counts = [r for r in range(1, 31) if _fits(spec, blocks, r, target)]
            for rows in row_counts[-3:]:
                together = max(1, min(best.tiles, static_size(spec.n) // rows))
                yield AttentionSchedule(rows, blocks, together)

    def together(best: AttentionSchedule) -> Iterator[AttentionSchedule]:
        for count in (1, 2, 3, 4, 6, 8, 12):
            yield dataclasses.replace(best, tiles=count)

    return tiles, together
