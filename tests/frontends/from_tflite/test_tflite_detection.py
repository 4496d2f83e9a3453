"""The detector's last operator keeps the boxes that LiteRT keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.from_tflite.tflite_peer import litert
from tests.frontends.from_tflite.tflite_writer import Op, T, const, model

import verax
from verax.base.errors import ModelError, UnsupportedError, VeraxError
from verax.frontends.tflite import load_tflite
from verax.frontends.tflite.flexbuffer import read_map

flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")

BOXES, CLASSES, MOST = 40, 3, 7
OPTIONS: dict[str, Any] = {
    "max_detections": MOST, "max_classes_per_detection": 1, "detections_per_class": 100,
    "use_regular_nms": False, "nms_score_threshold": 0.3, "nms_iou_threshold": 0.45,
    "num_classes": CLASSES, "y_scale": 10.0, "x_scale": 9.0, "h_scale": 5.0, "w_scale": 4.0,
}  # fmt: skip


def packed(options: dict[str, Any]) -> bytes:
    b = flexbuffers.Builder()
    with b.Map():
        for name, value in options.items():
            b.Key(name)
            kind = {bool: b.Bool, int: b.Int, float: b.Float}[type(value)]
            kind(value)
    return bytes(b.Finish())


def detector(background: int = 1, **changed: Any) -> bytes:
    rng = np.random.default_rng(2)
    anchors = np.hstack([rng.uniform(0, 1, (BOXES, 2)), rng.uniform(0.1, 0.4, (BOXES, 2))])
    tensors = [
        T((1, BOXES, 4), name="codes"), T((1, BOXES, background + CLASSES), name="scores"),
        const(anchors.astype(np.float32)), T((1, MOST, 4), name="boxes"),
        T((1, MOST), name="classes"), T((1, MOST), name="best"), T((1,), name="count"),
    ]  # fmt: skip
    custom = packed({**OPTIONS, **changed})
    op = Op("TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom=custom)
    return model(tensors, [op], [0, 1], [3, 4, 5, 6])


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


@pytest.mark.parametrize(
    "changed",
    [{"use_regular_nms": True}, {"max_classes_per_detection": 2}, {"novel": 3}],
)
def test_forms_that_mean_something_else_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError):
        load_tflite(detector(**changed))


@pytest.mark.parametrize("changed", [{"num_classes": 9}, {"y_scale": 0.0}, {"max_detections": 0}])
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
