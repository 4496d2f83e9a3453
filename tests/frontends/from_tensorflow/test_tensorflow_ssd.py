"""A single-shot detector end to end, frozen and as a SavedModel, against TensorFlow's answers.

`make_ssd.py` wrote the files and the answers; no TensorFlow is needed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import ModelError
from verax.frontends.tensorflow import load_tensorflow
from verax.records.verdict import Kind

with np.load(Path(__file__).with_name("ssd.npz")) as stored:
    STORED = {key: stored[key] for key in stored.files}


def part(prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in STORED.items() if k.startswith(prefix)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("ssd")
    for name, data in part("file:").items():
        (where / name).parent.mkdir(exist_ok=True)
        (where / name).write_bytes(data.tobytes())
    return where


def judged(model: Any, subject: Any) -> None:
    verdict = verax.check(model, subject, {"image": STORED["image"]}, twice=False)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def test_the_frozen_detector_finds_what_tensorflow_finds() -> None:
    model = load_tensorflow(STORED["frozen"].tobytes())
    names = {k: str(v).removesuffix(":0") for k, v in part("value:").items()}
    judged(model, {names[k]: v for k, v in part("answer:").items()})
    judged(model, "verax:O1")


def test_the_saved_detector_finds_what_tensorflow_finds(folder: Path) -> None:
    model = verax.load(folder)
    assert set(model.outputs) == set(part("answer:"))
    judged(model, part("answer:"))


def test_anchors_are_of_the_size_that_the_image_asks_for(folder: Path) -> None:
    """Everything but the number of boxes kept is known without running."""
    model = verax.load(folder)
    known = {k: t.shape for k, t in model.outputs.items() if k in ("boxes", "classes", "count")}
    assert known == {"boxes": (2, 10, 4), "classes": (2, 10), "count": (2,)}


def test_a_flipped_bit_in_the_index_of_variables_is_noticed(folder: Path, tmp_path: Path) -> None:
    """Else a variable might be read from another place of its file."""
    shutil.copytree(folder, tmp_path / "flipped")
    index = tmp_path / "flipped" / "variables" / "variables.index"
    whole = index.read_bytes()
    for at in range(0, 1000, 97):
        changed = bytearray(whole)
        changed[at] ^= 1
        index.write_bytes(bytes(changed))
        with pytest.raises(ModelError, match="the index of variables is damaged"):
            verax.load(tmp_path / "flipped")
