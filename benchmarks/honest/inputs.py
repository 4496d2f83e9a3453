"""Inputs of the campaign: a photo, words, a melody, and noise in the same shapes.

`plain` inputs are what a network is made for, `noise` is what nobody tunes for: both must be judged
rightly. Everything is seeded; the photo is drawn here when the folder with the real one is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

PLAIN, NOISE = "plain", "noise"
STYLES = (PLAIN, NOISE)
PHOTO = Path(__file__).resolve().parents[3] / "shared" / "photos" / "chelsea.png"
SIDE = 256
"""Rows and columns of the picture that crops are taken from."""
SAMPLE_RATE = 16000
Maker = Callable[[str, int], tuple[np.ndarray, ...]]
"""(style, seed) -> arrays in the order of the network's inputs."""


@cache
def picture() -> np.ndarray:
    """A photo of a cat, or a painted scene: float32 [SIDE, SIDE, 3] in 0 to 1."""
    if PHOTO.exists():
        from PIL import Image

        image = Image.open(PHOTO).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return np.asarray(image, np.float32) / 255
    return _painted()


def _painted() -> np.ndarray:
    """Sky, a hill, a sun and grain: edges, flat areas and texture, as photos have them."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    scene = np.stack([0.4 + 0.3 * y, 0.6 + 0.1 * y, 0.9 - 0.2 * y], axis=-1)
    hill = y > 0.7 - 0.25 * np.sin(3 * x + 0.5)
    scene[hill] = np.array([0.25, 0.45, 0.15])
    scene[(x - 0.7) ** 2 + (y - 0.2) ** 2 < 0.01] = np.array([1.0, 0.95, 0.6])
    grain = np.random.default_rng(3).normal(0, 0.03, scene.shape)
    shade = 0.05 * np.sin(40 * x * (1 + y))[..., None]
    return np.clip(scene + grain + shade, 0, 1).astype(np.float32)


def image(*shape: int, mean: float = 0.5, scale: float = 0.25) -> Maker:
    """[N, C, H, W]: crops of the picture, standardised; noise: standard normal."""
    return lambda style, seed: (_image(style, seed, shape, mean, scale),)


def _image(style: str, seed: int, shape: tuple[int, ...], mean: float, scale: float) -> np.ndarray:
    random = np.random.default_rng([seed, 1])
    if style == NOISE:
        return random.standard_normal(shape).astype(np.float32)
    n, channels, height, width = shape
    crops = []
    for _ in range(n):
        zoom = int(random.integers(1, max(2, SIDE // max(height, width))))
        top = int(random.integers(0, SIDE - (height - 1) * zoom))
        left = int(random.integers(0, SIDE - (width - 1) * zoom))
        crops.append(picture()[top:, left:][::zoom, ::zoom][:height, :width])
    pixels = np.stack(crops).transpose(0, 3, 1, 2)
    grey = pixels.mean(axis=1, keepdims=True)
    pixels = np.concatenate([pixels, *[grey] * max(0, channels - 3)], axis=1)[:, :channels]
    return np.ascontiguousarray((pixels - mean) / scale, np.float32)


WORDS = "the judge accuses nobody innocent and no input brings it down ; a sentence of words "


def tokens(vocabulary: int, batch: int, length: int, *, mask: bool = True) -> Maker:
    """Ids [batch, length] and a mask that ends one sentence early; noise: any ids, no padding."""

    def make(style: str, seed: int) -> tuple[np.ndarray, ...]:
        random = np.random.default_rng([seed, 2])
        if style == NOISE:
            ids = random.integers(0, vocabulary, (batch, length))
        else:
            known = [sum(map(ord, w)) % (vocabulary - 4) + 4 for w in WORDS.split()]
            start = random.integers(0, len(known), batch)
            ids = np.array([[known[(s + i) % len(known)] for i in range(length)] for s in start])
        kept = np.ones((batch, length), np.int64)
        if style == PLAIN and mask:
            kept[-1, length - 2 :] = 0
            ids[-1, length - 2 :] = 1
        return (ids.astype(np.int64), kept) if mask else (ids.astype(np.int64),)

    return make


def sound(*shape: int) -> Maker:
    """[N, ..., samples]: a chord with a fading envelope; noise: standard normal."""

    def make(style: str, seed: int) -> tuple[np.ndarray, ...]:
        random = np.random.default_rng([seed, 4])
        if style == NOISE:
            return (random.standard_normal(shape).astype(np.float32),)
        time = np.arange(shape[-1]) / SAMPLE_RATE
        waves = np.zeros(shape)
        for harmonic in (1, 2, 3, 5):
            pitch = random.uniform(110, 440, (*shape[:-1], 1)) * harmonic
            waves += np.sin(2 * np.pi * pitch * time) / harmonic
        waves *= np.exp(-3 * time / time[-1]) * 0.3
        return ((waves + 1e-3 * random.standard_normal(shape)).astype(np.float32),)

    return make


def spectrum(*shape: int) -> Maker:
    """[N, bands, frames] or [N, frames, bands]: log energies in -4 to 4; noise: normal."""

    def make(style: str, seed: int) -> tuple[np.ndarray, ...]:
        random = np.random.default_rng([seed, 5])
        found = random.standard_normal(shape)
        if style == PLAIN:
            y, x = np.mgrid[0 : shape[-2], 0 : shape[-1]]
            lines = sum(np.exp(-((y - f - 0.2 * x) ** 2) / 6) for f in (3, 9, 17))
            found = np.log(lines + 1e-3 * np.exp(found)) + 3
        return (found.astype(np.float32),)

    return make


def numbers(*shape: int, low: float | None = None) -> Maker:
    """Standard normal (plain: smooth along the last axis); low: the least value."""

    def make(style: str, seed: int) -> tuple[np.ndarray, ...]:
        random = np.random.default_rng([seed, 6])
        found = random.standard_normal(shape)
        if style == PLAIN:
            found = np.cumsum(found, axis=-1) / np.sqrt(np.arange(1, shape[-1] + 1))
        if low is not None:
            found = np.maximum(np.abs(found), low)
        return (found.astype(np.float32),)

    return make


def together(*makers: Maker) -> Maker:
    """Several makers' arrays, one after the other."""
    return lambda style, seed: tuple(
        a for i, make in enumerate(makers) for a in make(style, seed + 100 * i)
    )
