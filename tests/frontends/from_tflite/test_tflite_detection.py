"""The detector's last operator keeps the boxes that LiteRT keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_tflite.detection_cases import (
    BOXES,
    CLASSES,
    MOST,
    OPTIONS,
    detector,
    packed,
    suppression,
)
from tests.frontends.from_tflite.tflite_peer import litert

import verax
from verax.base.errors import ModelError, UnsupportedError, VeraxError
from verax.frontends.tflite import load_tflite
from verax.frontends.tflite.flexbuffer import read_map
from verax.records.verdict import Kind

SSD = np.load(Path(__file__).with_name("ssd.npz"))
"""Whole detectors of TensorFlow's converter and LiteRT's answers, by make_ssd.py."""


def inputs(seed: int, background: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0, 1, (1, BOXES, background + CLASSES)) ** 2
    codes = rng.normal(0, 2, (1, BOXES, 4))
    return {"codes": codes.astype(np.float32), "scores": scores.astype(np.float32)}


@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize("threshold", [0.3, 0.93])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_boxes_kept_are_those_of_litert(seed: int, threshold: float, background: int) -> None:
    made = detector(background, nms_score_threshold=threshold)
    x = inputs(seed, background)
    want, loaded = litert(made, x), load_tflite(made)
    found = verax.compile(loaded).run(x)
    (count,) = want["count"].astype(int)
    assert count > 0 and (threshold < 0.9 or count < MOST)
    np.testing.assert_array_equal(found["count"], want["count"])
    for name in ("classes", "best"):
        np.testing.assert_array_equal(found[name][:, :count], want[name][:, :count])
        assert not found[name][:, count:].any()
    kept = {"boxes": want["boxes"].copy()}
    kept["boxes"][:, count:] = 0  # LiteRT leaves them as they were
    verdict = verax.check(loaded, kept, inputs=x)
    assert verdict.exit_code == 0, verdict.reasons


def require_same(made: bytes, x: dict[str, np.ndarray], per_box: int = 1, shown: int = 1) -> int:
    """What is kept is what LiteRT keeps, by its indices and by our judge; returns the count."""
    want, loaded = litert(made, x), load_tflite(made)
    found = verax.compile(loaded).run(x)
    (count,) = want["count"].astype(int)
    assert found["count"] == count
    kept = {"count": want["count"]}
    for name in ("classes", "best", "boxes"):
        rows = want[name].reshape(1, -1, per_box, *want[name].shape[2:]).copy()
        rows[:, count:] = 0  # LiteRT's fast form leaves them as they were
        rows[:, :, shown:] = 0
        kept[name] = rows.reshape(want[name].shape)
    np.testing.assert_array_equal(found["classes"], kept["classes"])
    verdict = verax.check(loaded, kept, inputs=x)
    assert verdict.exit_code == 0, verdict.reasons
    return int(count)


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("per_class", [2, 100])
def test_classes_that_are_suppressed_one_by_one(seed: int, per_class: int) -> None:
    changed = {"use_regular_nms": True, "detections_per_class": per_class, "max_detections": 9}
    count = require_same(detector(**changed), inputs(seed))
    assert count == min(9, per_class * CLASSES)
    changed["nms_score_threshold"] = 0.93
    assert 0 < require_same(detector(**changed), inputs(seed)) <= 9


@pytest.mark.parametrize("each", [2, 3, 5])
def test_boxes_that_show_several_classes(each: int) -> None:
    made = detector(max_classes_per_detection=each, nms_score_threshold=0.8)
    assert require_same(made, inputs(5), each, min(each, CLASSES)) > 1


@pytest.mark.parametrize("regular", [False, True])
def test_operands_of_bytes(regular: bool) -> None:
    made = detector(quantised=True, use_regular_nms=regular)
    rng = np.random.default_rng(8)
    scores = rng.permutation(BOXES * (1 + CLASSES)).reshape(1, BOXES, 1 + CLASSES)
    codes = rng.integers(100, 160, (1, BOXES, 4))
    x = {"codes": codes.astype(np.uint8), "scores": scores.astype(np.uint8)}
    assert require_same(made, x) == MOST


def test_an_option_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        load_tflite(detector(novel=3))


@pytest.mark.parametrize(
    "changed",
    [
        *({"num_classes": 9}, {"y_scale": 0.0}, {"max_detections": 0}),
        *({"nms_iou_threshold": 0.0}, {"max_classes_per_detection": 0}),
    ],
)
def test_options_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        load_tflite(detector(**changed))


def test_every_option_matters() -> None:
    x = inputs(1)
    want = verax.reference(load_tflite(detector()), x)
    for name, factor in (("nms_score_threshold", 3.1), ("nms_iou_threshold", 0.1), ("y_scale", 2),
                         ("x_scale", 2), ("h_scale", 2), ("w_scale", 2)):  # fmt: skip
        changed = detector(**{name: OPTIONS[name] * factor})
        found = verax.reference(load_tflite(changed), x)
        assert any(not np.array_equal(found[k], want[k]) for k in want), name


def test_options_of_every_width() -> None:
    options = {"a": 1, "b": -70_000, "c": 2**40, "d": 0.1, "e": True, "f": 1.5}
    assert read_map(packed(options)) == options


def test_damaged_options_end_in_an_error_of_ours() -> None:
    data, rng = packed(OPTIONS), np.random.default_rng(0)
    for _ in range(500):
        copy = bytearray(data)
        copy[int(rng.integers(len(copy)))] = int(rng.integers(256))
        try:
            read_map(bytes(copy[: int(rng.integers(1, len(copy) + 1))]))
            read_map(bytes(copy))
        except VeraxError:
            pass


@pytest.mark.parametrize("sigma", [None, 0.0])
@pytest.mark.parametrize("most", [6, 38])
def test_plain_suppression_keeps_what_litert_keeps(sigma: float | None, most: int) -> None:
    rng = np.random.default_rng(17)
    corners = rng.uniform(0, 1, (BOXES, 2))
    boxes = np.hstack([corners, corners + rng.uniform(0.05, 0.4, (BOXES, 2))])
    boxes[::3] = boxes[::3][:, [2, 3, 0, 1]]  # corners in any order
    x = {"boxes": boxes.astype(np.float32), "scores": rng.permutation(BOXES).astype(np.float32)}
    x["scores"] /= BOXES
    made = suppression(sigma, most)
    want, loaded = litert(made, x), load_tflite(made)
    assert 1 < want["count"] <= most
    for name, found in verax.compile(loaded).run(x).items():
        np.testing.assert_array_equal(found, want[name])


def test_scores_that_decay_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="decay"):
        load_tflite(suppression(0.5, 6))


@pytest.mark.parametrize("name", [n[:-3] for n in SSD if n.endswith(".in")])
def test_a_whole_detector_finds_what_litert_finds(name: str) -> None:
    """From the image to boxes, classes, scores and their count; every list is full, so that
    nothing is undefined."""
    model = load_tflite(SSD[f"{name}.tflite"].tobytes())
    inputs = {next(iter(model.inputs)): SSD[f"{name}.in"]}
    given = {key: SSD[f"{name}.out:{key}"] for key in model.outputs}
    found = verax.compile(model).run(inputs)
    for key, array in given.items():
        if np.array_equal(array, np.rint(array)):  # classes and count
            np.testing.assert_array_equal(found[key], array)
    verdict = verax.check(model, given, inputs=inputs)
    if name.startswith("float32"):
        assert verdict.exit_code == 0, verdict.reasons
    else:  # with scores of 8 bits many choices are open, and a check of boxes may be blind
        assert verdict.kind is not Kind.mistake, verdict.reasons


def test_whole_detectors_differ_by_their_suppression() -> None:
    one, other = (
        {k: v for k, v in SSD.items() if k.startswith(f"float32/{how}.out")}
        for how in ("by box", "by class")
    )
    assert any(not np.array_equal(a, b) for a, b in zip(one.values(), other.values()))
