"""Layers that several formats have and that are several operators of ours: stated once.

Each takes a node and values of the graph, and appends what it needs. What a format says of its
attributes, and what it refuses, stays in its table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.frontends.common.context import Applied, Conversion
from verax.frontends.common.shapes import inverse
from verax.ir.types import DType

Complex = Sequence[str]
"""Two values: the real and the imaginary part."""


def complex_product(c: Conversion, left: Complex, right: Complex) -> list[str]:
    """The real and the imaginary part of a product of complex numbers."""
    (a, b), (p, q) = left, right
    real = c.add("Sub", [c.add("Mul", [a, p]), c.add("Mul", [b, q])])
    imaginary = c.add("Add", [c.add("Mul", [a, q]), c.add("Mul", [b, p])])
    return [real, imaginary]


def with_channels_second(
    c: Conversion, kind: str, x: str, parameters: Sequence[str], axis: int, **fields: Any
) -> Applied:
    """A normalization whose channels lie along `axis` (not the batch), which is brought to the
    second place and back where it is another. fields: of the operator `kind`."""
    rank = c.rank(x)
    if axis % rank == 1:
        return c.apply(kind, [x, *parameters], **fields)
    perm = (0, axis % rank, *(i for i in range(1, rank) if i != axis % rank))
    transposed = c.add("Transpose", [x], perm=perm)
    y = c.add(kind, [transposed, *parameters], **fields)
    return c.apply("Transpose", [y], perm=inverse(perm))


def masked_scores(c: Conversion, scores: str, mask: str) -> str:
    """Scores of attention with a mask: of truth values, which hides where it is false, or numbers
    that are added."""
    dtype = c.type(scores).dtype
    if c.type(mask).dtype is DType.bool_:
        return c.add("Where", [mask, scores, c.constant(-np.inf, dtype.numpy)])
    return c.add("Add", [scores, c.cast(mask, dtype)])


def sums_of_windows(
    c: Conversion,
    dtype: DType,
    channels: int,
    kernel: Sequence[int],
    *,
    image: Sequence[int],
    counts: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> tuple[str, dict[str, Any]]:
    """(weight, fields) of the ConvTranspose that adds windows [batch, channels * window, *counts]
    up to images: it puts every element at its place in the window, channel by channel.

    counts: windows along each axis. Sizes are checked by the caller.
    """
    size = math.prod(kernel)
    single = np.eye(size).reshape(size, 1, *kernel)
    weight = c.constant(np.tile(single, (channels, *(1,) * (len(kernel) + 1))), dtype.numpy)
    covered = [
        (n - 1) * s - sum(p) + d * (k - 1) + 1
        for n, s, p, d, k in zip(counts, strides, pads, dilations, kernel)
    ]
    return weight, {
        "strides": tuple(strides),
        "pads": tuple(pads),
        "dilations": tuple(dilations),
        "groups": channels,
        "output_padding": tuple(n - e for n, e in zip(image, covered)),
    }
