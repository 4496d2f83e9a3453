"""Small models of the operators that end a detector, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_tflite.tflite_writer import Case, T, const, several

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


def detector(background: int = 1, quantised: bool = False, **changed: Any) -> bytes:
    options = {**OPTIONS, **changed}
    most = options["max_detections"]
    if not options["use_regular_nms"]:
        most *= max(options["max_classes_per_detection"], 1)
    rng = np.random.default_rng(2)
    anchors = np.hstack([rng.uniform(0, 1, (BOXES, 2)), rng.uniform(0.1, 0.4, (BOXES, 2))])
    codes, scores = T((1, BOXES, 4)), T((1, BOXES, background + CLASSES))
    fixed = const(anchors.astype(np.float32))
    if quantised:
        codes = T(codes.shape, "uint8", scale=[0.07], zero=[131])
        scores = T(scores.shape, "uint8", scale=[0.0041], zero=[3])
        fixed = const(np.rint(anchors * 250).astype(np.uint8), [1 / 250], [0])
    codes.name, scores.name = "codes", "scores"
    operands = [codes, scores, fixed]
    results = [
        T((1, most, 4), name="boxes"), T((1, most), name="classes"), T((1, most), name="best"),
        T((1,), name="count"),
    ]  # fmt: skip
    return several("TFLite_Detection_PostProcess", operands, results, custom=packed(options))


def suppression(sigma: float | None, most: int) -> bytes:
    """NON_MAX_SUPPRESSION_V4, or V5 with a sigma."""
    limits = [const(np.int32(most)), const(np.float32(0.3)), const(np.float32(0.2))]
    operands = [T((BOXES, 4), name="boxes"), T((BOXES,), name="scores"), *limits]
    chosen, count = T((most,), "int32", name="chosen"), T((), "int32", name="count")
    if sigma is None:
        return several("NON_MAX_SUPPRESSION_V4", operands, [chosen, count])
    operands.append(const(np.float32(sigma)))
    results = [chosen, T((most,), name="best"), count]
    return several("NON_MAX_SUPPRESSION_V5", operands, results)


def detection_cases() -> Iterator[Case]:
    """(label, model) in a fixed order."""
    kind = "TFLite_Detection_PostProcess"
    # There is room and little overlap, so that both thresholds matter.
    wide: dict[str, Any] = {"max_detections": BOXES, "nms_iou_threshold": 0.1}
    for which, quantised in (("", False), ("uint8 ", True)):
        yield f"{kind} {which}by box", detector(quantised=quantised, **wide)
        by_class = {**wide, "use_regular_nms": True, "detections_per_class": 20}
        yield f"{kind} {which}by class", detector(quantised=quantised, **by_class)
    yield f"{kind} two classes", detector(max_classes_per_detection=2)
    yield "NON_MAX_SUPPRESSION_V4", suppression(None, MOST)
    yield "NON_MAX_SUPPRESSION_V5", suppression(0.0, MOST)
