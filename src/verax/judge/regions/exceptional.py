"""How a node may depart from the program of its region (`programs.SubjectProgram`)."""

from __future__ import annotations

from enum import StrEnum

import numpy as np


class Exceptional(StrEnum):
    """How a node departs from its program."""

    float32 = "factors in float32"
    as_given = "factors rounded as they stand"
    scaled_by_root = "both factors rounded after scaling each by the root of the scale"
    by_blocks_of_32 = "weights rounded by blocks of 32 keys"
    by_blocks_of_64 = "weights rounded by blocks of 64 keys"
    by_blocks_of_128 = "weights rounded by blocks of 128 keys"
    before_bias = "stored before the bias is added"
    stored = "stored"
    in_float32 = "kept in float32"


BLOCKS = {
    Exceptional.by_blocks_of_32: 32,
    Exceptional.by_blocks_of_64: 64,
    Exceptional.by_blocks_of_128: 128,
}
"""Keys that a fused kernel of attention takes at a time, by what they make of the weights."""


def largest_so_far(weights: np.ndarray, block: int | None) -> np.ndarray:
    """What a fused kernel has divided each weight of attention by when it rounds it: the largest of
    its row, or, of one that takes `block` keys at a time, the largest up to the block's end."""
    sizes = np.abs(weights)
    if block is None:
        largest = np.max(sizes, axis=-1, keepdims=True, initial=0.0)
    else:
        keys = sizes.shape[-1]
        starts = np.maximum.reduceat(sizes, np.arange(0, keys, block), axis=-1)
        so_far = np.maximum.accumulate(starts, axis=-1)
        largest = np.repeat(so_far, block, axis=-1)[..., :keys]
    return np.where(largest > 0, largest, 1.0)
