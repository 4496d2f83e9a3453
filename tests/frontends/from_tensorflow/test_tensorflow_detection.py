"""A detector as the Object Detection API of TensorFlow 1 exports them: images of bytes resized one
by one in a loop, boxes suppressed class by class in another; against TensorFlow's answers
(make_detection.py)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.model import Model
from verax.frontends.tensorflow import load_tensorflow
from verax.records.verdict import Kind

STORED = Path(__file__).with_name("detection.npz")
OUTPUTS = ("detection_boxes", "detection_scores", "detection_classes", "num_detections")


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(STORED) as file:
        return dict(file)


@cache
def detector(name: str) -> Model:
    shape = stored()[f"{name}.image_tensor"].shape
    return load_tensorflow(stored()["graph"].tobytes(), shapes={"image_tensor": shape})


@pytest.mark.parametrize("name", ["one", "two"])
def test_it_finds_what_tensorflow_finds(name: str) -> None:
    model, inputs = detector(name), {"image_tensor": stored()[f"{name}.image_tensor"]}
    assert tuple(model.outputs) == OUTPUTS
    exe = verax.compile(model, opt_level=1, threads=1)
    for made in (exe.run(inputs), verax.reference(model, inputs)):
        for output in OUTPUTS:
            right = stored()[f"{name}.{output}"]
            assert made[output].shape == right.shape
            np.testing.assert_allclose(made[output], right, rtol=2e-5, atol=1e-6)


def test_all_but_what_has_an_open_size_has_a_kernel() -> None:
    """Behind the boxes that score enough nobody knows sizes; all before that is native."""
    exe = verax.compile(detector("two"), opt_level=1, threads=1)
    assert exe.plan.on_reference
    slow = [line for line in exe.plan.lines if " reference " in line]
    assert all(line.endswith("its shape is known only when it runs") for line in slow)
    assert all("Postprocessor/map/while" in line for line in slow)


def test_it_is_judged_right() -> None:
    model, inputs = detector("one"), {"image_tensor": stored()["one.image_tensor"]}
    exe = verax.compile(model, opt_level=2, threads=1)
    assert verax.check(model, exe, inputs).kind in (Kind.identical, Kind.rounding)


def test_without_sizes_it_says_what_is_missing() -> None:
    with pytest.raises(UnsupportedError, match="or its length, is computed at run time") as e:
        load_tensorflow(stored()["graph"].tobytes())
    assert "give the sizes when loading" in str(e.value)
