"""The training experiment says rounding of the loops, and names both mistakes."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import substitution


def test_the_experiment_tells_rounding_from_mistakes(tmp_path: Path) -> None:
    said: list[str] = []
    assert substitution.story(2, said.append, tmp_path / "plot.svg") == 0
    drawn = ElementTree.parse(tmp_path / "plot.svg").getroot()
    lines = [e for e in drawn.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 3 * 7 - 1  # PyTorch is not drawn against itself
    text = "\n".join(said)
    assert "The seven loops: the losses part by" in text and "by rounding alone" in text
    assert "layer 0: weight (1, 0, 2, 1): off by" in text
    assert "layer 2: the gradient of bias is left out" in text


def test_the_digits_can_be_told_apart() -> None:
    images, labels = substitution.digits(200, seed=4)
    assert images.shape == (200, 1, 8, 8) and set(labels.tolist()) == set(range(10))
    means = np.stack([images[labels == k].mean(0).numpy().ravel() for k in range(10)])
    gaps = np.linalg.norm(means[:, None] - means[None], axis=-1)
    assert gaps[~np.eye(10, dtype=bool)].min() > 0.5
