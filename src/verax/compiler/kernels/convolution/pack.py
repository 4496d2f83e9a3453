"""Weights and biases in the order in which the convolution kernels read them: strictly forward.

Per phase, per section of output channel blocks (all full groups of `schedule.blocks`, then the
rest), per group, per group of blocks: [input block][tap][channel of the block][blocks * 16], or
where channels are taken in pairs [pair of the block][blocks * 16][2]. Output channels beyond the
real ones are zero; input channels beyond the real ones do not exist, but for the other of a pair.
Pairs of bfloat16, which are of an even number of channels, have the second first.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np

from verax.compiler.kernels.convolution.schedule import ConvSchedule, filter_blocks
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.sizes import Size, equal, static_size
from verax.compiler.kernels.target import LANES


def sections(spec: ConvSpec, schedule: ConvSchedule) -> list[tuple[Size, Size, int]]:
    """(first block, groups of blocks, blocks in each) of one group's output channel blocks.

    When their number is known when the kernel runs there is a section for every rest, of which one
    at most has a group. A block with spare lanes is in a section that has one group.
    """
    total, blocks = filter_blocks(spec), schedule.blocks
    full, remainder = divmod(total, blocks)
    panel_sections: list[tuple[Size, Size, int]] = [(0, full, blocks)]
    if isinstance(remainder, int):
        panel_sections.append((full * blocks, 1, remainder))
        if schedule.spare and not remainder:
            panel_sections = [(0, full - 1, blocks), ((full - 1) * blocks, 1, blocks)]
    else:
        panel_sections += [
            (full * blocks, equal(remainder, group_blocks), group_blocks)
            for group_blocks in range(1, blocks)
        ]
    return [s for s in panel_sections if s[1] != 0 and s[2]]


def pack_direct_weights(weights: np.ndarray, spec: ConvSpec, schedule: ConvSchedule) -> np.ndarray:
    """The weights as one vector, for `spec.aligned` convolutions and `schedule`.

    weights: (filters, channels / groups, kd, kh, kw), or (channels, filters / groups, kd, kh, kw)
    when transposed. Kernel axes that the spec has and the array lacks may be missing in front.
    """
    w = weights_by_group(weights, spec)
    chunks = []
    for phase in spec.phases():
        taps = w
        for axis, indices in enumerate(phase.taps):
            if indices != tuple(range(spec.kernel[axis])):
                taps = np.take(taps, indices, axis=3 + axis)
        steps = int(np.prod(taps.shape[3:]))
        for first, count, blocks in sections(spec, schedule):
            phase_weights = taps.reshape(*w.shape[:3], steps)
            chunks += _pack_section(
                phase_weights, static_size(first), static_size(count), blocks, spec.step
            )
    packed = np.concatenate(chunks) if chunks else np.zeros(0, w.dtype)
    return _swap_bfloat16_pairs(packed) if spec.types.weights == "bfloat16" else packed


def _swap_bfloat16_pairs(packed: np.ndarray) -> np.ndarray:
    """The second of each pair first: `steps.Halves` adds the upper half of a number of 32 bits."""
    return np.ascontiguousarray(packed.reshape(-1, 2)[:, ::-1]).reshape(-1)


def direct_elements(spec: ConvSpec, schedule: ConvSchedule) -> int:
    """Length of what `pack_direct_weights` gives."""
    groups, channels = spec.groups, static_size(spec.group_channels)
    steps = sum(math.prod(phase.tap_counts) for phase in spec.phases())
    blocks = sum(
        static_size(count) * blocks_per_panel
        for _, count, blocks_per_panel in sections(spec, schedule)
    )
    return groups * blocks * LANES * (channels + -channels % spec.step) * steps


def direct_order(spec: ConvSpec, schedule: ConvSchedule) -> Hashable:
    """All that decides what `pack_direct_weights` makes of an array."""
    shape = (
        spec.groups,
        static_size(spec.group_filters),
        static_size(spec.group_channels),
        spec.kernel,
    )
    taps = tuple(phase.taps for phase in spec.phases())
    return shape, spec.transposed, taps, schedule.blocks, spec.step, spec.types.weights


def weights_by_group(weights: np.ndarray, spec: ConvSpec) -> np.ndarray:
    """The weights as (groups, filters of a group, channels of a group, kd, kh, kw)."""
    g, k, c = spec.groups, static_size(spec.group_filters), static_size(spec.group_channels)
    w = np.asarray(weights, spec.types.weights)
    if spec.transposed:
        return w.reshape(g, c, k, *spec.kernel).swapaxes(1, 2)
    return w.reshape(g, k, c, *spec.kernel)


def _pack_section(
    w: np.ndarray, first: int, count: int, blocks: int, step: int
) -> list[np.ndarray]:
    """w: (groups, filters, channels, taps). step: channels taken together."""
    groups, _, channels, taps = w.shape
    width = blocks * LANES
    filters = w[:, first * LANES : first * LANES + count * width]
    missing = count * width - filters.shape[1], -channels % step
    if any(missing):
        filters = np.pad(filters, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
    channels = filters.shape[2]
    filters = filters.reshape(groups, count, width, channels, taps)
    out = np.empty((groups, count, channels * taps * width), w.dtype)
    full, remainder = divmod(channels, LANES)
    edge = full * LANES * taps * width
    if full:
        source = filters[:, :, :, : full * LANES]
        source = source.reshape(groups, count, width, full, LANES // step, step, taps)
        shape = (groups, count, full, taps, LANES // step, width, step)
        out[:, :, :edge].reshape(shape)[...] = source.transpose(0, 1, 3, 6, 4, 2, 5)
    if remainder:
        tail = filters[:, :, :, full * LANES :]
        tail = tail.reshape(groups, count, width, remainder // step, step, taps)
        target = out[:, :, edge:].reshape(groups, count, taps, remainder // step, width, step)
        target[...] = tail.transpose(0, 1, 5, 3, 2, 4)
    return [out.reshape(-1)]


def pack_channels(values: np.ndarray) -> np.ndarray:
    """One number per channel, padded with zeros to whole blocks of 16."""
    flat = np.asarray(values).reshape(-1)
    return np.pad(flat, (0, -flat.size % LANES))
