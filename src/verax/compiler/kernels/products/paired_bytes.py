"""Bytes by bytes on machines without VNNI, whose instruction (vpmaddubsw) adds up two products in
16 bits: exact where the weights of a pair of channels cannot leave them, whatever the data.

Data of up to 255 by w0 and w1 stays within 16 bits if neither the positive nor the negative ones of
the two weights add up to more than 128. Sums of integers may be taken in any order, so for every 16
filters and every block of 16 channels the channels are put together in pairs that are safe for all
16 filters: a matching, which nearly always exists, found when weights are packed. The kernel
shuffles the data's bytes as the matching says, where it would broadcast them otherwise. Weights
that are in no safe pair are left out, and come in further steps by themselves.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES

MOST = 128
"""What weights of one sign may add up to: 255 * 128 < 2^15."""
QUADS = LANES // 4
"""Steps of a block, of four channels each."""
SHUFFLES = QUADS * LANES
"""Bytes that say how a block of data is shuffled; its weights follow."""
BLOCK = SHUFFLES + LANES * LANES
ENTRY = 128
"""Bytes of a further step: where its data lies (8), from 16 on its shuffle, from 64 on weights."""
TRIES = 12
"""At a matching."""
OFTEN = 0.2
"""The least share of pairs that are safe for 16 filters, for which it pays."""

POPCOUNT = np.array([bin(i).count("1") for i in range(1 << 8)], np.uint8)


def safe_share(weights: np.ndarray) -> float:
    """The share of neighboring channels that are a safe pair for 16 filters.

    weights: (filters, channels, ...), of int8's range.
    """
    blocks = _blocks(weights)[:, :, ::2], _blocks(weights)[:, :, 1::2]
    return float(_are_safe(*(np.moveaxis(b, 1, 0) for b in blocks)).mean())


def _are_safe(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether weights may be a pair, for all filters, which are the first axis."""
    a, b = first.astype(np.int16), second.astype(np.int16)
    up, down = np.maximum(a, 0) + np.maximum(b, 0), np.minimum(a, 0) + np.minimum(b, 0)
    safe: np.ndarray = np.all((up <= MOST) & (down >= -MOST), axis=0)
    return safe


