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
    return c.result("Cast", [_kept(c, overlap, lowest)], to=DType.int32)


@row("NonMaxSuppressionV4", "NonMaxSuppressionV5")
def padded_suppression(c: Conversion) -> Result:
    """As V3, and how many were kept; V5 their scores too. Padded places and scores are zero."""
    scored = c.node.op_type.endswith("V5")
    if scored:
        sigma = c.known_value(5)
        if sigma is None or np.any(sigma != 0):
            c.refuse("soft suppression (soft_nms_sigma other than 0)")
    kept = _kept(c, _scalar(c, 3), _scalar(c, 4))
    count = c.add("Cast", [c.add("Size", [kept])], to=DType.int32)
    values = [kept, c.add("Gather", [c.required(1), kept])] if scored else [kept]
    if c.flag("pad_to_max_output_size"):
        (most,) = constant_ints(c, 2, "the count")
        values = [_padded(c, v, most) for v in values]
    values[0] = c.add("Cast", [values[0]], to=DType.int32)
    return _named(c, [*values, count])


@row("CombinedNonMaxSuppression")
def combined_suppression(c: Conversion) -> Result:
    """Operands: boxes [b, n, q, 4], scores [b, n, classes], counts per class and in all, IoU and
    score thresholds; q is 1 or the number of classes. Every class of every image by itself; then
    the best of an image, whatever their class, padded with zeros."""
    a = c.attributes
    (per_class,), (most,) = (constant_ints(c, i, "the count") for i in (2, 3))
    n, q, four = c.known_sizes(0, (1, 2, 3)) if c.rank(0) == 4 else (0, 0, 0)
    same, classes = c.known_sizes(1, (1, 2)) if c.rank(1) == 3 else (0, 0)
    if four != 4 or n != same or q not in (1, classes) or per_class < 1 or most < 1:
        raise ModelError(f"{c.type(0)} and {c.type(1)} do not fit", place=c.node.place)
    if a.flag("pad_per_class"):
        most = min(most, per_class * classes)
    boxes = c.add("Transpose", [c.required(0)], perm=(0, 2, 1, 3))  # [b, q, n, 4]
    scores = c.add("Transpose", [c.required(1)], perm=(0, 2, 1))  # [b, classes, n]
    limits = [c.ints((per_class,)), _scalar(c, 4), _scalar(c, 5)]
    if q == 1:
        boxes = c.add("Squeeze", [boxes, c.ints((1,))])
        chosen = _chosen(c, boxes, scores, limits)
    else:
        apart = [c.add("Reshape", [boxes, c.ints((-1, n, 4))])]
        apart.append(c.add("Reshape", [scores, c.ints((-1, 1, n))]))
        chosen = _chosen(c, apart[0], apart[1], limits)
        boxes = c.add("Reshape", [boxes, c.ints((-1, classes * n, 4))])
    values, places = _best(c, c.add("Reshape", [chosen, c.ints((-1, classes * n))]),
                           classes * n, most)  # fmt: skip
    valid = c.add("Greater", [values, c.constant(-np.inf, np.float32)])
    zero = c.constant(0, np.float32)
    at = c.add("Mod", [places, c.constant(n, np.int64)]) if q == 1 else places
    found = c.add("GatherND", [boxes, c.add("Unsqueeze", [at, c.ints((2,))])], batch_dims=1)
    if a.flag("clip_boxes", True):
        found = c.add("Clip", [found, zero, c.constant(1, np.float32)])
    names = c.add("Cast", [c.add("Div", [places, c.constant(n, np.int64)])], to=DType.float32)
    known = c.add("Cast", [valid], to=DType.int32)
    return _named(
        c,
        [
            c.add("Where", [c.add("Unsqueeze", [valid, c.ints((2,))]), found, zero]),
            c.add("Where", [valid, values, zero]),
            c.add("Where", [valid, names, zero]),
            c.add("ReduceSum", [known, c.ints((1,))], keepdims=False),
        ],
    )


def _scalar(c: Conversion, index: int) -> str:
    """A scalar operand as a vector of one number."""
    if c.type(index).dtype is not DType.float32:
        c.refuse(f"a threshold of type {c.type(index).dtype}")
    return c.add("Reshape", [c.required(index), c.ints((1,))])


def _kept(c: Conversion, overlap: str, lowest: str) -> str:
    """Places of the boxes kept of one image and one class, int64 [kept]."""
    static_dims(c, 2, "the count")
    boxes = c.add("Unsqueeze", [c.required(0), c.ints((0,))])
    scores = c.add("Unsqueeze", [c.required(1), c.ints((0, 1))])
    count = c.add("Reshape", [longs(c, 2), c.ints((1,))])
    found = c.add("NonMaxSuppression", [boxes, scores, count, overlap, lowest])
    return c.add("Gather", [found, c.constant(2, np.int64)], axis=1)


def _chosen(c: Conversion, boxes: str, scores: str, limits: list[str]) -> str:
    """The scores with -inf where a box is not kept, [b, classes, n]."""
    found = c.add("NonMaxSuppression", [boxes, scores, *limits])
    count = c.add("Slice", [c.add("Shape", [found]), *(c.ints((v,)) for v in (0, 1))])
    none = c.add("Expand", [c.constant(False), c.add("Shape", [scores])])
    every = c.add("Expand", [c.constant(True), count])
    kept = c.add("ScatterND", [none, found, every])
    return c.add("Where", [kept, scores, c.constant(-np.inf, np.float32)])


def _best(c: Conversion, scores: str, width: int, most: int) -> tuple[str, str]:
    """The `most` best of scores [b, width] and their places, beyond `width` repeating the last."""
    if most > width:
        one = c.add("Slice", [scores, *(c.ints((v,)) for v in (0, 1, 1))])
        lost = c.add("Where", [c.constant(False), one, c.constant(-np.inf, np.float32)])
        scores = c.add("Concat", [scores, c.add("Tile", [lost, c.ints((1, most - width))])], axis=1)
    values, places = c.add_all("TopK", [scores, c.ints((most,))], axis=1, largest=True, sorted=True)
    return values, c.add("Min", [places, c.constant(width - 1, np.int64)])


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
