"""Packing of a convolution's weights that are computed: the moves that bring them from the order in
which they come to the order in which `pack_conv_weights` would have put constants.

Every packing is the same few nested steps (group, panel of filters, block of channels, kernel
position, channel, filter), so each move is one loop over all of them. Steps of filters that do not
exist are left out; whoever packs fills with zeros first when `Moves.gaps` says so.
"""

from __future__ import annotations

import dataclasses
import math

from verax.compiler.kernels.convolution.pack import sections
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES

Ints = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Move:
    """Elements (i, j, ...) of `dims`: from first + i * read[0] + ... of the weights, row-major, to
    start + i * written[0] + ... of what is packed."""

    dims: Ints
    read: Ints
    first: int
    written: Ints
    start: int


@dataclasses.dataclass(frozen=True)
class Moves:
    """elements: length of what is packed. gaps: whether some of it is no weight, and must be zero.
    regrouped: a move that comes before the others, into as much memory as the weights take, which
    the others then read."""

    elements: int
    gaps: bool
    moves: tuple[Move, ...]
    regrouped: Move | None = None


@dataclasses.dataclass(frozen=True)
class _WeightSteps:
    """How the weights lie: elements from a group, a filter, a channel, a kernel position (depth,
    row, column) to the next; and how many groups, filters and channels there are of each other."""

    groups: tuple[int, int]
    filters: tuple[int, int]
    channels: tuple[int, int]
    taps: Ints


def weight_moves(spec: ConvSpec, schedule: ConvSchedule) -> Moves:
    """The moves for `spec`, whose elements are taken one by one (float32)."""
    assert spec.step == 1, "pairs are packed when the network is compiled"
    groups, filters, channels = (
        spec.groups,
        static_size(spec.group_filters),
        static_size(spec.group_channels),
    )
    taps = math.prod(spec.kernel)
    tap_strides = (spec.kernel[1] * spec.kernel[2], spec.kernel[2], 1)
    group_elements = channels * filters * taps
    regrouped = None
    if spec.aligned and not (spec.depthwise and spec.x.lane == 1):
        across = (taps, filters * taps) if spec.transposed else (channels * taps, taps)
        steps = _WeightSteps(
            (groups, group_elements), (filters, across[0]), (channels, across[1]), tap_strides
        )
        panel_sections = [
            (static_size(f), static_size(n), b) for f, n, b in sections(spec, schedule)
        ]
    else:  # lanes go on from group to group
        steps = _WeightSteps(
            (1, 0), (groups * filters, channels * taps), (channels, taps), tap_strides
        )
        panel_sections = [(0, -(-groups * filters // LANES), 1)]
        if spec.transposed:
            dims = (groups, filters, channels, taps)
            read, written = (
                (group_elements, taps, filters * taps, 1),
                (group_elements, channels * taps, taps, 1),
            )
            regrouped = Move(dims, read, 0, written, 0)
    moves: list[Move] = []
    elements, gaps = 0, False
    for phase in spec.phases():
        for first, count, blocks in panel_sections:
            width = blocks * LANES
            real = min(count * width, steps.filters[0] - first * LANES)
            gaps |= real < count * width
            moves += _section(steps, phase, first * LANES, count, width, real, elements)
            panel = channels * math.prod(phase.tap_counts) * width
            elements += steps.groups[0] * count * panel
    return Moves(elements, gaps, tuple(moves), regrouped)


def _section(
    steps: _WeightSteps, phase: Phase, first: int, count: int, width: int, real: int, start: int
) -> list[Move]:
    """Panels of `width` filters from `first`, of which `real` exist, to `start`."""
    channels, counts = steps.channels[0], phase.tap_counts
    panel = channels * math.prod(counts) * width
    tap_steps = [
        (taps[1] - taps[0]) * step if len(taps) > 1 else 0
        for taps, step in zip(phase.taps, steps.taps)
    ]
    tap_first = sum(taps[0] * step for taps, step in zip(phase.taps, steps.taps) if taps)
    moves = []
    full, full_blocks = real // width, channels // LANES
    for panels, lanes, begin in ((full, width, 0), (1, real % width, full)):
        for blocks, block_channels, block in (
            (full_blocks, LANES, 0),
            (1, channels % LANES, full_blocks),
        ):
            dims = (steps.groups[0], panels, blocks, *counts, block_channels, lanes)
            if 0 in dims:
                continue
            row = block_channels * width
            read = (
                *(steps.groups[1], width * steps.filters[1], LANES * steps.channels[1]),
                *(*tap_steps, steps.channels[1], steps.filters[1]),
            )
            written = (
                *(count * panel, panel, LANES * math.prod(counts) * width),
                *(counts[1] * counts[2] * row, counts[2] * row, row, width, 1),
            )
            source_offset = (first + begin * width) * steps.filters[
                1
            ] + block * LANES * steps.channels[1]
            into = start + begin * panel + block * LANES * math.prod(counts) * width
            moves.append(Move(dims, read, tap_first + source_offset, written, into))
    return moves
