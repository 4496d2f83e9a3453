"""Labelled samples, and networks to run them on: honest, spoilt, and nearly undecided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def noisy_digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures uint8 [count, 24, 20] of 3, 5 and 8, shifted and noisy, and their labels: the
    example network is right on some."""
    random = np.random.default_rng(seed)
    labels = random.choice([3, 5, 8], count)
    pictures = []
    for label in labels:
        own = np.asarray(Image.open(DIGITS / f"{label}.png")).astype(float)
        moved = np.roll(own, random.integers(-2, 3, 2), (0, 1))
        pictures.append(np.clip(moved + random.normal(0, 45, own.shape), 0, 255).astype(np.uint8))
    return np.stack(pictures), labels


@pytest.fixture
def digits() -> Path:
    """The example network's file."""
    return DIGITS / "digits.onnx"


@pytest.fixture
def spoilt(tmp_path: Path, digits: Path) -> Path:
    """The example network with one wrong weight."""
    model = onnx.load(digits)
    (found,) = (t for t in model.graph.initializer if t.name == "pointwise.weight")
    weight = numpy_helper.to_array(found).copy()
    weight[1, 5] += 2.5
    found.CopyFrom(numpy_helper.from_array(weight, found.name))
    path = tmp_path / "spoilt.onnx"
    onnx.save(model, path)
    return path


def as_folder(folder: Path, pictures: np.ndarray, labels: np.ndarray) -> Path:
    """One sub-folder per class, one .png per picture."""
    for i, (picture, label) in enumerate(zip(pictures, labels)):
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{i:03}.png")
    return folder
