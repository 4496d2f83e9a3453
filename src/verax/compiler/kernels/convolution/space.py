"""The schedules that may be tried for a convolution or a product of matrices, and which are sound.

No schedule changes a bit; what is refused here would be slow beyond measure, too long to compile,
or is meant for another kind of kernel. Sizes must be known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from verax.compiler.kernels.convolution.depthwise import most_outputs, spare_channels
from verax.compiler.kernels.convolution.schedule import (
    MOST_BLOCKS,
    MOST_OUTPUTS,
    ConvSchedule,
    direct_tiles,
    filter_blocks,
    fits,
    grid,
    largest_phase,
    spare_lanes,
)
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.registry import Space, Stage
from verax.compiler.kernels.sizes import entries, static_size
from verax.compiler.kernels.target import LANES, Target

UNROLLS = (1, 2, 4, 8, 16)
NEAR = (0, 8, 16, 32, 64)
"""Steps that are written out, and steps that weights are fetched ahead."""
MOST_NEAR = 256
CHEAPEST = 9
"""Tiles that are tried, of those that the model finds cheapest; of each number of blocks
`BY_BLOCKS`."""
BY_BLOCKS = 2
SPILLED = 2
"""Outputs of a depthwise tile beyond those that fit the registers."""


def _is_depthwise(spec: ConvSpec) -> bool:
    return spec.depthwise and spec.x.lane == 1


def _stages(spec: ConvSpec, target: Target) -> tuple[Stage, ...]:
    """What is searched for `spec`, one respect after the other."""
    if entries(spec):
        return ()
    if _is_depthwise(spec):
        return _depthwise_tiles(spec, target), _chunks(spec)
    if not spec.aligned:
        return ()  # that kernel takes no schedule

    def tiles() -> list[ConvSchedule]:
        return direct_tiles(spec, target)

    return (
        lambda best: _cheapest_tiles(tiles()),
        _chunks(spec),
        lambda best: (dataclasses.replace(best, unroll=n) for n in UNROLLS),
        lambda best: (dataclasses.replace(best, near=n) for n in NEAR),
        lambda best: _flags(spec, best),
        lambda best: _retiled(tiles(), best),
    )


def _cheapest_tiles(tiles: list[ConvSchedule]) -> Iterator[ConvSchedule]:
    """The cheapest by the model, and the cheapest of each number of blocks."""
    yield from tiles[:CHEAPEST]
    for blocks in range(1, MOST_BLOCKS + 1):
        yield from [t for t in tiles if t.blocks == blocks][:BY_BLOCKS]


def _retiled(tiles: list[ConvSchedule], best: ConvSchedule) -> Iterator[ConvSchedule]:
    """Cheap tiles with all that was found for another one."""
    for tile in tiles[:3]:
        copied_fields = ("unroll", "near", "ahead", "fetch_block", "pass_blocks", "filters_outer")
        yield dataclasses.replace(tile, **{name: getattr(best, name) for name in copied_fields})


def _chunks(spec: ConvSpec) -> Stage:
    """Rows of tiles in an item, and what changes last."""

    def stage(best: ConvSchedule) -> Iterator[ConvSchedule]:
        tiles = _tile_rows(spec, best)
        counts = {1, best.chunk // 4, best.chunk // 2, best.chunk * 2, best.chunk * 4, tiles}
        orders = (False, True) if not _is_depthwise(spec) else (best.filters_outer,)
        for outer in orders:
            for chunk in sorted({*counts, best.chunk}):
                if 1 <= chunk <= tiles:
                    yield dataclasses.replace(best, chunk=chunk, filters_outer=outer)

    return stage


def _tile_rows(spec: ConvSpec, schedule: ConvSchedule) -> int:
    """Whole rows of tiles of one image, at least 1."""
    if _is_depthwise(spec):
        return max(1, static_size(spec.output[1]) // schedule.rows)
    rows, _ = grid(spec, largest_phase(spec))
    return max(1, static_size(rows) // schedule.rows)


def _flags(spec: ConvSpec, best: ConvSchedule) -> Iterator[ConvSchedule]:
    """What is fetched ahead, and in how many passes channels are taken."""
    for ahead in (False, True):
        for fetch in (False, True):
            yield dataclasses.replace(best, ahead=ahead, fetch_block=fetch)
    for blocks in (0, 1, 2, 4):
        yield dataclasses.replace(best, pass_blocks=blocks)


def _depthwise_tiles(spec: ConvSpec, target: Target) -> Stage:
    _, rows, cols = map(static_size, spec.output)
    max_outputs = most_outputs(spec, target) + SPILLED

    def stage(best: ConvSchedule) -> Iterator[ConvSchedule]:
        for r in range(1, min(rows, max_outputs) + 1):
            for c in range(1, min(cols, max_outputs // r) + 1):
                if r * c * 2 >= min(max_outputs, rows * cols):
                    share = max(1, best.chunk * best.rows // r)
                    yield dataclasses.replace(best, rows=r, cols=c, chunk=min(share, rows // r))

    return stage


def _admits(spec: ConvSpec, target: Target, schedule: object) -> bool:
    """Whether the kernel of `spec` may have a schedule."""
    if not isinstance(schedule, ConvSchedule) or entries(spec) or not _are_numbers(schedule):
        return False
    if not spec.aligned and not _is_depthwise(spec):
        return False
    if not 1 <= schedule.chunk <= _tile_rows(spec, schedule):
        return False
    outputs = schedule.rows * schedule.cols
    if _is_depthwise(spec):
        inside = schedule.rows <= static_size(spec.output[1]) and schedule.cols <= static_size(
            spec.output[2]
        )
        spared = schedule.spare in (0, spare_channels(spec, target))
        fits_registers = outputs <= most_outputs(spec, target) + SPILLED
        return schedule.blocks == 1 and inside and fits_registers and spared
    phase = largest_phase(spec)
    pointwise = phase.tap_counts == (1, 1, 1) and spec.step == 1
    in_pairs = phase.tap_counts == (1, 1, 1) and spec.step == 2
    deep = static_size(spec.group_channels) >= 2 * LANES and spec.x.lane == 1
    stored = spec.types.sum == spec.types.y and not spec.paired
    left = schedule.spare if schedule.blocks == static_size(filter_blocks(spec)) else 0
    return (
        schedule.blocks <= min(MOST_BLOCKS, static_size(filter_blocks(spec)))
        and max(schedule.rows, schedule.cols) <= MOST_OUTPUTS
        and schedule.spare in (0, spare_lanes(spec, target))
        and fits(schedule.blocks, outputs, target, spec.paired, left)
        and ((pointwise and deep) or not schedule.fetch_block)
        and (pointwise or in_pairs or not schedule.ahead)
        and (stored or not schedule.pass_blocks)
    )


def _are_numbers(schedule: ConvSchedule) -> bool:
    """True if all fields of a schedule read from a file have valid types and ranges."""
    counts = schedule.blocks, schedule.rows, schedule.cols, schedule.chunk
    flags = schedule.filters_outer, schedule.ahead, schedule.fetch_block
    return (
        all(type(n) is int and 1 <= n < 1 << 20 for n in counts)
        and schedule.unroll in UNROLLS
        and type(schedule.near) is int
        and 0 <= schedule.near <= MOST_NEAR
        and all(type(flag) is bool for flag in flags)
        and type(schedule.pass_blocks) is int
        and type(schedule.spare) is int
        and 0 <= schedule.pass_blocks < 1 << 10
    )


CONVOLUTION = Space(ConvSchedule, _stages, _admits)
