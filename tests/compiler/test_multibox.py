"""MultiBoxDetection runs natively: the rows that are promised, whatever the boxes are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.native import agree, seeds
from verax.ir.operator import Case
from verax.ops.images.multibox import MultiBoxDetection

F = np.float32
CASES = [
    c
    for c in MultiBoxDetection.cases(np.random.default_rng(5))
    if c.inputs[0] is not None and c.inputs[0].dtype == F
]


def detections(
    seed: int, images: int, classes: int, anchors: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with ties, zeros of both signs and NaN; offsets; anchors that overlap often, some the
    same, without area, turned or without end."""
    rng = np.random.default_rng(seed)
    scores = np.round(rng.uniform(-0.2, 1, (images, classes, anchors)), 1).astype(F)
    offsets = rng.standard_normal((images, 4 * anchors)).astype(F)
    corner = rng.uniform(0, 0.6, (anchors, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0, 0.5, (anchors, 2))], -1).astype(F)
    boxes[rng.random(anchors) < 0.3] = boxes[0]
    if seed % 2:
        odd = rng.integers(0, anchors, 5)
        boxes[odd[0], 2:], boxes[odd[1], 1], boxes[odd[2], 3] = boxes[odd[0], :2], np.nan, np.inf
        boxes[odd[3]] = boxes[odd[3], [2, 3, 0, 1]]
        offsets[0, odd[4] * 4 + 2] = 1000
        scores[rng.random(scores.shape) < 0.1] = np.nan
        scores[rng.random(scores.shape) < 0.1] = -0.0
        scores[rng.random(scores.shape) < 0.1] = -np.inf
    else:
        offsets *= F(0.3)
    return scores, offsets, boxes[None]


@pytest.mark.parametrize("case", CASES, ids=[c.label for c in CASES])
def test_every_case_of_the_operator(case: Case) -> None:
    agree(case.op, *case.inputs)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seeds, st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 5, 16, 37, 130]),
    st.sampled_from([0.0, 0.3, -0.05, 0.95]), st.sampled_from([0.0, 0.05, 0.4, 1.0, 1.5]),
    st.sampled_from([-1, 0, 3, 20]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_drawn_ones(
    seed: int, images: int, classes: int, anchors: int, threshold: float, overlap: float,
    topk: int, force: bool, clip: bool,
) -> None:  # fmt: skip
    op = MultiBoxDetection(
        clip=clip, threshold=threshold, nms_threshold=overlap, force_suppress=force, nms_topk=topk
    )
    agree(op, *detections(seed, images, classes, anchors))


def test_more_images_than_items() -> None:
    agree(MultiBoxDetection(nms_threshold=0.2), *detections(4, 71, 3, 21))
