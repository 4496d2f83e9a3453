"""Inputs that are hard on a rounding criterion: on them errors correlate, cancel or vanish.

On normal numbers rounding errors are independent and every model of them holds. Constant pictures,
ramps, bytes, large offsets and sparse activations are what networks meet outside of tests.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _ramp(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Rising along the last two axes, another slope in every image and channel."""
    rows, columns = np.linspace(0, 1, shape[-2])[:, None], np.linspace(0, 1, shape[-1])
    slopes = random.uniform(0.5, 2.0, (*shape[:-2], 1, 1))
    return slopes * (rows + columns)


STYLES: dict[str, Draw] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "bytes": lambda random, shape: random.integers(0, 256, shape).astype(np.float64),
    "constant": lambda random, shape: np.full(shape, 0.7),
    "ramp": _ramp,
    "sparse": lambda random, shape: random.standard_normal(shape) * (random.random(shape) < 0.1),
    "offset": lambda random, shape: 100.0 + random.standard_normal(shape),
    "tiny": lambda random, shape: 1e-20 * random.standard_normal(shape),
    "spikes": lambda random, shape: np.where(
        random.random(shape) < 0.01, 1e4, random.standard_normal(shape)
    ),
}
"""Ways to draw an array of a shape, by name."""


def draw(style: str, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array in the given style. Deterministic for its arguments."""
    random = np.random.default_rng([seed, list(STYLES).index(style)])
    return STYLES[style](random, shape).astype(np.float32)
