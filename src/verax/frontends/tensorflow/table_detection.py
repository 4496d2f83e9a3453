"""TensorFlow operators of object detectors: suppression of overlapping boxes, one class or all.

Boxes are (y1, x1, y2, x2) with corners in any order. Candidates score above the threshold;
a box is dropped when it overlaps a kept one by more than the limit; of equal scores the lower index
is first. All this is `NonMaxSuppression`'s meaning too.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.channels_last import constant_ints, longs, static_dims
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tensorflow.rows import row
from verax.ir.types import DType

LOWEST = float(np.finfo(np.float32).min)
"""The score threshold of versions that have none: it drops NaN and -inf."""


@row("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def non_max_suppression(c: Conversion) -> Result:
    """Operands: boxes [n, 4], scores [n], count; then IoU and score thresholds where the version
    has them as operands. Places of the boxes kept, int32."""
    if c.node.op_type == "NonMaxSuppression":
        overlap = c.constant([c.scalar("iou_threshold", 0.5)], np.float32)
    else:
        overlap = _scalar(c, 3)
    lowest = _scalar(c, 4) if c.node.op_type.endswith("V3") else c.constant([LOWEST], np.float32)
    return c.result("Cast", [_selected(c, overlap, lowest)], to=DType.int32)


@row("NonMaxSuppressionV4", "NonMaxSuppressionV5")
def padded_suppression(c: Conversion) -> Result:
    """As V3, and how many were kept; V5 their scores too. Padded places and scores are zero."""
    scored = c.node.op_type.endswith("V5")
    if scored:
        sigma = c.known_value(5)
        if sigma is None or np.any(sigma != 0):
            c.refuse("soft suppression (soft_nms_sigma other than 0)")
    selected = _selected(c, _scalar(c, 3), _scalar(c, 4))
    count = c.add("Cast", [c.add("Size", [selected])], to=DType.int32)
    values = [selected, c.add("Gather", [c.required(1), selected])] if scored else [selected]
    if c.flag("pad_to_max_output_size"):
        (max_boxes,) = constant_ints(c, 2, "the count")
        values = [_padded(c, v, max_boxes) for v in values]
    values[0] = c.add("Cast", [values[0]], to=DType.int32)
    return _named(c, [*values, count])


@row("CombinedNonMaxSuppression")
def combined_suppression(c: Conversion) -> Result:
    """Operands: boxes [b, n, q, 4], scores [b, n, classes], counts per class and in all, IoU and
    score thresholds; q is 1 or the number of classes. Every class of every image by itself; then
    the best of an image, whatever their class, padded with zeros."""
    a = c.attributes
    (per_class,), (max_boxes,) = (constant_ints(c, i, "the count") for i in (2, 3))
    n, q, four = c.known_sizes(0, (1, 2, 3)) if c.rank(0) == 4 else (0, 0, 0)
    same, classes = c.known_sizes(1, (1, 2)) if c.rank(1) == 3 else (0, 0)
    if four != 4 or n != same or q not in (1, classes) or per_class < 1 or max_boxes < 1:
        raise ModelError(f"{c.type(0)} and {c.type(1)} do not fit", place=c.node.place)
    if a.flag("pad_per_class"):
        max_boxes = min(max_boxes, per_class * classes)
    boxes = c.add("Transpose", [c.required(0)], perm=(0, 2, 1, 3))  # [b, q, n, 4]
    scores = c.add("Transpose", [c.required(1)], perm=(0, 2, 1))  # [b, classes, n]
    limits = [c.ints((per_class,)), _scalar(c, 4), _scalar(c, 5)]
    if q == 1:
        boxes = c.add("Squeeze", [boxes, c.ints((1,))])
        selected_scores = _selected_scores(c, boxes, scores, limits)
    else:
        apart = [c.add("Reshape", [boxes, c.ints((-1, n, 4))])]
        apart.append(c.add("Reshape", [scores, c.ints((-1, 1, n))]))
        selected_scores = _selected_scores(c, apart[0], apart[1], limits)
        boxes = c.add("Reshape", [boxes, c.ints((-1, classes * n, 4))])
    values, indices = _best(c, c.add("Reshape", [selected_scores, c.ints((-1, classes * n))]),
                           classes * n, max_boxes)  # fmt: skip
    valid = c.add("Greater", [values, c.constant(-np.inf, np.float32)])
    zero = c.constant(0, np.float32)
    at = c.add("Mod", [indices, c.constant(n, np.int64)]) if q == 1 else indices
    selected_boxes = c.add(
        "GatherND", [boxes, c.add("Unsqueeze", [at, c.ints((2,))])], batch_dims=1
    )
    if a.flag("clip_boxes", True):
        selected_boxes = c.add("Clip", [selected_boxes, zero, c.constant(1, np.float32)])
    names = c.add("Cast", [c.add("Div", [indices, c.constant(n, np.int64)])], to=DType.float32)
    is_valid = c.add("Cast", [valid], to=DType.int32)
    return _named(
        c,
        [
            c.add("Where", [c.add("Unsqueeze", [valid, c.ints((2,))]), selected_boxes, zero]),
            c.add("Where", [valid, values, zero]),
            c.add("Where", [valid, names, zero]),
            c.add("ReduceSum", [is_valid, c.ints((1,))], keepdims=False),
        ],
    )


def _scalar(c: Conversion, index: int) -> str:
    """A scalar operand as a vector of one number."""
    if c.type(index).dtype is not DType.float32:
        c.refuse(f"a threshold of type {c.type(index).dtype}")
    return c.add("Reshape", [c.required(index), c.ints((1,))])


def _selected(c: Conversion, overlap: str, lowest: str) -> str:
    """Indices of the selected boxes of one image and one class, int64 [selected]."""
    static_dims(c, 2, "the count")
    boxes = c.add("Unsqueeze", [c.required(0), c.ints((0,))])
    scores = c.add("Unsqueeze", [c.required(1), c.ints((0, 1))])
    count = c.add("Reshape", [longs(c, 2), c.ints((1,))])
    triples = c.add("NonMaxSuppression", [boxes, scores, count, overlap, lowest])
    return c.add("Gather", [triples, c.constant(2, np.int64)], axis=1)


def _selected_scores(c: Conversion, boxes: str, scores: str, limits: list[str]) -> str:
    """The scores with -inf where a box is suppressed, [b, classes, n]."""
    triples = c.add("NonMaxSuppression", [boxes, scores, *limits])
    count = c.add("Slice", [c.add("Shape", [triples]), *(c.ints((v,)) for v in (0, 1))])
    none = c.add("Expand", [c.constant(False), c.add("Shape", [scores])])
    all_true = c.add("Expand", [c.constant(True), count])
    is_selected = c.add("ScatterND", [none, triples, all_true])
    return c.add("Where", [is_selected, scores, c.constant(-np.inf, np.float32)])


def _best(c: Conversion, scores: str, width: int, count: int) -> tuple[str, str]:
    """The `most` best of scores [b, width] and their places, beyond `width` repeating the last."""
    if count > width:
        one = c.add("Slice", [scores, *(c.ints((v,)) for v in (0, 1, 1))])
        lost = c.add("Where", [c.constant(False), one, c.constant(-np.inf, np.float32)])
        scores = c.add(
            "Concat", [scores, c.add("Tile", [lost, c.ints((1, count - width))])], axis=1
        )
    values, indices = c.add_all(
        "TopK", [scores, c.ints((count,))], axis=1, largest=True, sorted=True
    )
    return values, c.add("Min", [indices, c.constant(width - 1, np.int64)])


def _padded(c: Conversion, value: str, size: int) -> str:
    """A vector filled up with zeros."""
    zeros = c.constant(np.zeros(size, c.type(value).dtype.numpy))
    long = c.add("Concat", [value, zeros], axis=0)
    return c.add("Slice", [long, c.ints((0,)), c.ints((size,))])


def _named(c: Conversion, values: list[str]) -> tuple[str, ...]:
    """The values under the names of the node's outputs."""
    same = c.operator("Identity")
    names = c.node.outputs
    if len(names) > len(values):
        raise ModelError(f"it has {len(values)} outputs", place=c.node.place)
    return tuple(c.builder.add(same, [v], [n], c.node.name) for v, n in zip(values, names))
