"""Graphs of what object detectors are made of: suppression, gathering, masks, computed bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tf_cases import draw, raw, tf


def boxes(*shape: int, seed: int = 0) -> np.ndarray:
    """Boxes (y1, x1, y2, x2) that overlap in places, some with their corners swapped."""
    random = np.random.default_rng([seed, *shape])
    centre, size = random.uniform(0, 1, (*shape, 2)), random.uniform(0.2, 0.7, (*shape, 2))
    found = np.concatenate([centre - size / 2, centre + size / 2], -1).astype(np.float32)
    swapped = found.reshape(-1, 4)[::3]
    found.reshape(-1, 4)[::3] = swapped[:, [2, 3, 0, 1]]
    return found


def scores(*shape: int) -> np.ndarray:
    """Scores between 0 and 1, no two alike."""
    count = int(np.prod(shape))
    order = np.random.default_rng(count).permutation(count)
    return ((order + 0.5) / count).astype(np.float32).reshape(shape)


def suppressed(version: str, *limits: float, count: int = 5, **options: Any) -> Callable[..., Any]:
    names = ("iou_threshold", "score_threshold", "soft_nms_sigma")
    given = dict(zip(names, limits))
    kind = getattr(raw, f"NonMaxSuppression{version}")

    def function(b: Any, s: Any) -> Any:
        return kind(boxes=b, scores=s, max_output_size=count, **given, **options)

    return function


def combined(**options: Any) -> Callable[..., Any]:
    given = {"max_output_size_per_class": 3, "max_total_size": 7, **options}
    return lambda b, s: list(
        raw.CombinedNonMaxSuppression(
            boxes=b, scores=s, iou_threshold=0.3, score_threshold=0.15, **given
        )
    )


def between(x: Any, places: Any) -> Any:
    """Bounds that only running tells."""
    first = tf.reduce_min(places)
    return [x[:, first : first + 2], x[first], x[:, -1:first:-1], tf.slice(x, [0, first], [-1, 2])]


BOXES, SCORES = boxes(13), scores(13)
DETECTION: dict[str, tuple[Any, ...]] = {
    "nms1": (
        lambda b, s: raw.NonMaxSuppression(boxes=b, scores=s, max_output_size=4, iou_threshold=0.3),
        BOXES,
        SCORES,
    ),
    "nms2": (suppressed("V2", 0.25), BOXES, SCORES),
    "nms3": (suppressed("V3", 0.25, 0.2), BOXES, SCORES),
    "nms4": (suppressed("V4", 0.25, 0.4, count=9, pad_to_max_output_size=True), BOXES, SCORES),
    "nms4_short": (suppressed("V4", 0.25, 0.75), BOXES, SCORES),
    "nms5": (suppressed("V5", 0.25, 0.3, 0.0, count=9), BOXES, SCORES),
    "nms5_padded": (
        suppressed("V5", 0.25, 0.6, 0.0, count=9, pad_to_max_output_size=True),
        BOXES,
        SCORES,
    ),
    "combined": (combined(), boxes(2, 11, 1) * 1.2, scores(2, 11, 3)),
    "combined_own": (combined(clip_boxes=False), boxes(2, 11, 3) * 1.2, scores(2, 11, 3)),
    "combined_padded": (
        combined(pad_per_class=True, max_total_size=50),
        boxes(2, 11, 1),
        scores(2, 11, 3),
    ),
    "combined_wide": (combined(max_total_size=40), boxes(2, 11, 3), scores(2, 11, 3)),
    "mask": (
        lambda x: [tf.where(x > 0.3), tf.boolean_mask(x, x[..., 0] > 0), tf.where(x[0, 0] > 9)],
        draw(2, 3, 5),
    ),
    "gather_batch": (
        lambda x, i: [
            tf.gather(x, i, axis=1, batch_dims=1),
            tf.gather(x, i, axis=-1, batch_dims=1),
            tf.gather(x, i[:, 0], axis=2, batch_dims=1),
        ],
        draw(2, 4, 5, 3),
        np.array([[2, 0, 1], [1, 1, 2]], np.int32),
    ),
    "bounds": (between, draw(3, 5), np.array([4, 1, 2], np.int32)),
    "one_hot_constant": (
        lambda x: x * tf.one_hot(tf.constant([[0, 4], [2, 7]]), 5),
        draw(2, 2, 5),
    ),
}
