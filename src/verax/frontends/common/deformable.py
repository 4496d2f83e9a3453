"""Deformable convolution, as torchvision and ONNX (DeformConv) have it: every tap of the kernel
reads where an offset of its own says, between the pixels, and may be weighted by a mask.

It is samples of the image, one plane for each tap, and a convolution of 1 x 1 over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Applied, Conversion


@dataclass(frozen=True)
class Taps:
    """strides, pads (before, after), dilations: of both axes. groups: of channels, as a
    convolution has them; offset_groups: groups of channels that share their offsets."""

    strides: Sequence[int]
    pads: Sequence[tuple[int, int]]
    dilations: Sequence[int]
    groups: int = 1
    offset_groups: int = 1


def deformable_convolution(
    c: Conversion, x: str, weight: str, offset: str, bias: str | None, mask: str | None, taps: Taps
) -> Applied:
    """x [n, c, h, w], weight [o, c / groups, kh, kw], offset [n, offset groups * kh * kw * 2, oh,
    ow] as (down, right), mask [n, offset groups * kh * kw, oh, ow]. Reads outside of the image give
    zeros. Raises `ModelError` for sizes that do not fit."""
    channels, *image = c.known_sizes(x, (1, 2, 3), "where its taps lie")
    out, inside, *kernel = c.known_sizes(weight, dependent="where its taps lie")
    rows, columns = counts = c.known_sizes(offset, (2, 3), "where its taps lie")
    size, groups = math.prod(kernel), taps.offset_groups
    expected = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(image, taps.pads, taps.dilations, kernel, taps.strides)
    ]
    offset_dims = (2 * size * groups, *expected)
    if groups < 1 or channels % groups or inside * taps.groups != channels:
        raise ModelError(
            f"{channels} channels, weights of {inside} in {taps.groups} groups and {groups} groups "
            "of offsets do not fit",
            place=c.node.place,
        )
    if c.type(offset).dims[1:] != offset_dims:
        raise ModelError(
            f"the offsets are {c.type(offset)}, of shape "
            f"(batch, {', '.join(map(str, offset_dims))}) "
            "they must be",
            place=c.node.place,
        )
    c.check_count(size * math.prod(counts))
    dtype = c.type(x).dtype.numpy
    axis_positions = []
    for axis in (0, 1):
        tap = np.arange(kernel[axis]) * taps.dilations[axis] - taps.pads[axis][0]
        window_starts = np.arange(counts[axis]) * taps.strides[axis]
        window_positions = tap[:, None] + window_starts  # [kernel, windows]
        shape = [1, 1, 1, 1]
        shape[axis], shape[axis + 2] = window_positions.shape
        axis_positions.append(np.broadcast_to(window_positions.reshape(shape), (*kernel, *counts)))
    base = np.stack(axis_positions, 2).reshape(1, size, 2, rows, columns)
    sample_positions = c.add("Reshape", [offset, c.ints([-1, size, 2, rows, columns])])
    sample_positions = c.add("Add", [sample_positions, c.constant(base, dtype)])
    # GridSample counts from -1 to 1 over the whole image, the innermost axis first.
    scale = np.array([2 / n for n in image]).reshape(1, 1, 2, 1, 1)
    shift = np.array([1 / n - 1 for n in image]).reshape(1, 1, 2, 1, 1)
    grid = c.add("Mul", [sample_positions, c.constant(scale, dtype)])
    grid = c.add("Add", [grid, c.constant(shift, dtype)])
    grid = c.add("Gather", [grid, c.ints([1, 0])], axis=2)
    grid = c.add("Transpose", [grid], perm=(0, 1, 3, 4, 2))
    grid = c.add("Reshape", [grid, c.ints([-1, size * rows, columns, 2])])
    planes = c.add("Reshape", [x, c.ints([-1, channels // groups, *image])])
    fields = {"align_corners": False, "mode": "linear", "padding_mode": "zeros"}
    read = c.add("GridSample", [planes, grid], **fields)
    if mask is not None:
        read = c.add("Reshape", [read, c.ints([-1, channels // groups, size, rows, columns])])
        weights = c.add("Reshape", [mask, c.ints([-1, 1, size, rows, columns])])
        read = c.add("Mul", [read, weights])
    read = c.add("Reshape", [read, c.ints([-1, channels * size, rows, columns])])
    flat = c.add("Reshape", [weight, c.ints([out, inside * size, 1, 1])])
    return c.apply("Conv", [read, flat, *([] if bias is None else [bias])], groups=taps.groups)
