"""TensorFlow's bicubic resampling, which Keras's is as well: its own rounding of positions, and its
own weights, so that the numbers are its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from verax.base.machine import memory
from verax.frontends.common.context import Conversion

STEPS = 1024
"""Positions between two pixels for which there are weights."""


def resized_bicubic(
    c: Conversion, image: str, old: Sequence[int], new: Sequence[int], aligned: bool, half: bool
) -> str:
    """image [n, h, w, c] with the sizes `old` taken to `new`: four rows, then four columns,
    weighted. aligned, half: which positions correspond, as `align_corners` and
    `half_pixel_centers`. Raises `InputError` when an image of one channel would not fit."""
    memory.require(4 * math.prod(new), "the resized image", c.node.place)
    value = image
    for axis in (1, 2):
        indices, weights = bicubic_taps(old[axis - 1], new[axis - 1], aligned, half)
        shape = [-1 if a == axis else 1 for a in range(4)]
        terms = []
        for k in range(4):
            rows = c.add("Gather", [value, c.constant(indices[k], np.int64)], axis=axis)
            terms.append(c.add("Mul", [rows, c.constant(weights[k].reshape(shape))]))
        value = c.add("Sum", terms)
    return value


def bicubic_taps(old: int, new: int, aligned: bool, half: bool) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the four source pixels of each output and their weights: int64 and float32, both
    [4, new].

    Every step is in float32, as TensorFlow takes it.
    """
    f = np.float32
    scale = f(old - 1) / f(new - 1) if aligned and new > 1 else f(old) / f(new)
    at = np.arange(new, dtype=f)
    at = (at + f(0.5)) * scale - f(0.5) if half else at * scale
    first = np.floor(at)
    step = np.rint((at - first) * f(STEPS)).astype(np.int64)
    near, far = _cubic_table(-0.5 if half else -0.75)
    weights = np.stack([far[step], near[step], near[STEPS - step], far[STEPS - step]])
    unclipped = first.astype(np.int64) + np.arange(-1, 3)[:, None]
    indices = unclipped.clip(0, old - 1)
    if half:
        weights = np.where(indices == unclipped, weights, f(0))
        total = weights[0] + weights[1] + weights[2] + weights[3]
        inner = np.abs(total) >= f(1000) * np.finfo(f).tiny
        weights = np.where(inner, weights * (f(1) / np.where(inner, total, f(1))), weights)
    return indices, weights.astype(f)


def _cubic_table(a: float) -> tuple[np.ndarray, np.ndarray]:
    """Keys' kernel at i / 1024 and at 1 + i / 1024, for i up to 1024, in float32."""
    x = np.arange(STEPS + 1) / STEPS
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return near.astype(np.float32), far.astype(np.float32)