def _blocks(weights: np.ndarray) -> np.ndarray:
    """(panels of filters * blocks of channels * taps, 16 filters, 16 channels), in the order in
    which the kernel takes them."""
    w = np.asarray(weights, np.int8)
    w = w.reshape(*w.shape[:2], -1)
    filters, channels, taps = w.shape
    w = np.pad(w, ((0, -filters % LANES), (0, 0), (0, 0)))
    w = w.reshape(-1, LANES, channels // LANES, LANES, taps)
    return np.ascontiguousarray(w.transpose(0, 2, 4, 1, 3)).reshape(-1, LANES, LANES)


def matched(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The channels of each block in pairs, and which pairs are safe: (blocks, 8, 2), (blocks, 8).

    blocks: (blocks, 16 filters, 16 channels).
    """
    count = len(blocks)
    safe = _graph(blocks)
    matching = np.zeros((count, LANES // 2, 2), np.uint8)
    good = np.zeros((count, LANES // 2), bool)
    left = np.arange(count)
    rng = np.random.default_rng(0)  # the same matching whenever the weights are the same
    for attempt in range(TRIES):
        noise = rng.integers(0, 8, (LANES, len(left)), dtype=np.uint8)
        candidates = _greedy(safe[:, left], noise)
        fine = (safe[candidates[:, :, 0].T, left] >> candidates[:, :, 1].T & 1).astype(bool).T
        better = fine.sum(axis=1) > good[left].sum(axis=1) if attempt else np.ones(len(left), bool)
        matching[left[better]], good[left[better]] = candidates[better], fine[better]
        left = left[~good[left].all(axis=1)]
        if not len(left):
            break
    return matching, good


def _graph(blocks: np.ndarray) -> np.ndarray:
    """(16, blocks): for each channel the channels with which it is a safe pair, as bits."""
    by_channel = np.ascontiguousarray(blocks.transpose(2, 0, 1))
    up = np.maximum(by_channel, 0).astype(np.uint8)
    down = (-np.minimum(by_channel.astype(np.int16), 0)).astype(np.uint8)
    safe = np.zeros((LANES, len(blocks)), np.uint16)
    for i in range(LANES):
        for j in range(i + 1, LANES):
            above, below = up[i] + up[j], down[i] + down[j]
            bad = (above > MOST) | (below > MOST) | ((down[i] & down[j]) > 127)  # 256 is 0
            fine = ~bad.view(np.uint64).any(axis=1)
            safe[i] |= fine.astype(np.uint16) << j
            safe[j] |= fine.astype(np.uint16) << i
    return safe


def _greedy(safe: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A matching of each block, (blocks, 8, 2): who has the fewest partners left chooses first."""
    block_indices, bits = (
        np.arange(safe.shape[1]),
        (1 << np.arange(LANES)).astype(np.uint16)[:, None],
    )
    free = np.full(safe.shape[1], 0xFFFF, np.uint16)
    matching = np.empty((safe.shape[1], LANES // 2, 2), np.uint8)
    for step in range(LANES // 2):
        live = safe & free
        partners = (POPCOUNT[live & 255] + POPCOUNT[live >> 8]) * 8 + noise
        partners[(free & bits) == 0] = 255
        first = partners.argmin(axis=0)
        partners[first, block_indices] = 255
        friends = (live[first, block_indices] & bits) != 0
        strange = np.where(partners == 255, 255, 200 + noise)  # an unsafe one if there is no other
        second = np.where(friends, partners, strange).argmin(axis=0)
        matching[:, step, 0], matching[:, step, 1] = first, second
        free &= ~(bits[first, 0] | bits[second, 0])
    return matching


@dataclasses.dataclass(frozen=True)
class PairedWeights:
    """main: what the kernel reads block by block, int8. further: for each panel of filters where
    its further steps begin (int32, and where the last ends), and the steps."""

    main: np.ndarray
    further: np.ndarray


def entries_at(panels: int) -> int:
    """Byte at which the further steps begin."""
    return 4 * (panels + 1) + -4 * (panels + 1) % 64


def pack_paired(weights: np.ndarray, spec: ConvSpec) -> PairedWeights:
    """weights: (filters, channels, kernel...), of int8's range."""
    blocks = _blocks(weights)
    matching, good = matched(blocks)
    order = matching.reshape(-1, LANES)  # channels, four to a step
    weights_in_order = np.take_along_axis(blocks, order[:, None, :].astype(np.intp), axis=2)
    unsafe_blocks, unsafe_pairs = np.nonzero(~good)
    second = 2 * unsafe_pairs + 1  # the second of an unsafe pair is left out where it is needed
    alone = weights_in_order[unsafe_blocks, :, second].copy()
    first = weights_in_order[unsafe_blocks, :, second - 1].astype(np.int16)
    apart = ((first >= 0) == (alone >= 0)) & (np.abs(first + alone.astype(np.int16)) > MOST)
    alone[~apart] = 0
    weights_in_order[unsafe_blocks, :, second] = np.where(
        apart, 0, weights_in_order[unsafe_blocks, :, second]
    )
    main = np.empty((len(blocks), BLOCK), np.int8)
    four = order.reshape(-1, QUADS, 1, 4)
    main[:, :SHUFFLES] = np.broadcast_to(four, (len(blocks), QUADS, 4, 4)).reshape(-1, SHUFFLES)
    steps = weights_in_order.reshape(-1, LANES, QUADS, 4).transpose(0, 2, 1, 3)
    main[:, SHUFFLES:] = steps.reshape(-1, LANES * LANES)
    channels = order[unsafe_blocks, second]
    return PairedWeights(
        main.reshape(-1), _further(spec, len(blocks), unsafe_blocks, channels, alone)
    )


def _further(
    spec: ConvSpec, blocks: int, block_indices: np.ndarray, channels: np.ndarray, alone: np.ndarray
) -> np.ndarray:
    """where: blocks, ascending. channels: in them. alone: their weights, (steps, 16 filters)."""
    panels = -(-static_size(spec.filters) // LANES)
    per_panel = blocks // panels
    entries = np.zeros((len(block_indices), ENTRY), np.int8)
    inside = block_indices % per_panel
    taps = int(np.prod(spec.kernel))
    block, tap = inside // taps, inside % taps
    tap_position = np.stack(np.unravel_index(tap, spec.kernel))
    steps = [d * static_size(s) for d, s in zip(spec.dilations, spec.x.space, strict=True)]
    offset = block * static_size(spec.x.block) + sum(
        i * s for i, s in zip(tap_position, steps, strict=True)
    )
    entries[:, :8] = offset.astype(np.int64).reshape(-1, 1).view(np.int8)
    entries[:, 16:32] = channels[:, None]
    entries[:, 64:].reshape(-1, LANES, 4)[:, :, 0] = alone
    starts = np.searchsorted(block_indices // per_panel, np.arange(panels + 1)).astype(np.int32)
    head = np.zeros(entries_at(panels), np.int8)
    head[: starts.nbytes] = starts.view(np.int8)
    return np.concatenate([head, entries.reshape(-1)])
