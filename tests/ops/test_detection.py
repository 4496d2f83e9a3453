"""NonMaxSuppression, RoiAlign and MaxRoiPool against ONNX Runtime and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from movement_cases import cases_of, in_onnxruntime, label
from witness import agree, meaning

from verax.base.errors import GraphError, InputError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Evaluation, Inference
from verax.ir.types import DType, TensorType
from verax.ops.images import detection
from verax.ops.images.detection import MaxRoiPool, NonMaxSuppression, RoiAlign

BEFORE_22 = 16
"""ONNX Runtime has kernels for the region poolings of this opset."""


@pytest.mark.parametrize("case", cases_of("NonMaxSuppression", "RoiAlign", "MaxRoiPool"), ids=label)
def test_onnxruntime_agrees(case: Case) -> None:
    agree(case.op, case.inputs, in_onnxruntime(case, BEFORE_22))


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes (y1, x1, y2, x2)."""
    sides = [
        min(max(a[i], a[i + 2]), max(b[i], b[i + 2]))
        - max(min(a[i], a[i + 2]), min(b[i], b[i + 2]))
        for i in (0, 1)
    ]
    common = max(sides[0], 0) * max(sides[1], 0)
    areas = [abs((c[2] - c[0]) * (c[3] - c[1])) for c in (a, b)]
    return common / (sum(areas) - common)


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.6, 1.0])
def test_a_box_is_kept_unless_a_better_one_overlaps(
    threshold: float, rng: np.random.Generator
) -> None:
    boxes = rng.uniform(0, 3, (2, 12, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 3, 12)).astype(np.float32)
    want = []
    for n in range(2):
        for c in range(3):
            kept: list[int] = []
            for i in sorted(range(12), key=lambda i: -scores[n, c, i]):
                clear = all(
                    overlap(boxes[n, i].astype(float), boxes[n, j].astype(float)) <= threshold
                    for j in kept
                )
                if clear and scores[n, c, i] > 0.3 and len(kept) < 5:
                    kept.append(i)
            want += [(n, c, i) for i in kept]
    settings = np.array([5]), np.array([threshold], np.float32), np.array([0.3], np.float32)
    (got,) = meaning(NonMaxSuppression(), boxes, scores, *settings)
    assert got.tolist() == [list(w) for w in want]


@pytest.mark.parametrize("count", [1, 7, 150])
@pytest.mark.parametrize("most", [1, 20, 200])
def test_boxes_are_compared_in_pairs_or_one_by_one(
    count: int, most: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = rng.uniform(0, 9, (2, count, 2))
    boxes = np.concatenate([low, low + rng.uniform(-0.2, 4, low.shape)], -1).astype(np.float32)
    scores = np.round(rng.uniform(0, 1, (2, 3, count)), 2).astype(np.float32)
    scores[0, 1, count // 2] = np.nan
    settings = np.array([most]), np.array([0.3], np.float32)
    found = []
    for pairs in (True, False):
        monkeypatch.setattr(detection, "_cheaper_at_once", lambda *_, pairs=pairs: pairs)
        found.append(meaning(NonMaxSuppression(), boxes, scores, *settings)[0].tolist())
    assert found[0] == found[1]


def test_boxes_that_are_no_numbers_are_safe() -> None:
    boxes = np.array([[[0, 0, 1, 1], [np.nan] * 4, [0, 0, 1, 1], [np.inf] * 4]], np.float32)
    scores = np.array([[[0.5, np.nan, 0.9, 0.7]]], np.float32)
    (got,) = meaning(NonMaxSuppression(), boxes, scores, np.array([9]), np.array([0.5], np.float32))
    assert got[:, 2].tolist() == [2, 3, 1]
    least = np.array([0.1], np.float32)
    (got,) = meaning(NonMaxSuppression(), boxes, scores, np.array([9]), least, least)
    assert got[:, 2].tolist() == [2, 3]


def test_regions_outside_of_the_batch_or_no_numbers_are_input_errors() -> None:
    x, ev = np.ones((2, 3, 4, 5)), Evaluation((), ())
    roi = np.array([[0.0, 0, 2, 2]])
    for index in (2, -1):
        with pytest.raises(InputError):
            RoiAlign().reference(ev, x, roi, np.array([index]))
        with pytest.raises(InputError):
            MaxRoiPool(pooled_shape=(1, 1)).reference(ev, x, np.array([[index, 0.0, 0, 1, 1]]))
    with pytest.raises(InputError):
        RoiAlign().reference(ev, x, roi * np.nan, np.array([0]))
    with pytest.raises(InputError):
        RoiAlign().reference(ev, x, roi * 1e9, np.array([0]))


def test_types_over_symbols() -> None:
    n, r = symbol("n"), symbol("r")
    types = [
        TensorType(k, d)
        for k, d in (
            *((DType.float32, (n, 3, 8, 9)), (DType.float32, (r, 4)), (DType.int64, (r,))),
            (DType.float32, (r, 5)),
        )
    ]
    aligned = RoiAlign(output_height=2, output_width=5).infer(Inference(tuple(types[:3])))
    assert aligned[0].dims == (r, 3, 2, 5)
    pooled = MaxRoiPool(pooled_shape=(2, 5)).infer(Inference((types[0], types[3])))
    assert pooled[0].dims == (r, 3, 2, 5)


def test_boxes_and_scores_must_fit() -> None:
    for boxes, scores in (((2, 9, 4), (2, 3, 8)), ((2, 9, 5), (2, 3, 9)), ((2, 9, 4), (3, 3, 9))):
        types = tuple(TensorType(DType.float32, d) for d in (boxes, scores))
        with pytest.raises(GraphError):
            NonMaxSuppression().infer(Inference(types))
