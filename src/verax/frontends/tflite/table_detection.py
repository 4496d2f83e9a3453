"""TFLite_Detection_PostProcess: decodes the boxes of an SSD detector and keeps the best.

Operands: encodings [1, n, 4] (y, x, height, width), scores [1, n, background + classes], anchors
[n, 4] (the same four). Results: boxes [1, m, 4] (top, left, bottom, right), classes, scores, and
how many of the m are meant. What lies behind them is zero here, and undefined in LiteRT.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion
from verax.frontends.tflite.rows import Result, row

SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")


@row("TFLite_Detection_PostProcess", domain="custom")
def detection(c: Conversion) -> Result:
    """The fast form: one class per box, all classes compete."""
    a = c.attributes
    a.expect("use_regular_nms", 0, why="suppression class by class")
    a.expect("max_classes_per_detection", 1, why="more classes per box")
    a.irrelevant("detections_per_class", "it matters where classes are suppressed one by one")
    a.irrelevant("_output_quantized", "the outputs are floating-point")
    a.irrelevant("_support_output_type_float_in_quantized_op", "no operand is quantised")
    most, classes = a.integer("max_detections", 0), a.integer("num_classes", 0)
    boxes, scores, anchors = (c.type(i) for i in range(3))
    background = scores.dims[2] - classes if scores.rank == 3 else 0
    sizes = (boxes.rank, scores.rank, anchors.rank, boxes.dims[:1], scores.dims[:1])
    if sizes != (3, 3, 2, (1,), (1,)) or background not in (0, 1) or most < 1 or classes < 1:
        raise ModelError(f"{boxes}, {scores}, {anchors} do not fit {classes} classes",
                         place=c.node.place)  # fmt: skip
    corners = _decoded(c)
    own = _part(c, c.required(1), 2, int(background), int(background) + classes)
    best = c.add("ReduceMax", [own, c.ints((2,))], keepdims=False)
    names = c.add("ArgMax", [own], axis=2, keepdims=False)
    chosen = _suppressed(c, corners, best, most)
    count = c.add("Shape", [chosen])
    padded = c.add("Concat", [chosen, c.ints((0,) * most)], axis=0)
    padded = _part(c, padded, 0, 0, most)
    kept = c.add("Less", [c.ints(tuple(range(most))), count])
    out = c.node.outputs
    return (
        _gathered(c, corners, padded, c.add("Unsqueeze", [kept, c.ints((1,))]), out[0]),
        _gathered(c, c.add("Cast", [names], to="float32"), padded, kept, out[1]),
        _gathered(c, best, padded, kept, out[2]),
        c.builder.add(c.operator("Cast", to="float32"), [count], [out[3]]),
    )


def _decoded(c: Conversion) -> str:
    """Corners [1, n, 4]: centres move by parts of the anchor, sizes are multiples of it."""
    scales = [c.attributes.number(name, 0.0) for name in SCALES]
    if min(scales) <= 0:
        raise ModelError(f"the scales are {scales}", place=c.node.place)
    codes = c.add("Div", [c.required(0), c.constant(scales, np.float32)])
    anchors = c.required(2)
    where, reach = _part(c, anchors, 1, 0, 2), _part(c, anchors, 1, 2, 4)
    centre = c.add("Add", [c.add("Mul", [_part(c, codes, 2, 0, 2), reach]), where])
    grown = c.add("Exp", [_part(c, codes, 2, 2, 4)])
    half = c.add("Mul", [c.add("Mul", [grown, c.constant(0.5, np.float32)]), reach])
    ends = [c.add(kind, [centre, half]) for kind in ("Sub", "Add")]
    return c.add("Concat", ends, axis=2)


def _suppressed(c: Conversion, corners: str, best: str, most: int) -> str:
    """Indices of the boxes that are kept, best first. A score at the threshold counts."""
    threshold = np.float32(c.attributes.number("nms_score_threshold", 0.0))
    below = np.nextafter(threshold, np.float32(-np.inf))
    overlap = np.float32(c.attributes.number("nms_iou_threshold", 0.0))
    scores = c.add("Unsqueeze", [best, c.ints((1,))])
    limits = [c.ints((most,)), c.constant([overlap]), c.constant([below])]
    found = c.add("NonMaxSuppression", [corners, scores, *limits])
    return c.add("Squeeze", [_part(c, found, 1, 2, 3), c.ints((1,))])


def _part(c: Conversion, value: str, axis: int, begin: int, end: int) -> str:
    bounds = [c.ints((v,)) for v in (begin, end, axis)]
    return c.add("Slice", [value, *bounds])


def _gathered(c: Conversion, values: str, where: str, kept: str, name: str) -> str:
    """values [1, n, ...] at these indices, zero where not kept, under the output's name."""
    seen = c.add("Gather", [values, where], axis=1)
    zero = c.constant(0, np.float32)
    return c.builder.add(c.operator("Where"), [kept, seen, zero], [name])
