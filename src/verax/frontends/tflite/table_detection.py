"""Detectors: TFLite_Detection_PostProcess, which decodes an SSD's boxes and keeps the best, and
NON_MAX_SUPPRESSION_V4 and V5.

Operands of the first: encodings [1, n, 4] (y, x, height, width), scores [1, n, background +
classes], anchors [n, 4] (the same four); results: boxes [1, m, 4] (top, left, bottom, right),
classes, scores, and how many are meant. What lies behind them is zero here; LiteRT's fast form
leaves it undefined.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import of_tensor
from verax.frontends.tflite.rows import MAX_POSITIONS, row

SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
PER_CLASS = 100
"""Detections per class where the option is missing."""
Shown = tuple[str, str, tuple[int, ...]]
"""Values, which of them are meant, and the shape that they get."""
DETECTOR = "TFLite_Detection_PostProcess"


@row(DETECTOR, domain="custom")
def detection(c: Conversion) -> Result:
    return _detection(c, [c.required(i) for i in range(3)])


@row(DETECTOR, domain="custom", quantized=True)
def quantized_detection(c: Conversion) -> Result:
    """Operands of uint8 become real numbers first."""
    operands = []
    for i in range(3):
        value = c.required(i)
        if c.attributes.has(f"input{i}.scale"):
            if c.type(i).dtype != "uint8":
                c.refuse(f"operands of {c.type(i).dtype} are not supported")
            scale, zero = of_tensor(c, f"input{i}")
            parameters = [c.constant(scale), c.constant(zero, np.uint8)]
            value = c.add("DequantizeLinear", [value, *parameters])
        operands.append(value)
    return _detection(c, operands)


def _detection(c: Conversion, operands: list[str]) -> Result:
    a = c.attributes
    a.irrelevant("_output_quantized", "the outputs are floating-point")
    a.irrelevant("_support_output_type_float_in_quantized_op", "the outputs are floating-point")
    max_boxes, classes = a.integer("max_detections", 0), a.integer("num_classes", 0)
    boxes, scores, anchors = (c.type(i) for i in range(3))
    background = scores.dims[2] - classes if scores.rank == 3 else 0
    sizes = (boxes.rank, scores.rank, anchors.rank, boxes.dims[:1], scores.dims[:1])
    if (
        sizes != (3, 3, 2, (1,), (1,))
        or background not in (0, 1)
        or min(max_boxes, classes) < 1
        or (max(max_boxes, classes) > MAX_POSITIONS)
    ):
        raise ModelError(
            f"{boxes}, {scores}, {anchors} do not fit {classes} classes and one image",
            place=c.node.place,
        )
    corners = _decoded(c, operands[0], operands[2])
    own = _sliced(c, operands[1], 2, int(background), int(background) + classes)
    if a.flag("use_regular_nms"):
        a.irrelevant("max_classes_per_detection", "each class is suppressed by itself")
        per_class = min(a.integer("detections_per_class", PER_CLASS), max_boxes)
        return _by_class(c, corners, own, per_class, max_boxes)
    a.irrelevant("detections_per_class", "it matters where classes are suppressed one by one")
    return _by_box(c, corners, own, classes, max_boxes)


def _by_box(c: Conversion, corners: str, own: str, classes: int, max_boxes: int) -> Result:
    """The fast form: boxes compete by their best class, and each that is kept shows its `each`
    best classes. The count is that of boxes."""
    classes_per_box = c.integer("max_classes_per_detection", 0)
    if not 1 <= classes_per_box <= MAX_POSITIONS:
        raise ModelError(f"it shows {classes_per_box} classes per box", place=c.node.place)
    class_count = min(classes_per_box, classes)
    values, indices = c.add_all("TopK", [own, c.ints((class_count,))], axis=2)
    best = c.add("Squeeze", [_sliced(c, values, 2, 0, 1), c.ints((2,))])
    selected = _suppressed(c, corners, c.add("Unsqueeze", [best, c.ints((1,))]), max_boxes)
    selected = c.add("Squeeze", [_sliced(c, selected, 1, 2, 3), c.ints((1,))])
    count = c.add("Shape", [selected])
    is_selected = c.add("Less", [c.ints(tuple(range(max_boxes))), count])
    is_selected = c.add("Unsqueeze", [is_selected, c.ints((1,))])
    padded = _sliced(
        c, c.add("Concat", [selected, c.ints((0,) * max_boxes)], axis=0), 0, 0, max_boxes
    )
    box_corners = c.add("Unsqueeze", [c.add("Gather", [corners, padded], axis=1), c.ints((2,))])
    box_corners = c.add("Expand", [box_corners, c.ints((1, max_boxes, class_count, 4))])
    shown_values: list[Shown] = [
        (
            box_corners,
            c.add("Unsqueeze", [is_selected, c.ints((2,))]),
            (1, max_boxes * classes_per_box, 4),
        )
    ]
    for value in (c.add("Cast", [indices], to="float32"), values):
        shown_values.append(
            (
                c.add("Gather", [value, padded], axis=1),
                is_selected,
                (1, max_boxes * classes_per_box),
            )
        )
    return _outputs(c, shown_values, classes_per_box - class_count, count)


def _by_class(c: Conversion, corners: str, own: str, per_class: int, max_boxes: int) -> Result:
    """The regular form: boxes compete within each class, then the best of all classes are kept.

    Between equal scores the lower class comes first. The list of survivors is followed by `most`
    entries that lose against every score.
    """
    if per_class < 1:
        raise ModelError(f"it keeps {per_class} boxes per class", place=c.node.place)
    scores = c.add("Transpose", [own], perm=(0, 2, 1))
    survivors_index = _suppressed(c, corners, scores, per_class)
    count = c.add("Slice", [c.add("Shape", [survivors_index]), *(c.ints((v,)) for v in (0, 1))])
    survivors = c.add("GatherND", [scores, survivors_index])
    loser = c.constant([np.float32(-np.inf)] * max_boxes)
    survivors = c.add("Concat", [survivors, loser], axis=0)
    best, order = c.add_all("TopK", [survivors, c.ints((max_boxes,))], axis=0)
    is_selected = c.add("Less", [order, count])
    padded = c.add(
        "Concat", [survivors_index, c.constant(np.zeros((max_boxes, 3), np.int64))], axis=0
    )
    best_index = c.add("Gather", [padded, order], axis=0)
    classes, boxes = (
        c.add("Squeeze", [_sliced(c, best_index, 1, i, i + 1), c.ints((1,))]) for i in (1, 2)
    )
    box_corners = c.add("Gather", [corners, boxes], axis=1)
    outputs: list[Shown] = [
        (box_corners, c.add("Unsqueeze", [is_selected, c.ints((1,))]), (1, max_boxes, 4))
    ]
    for value in (c.add("Cast", [classes], to="float32"), best):
        outputs.append((value, is_selected, (1, max_boxes)))
    return _outputs(c, outputs, 0, c.add("Min", [count, c.ints((max_boxes,))]))


def _outputs(c: Conversion, outputs: list[Shown], missing: int, count: str) -> Result:
    """Boxes, classes and scores: (values, which are meant, shape), zero elsewhere; `missing`
    entries more per box. Then the count."""
    names = []
    for name, (value, is_selected, shape) in zip(c.node.outputs, outputs, strict=False):
        value = c.add("Where", [is_selected, value, c.constant(0, np.float32)])
        if missing:
            rank = c.rank(value)
            ends = [missing if axis == 2 else 0 for axis in range(rank)]
            value = c.add("Pad", [value, c.ints((*(0,) * rank, *ends))])
        names.append(c.builder.add(c.operator("Reshape"), [value, c.ints(shape)], [name]))
    to_float = c.operator("Cast", to="float32")
    return (*names, c.builder.add(to_float, [count], [c.node.outputs[3]]))


def _decoded(c: Conversion, encodings: str, anchors: str) -> str:
    """Corners [1, n, 4]: centers move by parts of the anchor, sizes are multiples of it."""
    scales = [c.scalar(name, 0.0) for name in SCALES]
    if min(scales) <= 0:
        raise ModelError(f"the scales are {scales}", place=c.node.place)
    codes = c.add("Div", [encodings, c.constant(scales, np.float32)])
    anchor_centers, reach = _sliced(c, anchors, 1, 0, 2), _sliced(c, anchors, 1, 2, 4)
    center = c.add("Add", [c.add("Mul", [_sliced(c, codes, 2, 0, 2), reach]), anchor_centers])
    grown = c.add("Exp", [_sliced(c, codes, 2, 2, 4)])
    half = c.add("Mul", [c.add("Mul", [grown, c.constant(0.5, np.float32)]), reach])
    ends = [c.add(kind, [center, half]) for kind in ("Sub", "Add")]
    return c.add("Concat", ends, axis=2)


def _suppressed(c: Conversion, corners: str, scores: str, max_boxes: int) -> str:
    """(image, class, box) of what is kept of scores [1, classes, n], by class, best first. A score
    at the threshold counts."""
    threshold = np.float32(c.scalar("nms_score_threshold", 0.0))
    overlap = np.float32(c.scalar("nms_iou_threshold", 0.0))
    if not 0 < overlap <= 1:
        raise ModelError(f"nms_iou_threshold is {overlap}", place=c.node.place)
    limits = [c.ints((max_boxes,)), c.constant([overlap]), c.constant([_below(threshold)])]
    return c.add("NonMaxSuppression", [corners, scores, *limits])


def _below(threshold: np.float32) -> np.float32:
    """The next lower number: what is above it reaches the threshold."""
    return np.nextafter(threshold, np.float32(-np.inf))


def _sliced(c: Conversion, value: str, axis: int, begin: int, end: int) -> str:
    bounds = [c.ints((v,)) for v in (begin, end, axis)]
    return c.add("Slice", [value, *bounds])


@row("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(c: Conversion) -> Result:
    """Operands: boxes [n, 4], scores [n], how many, overlap from which a box is dropped, score
    that a box must exceed; V5: sigma, whose soft suppression is refused.

    Results: indices [how many], zero behind those that are kept; V5: their scores; the count.
    """
    soft = c.node.op_type.endswith("5")
    if soft and np.any(c.constant_input(5, "sigma")):
        c.refuse("scores that decay with the overlap are not supported")
    (max_boxes,) = (int(n) for n in c.constant_input(2, "the number of boxes").ravel())
    overlap = np.float32(c.constant_input(3, "the overlap").ravel()[0])
    if not 0 <= max_boxes <= MAX_POSITIONS or not 0 < overlap <= 1:
        raise ModelError(f"{max_boxes} boxes, overlapping by {overlap}", place=c.node.place)
    boxes = c.add("Unsqueeze", [c.required(0), c.ints((0,))])
    scores = c.add("Unsqueeze", [c.required(1), c.ints((0, 1))])
    limits = [c.ints((max_boxes,)), c.constant([_below(overlap)]), c.required(4)]
    triples = c.add("NonMaxSuppression", [boxes, scores, *limits])
    indices = c.add("Squeeze", [_sliced(c, triples, 1, 2, 3), c.ints((1,))])
    count = c.add("Shape", [indices])
    padded = _sliced(
        c, c.add("Concat", [indices, c.ints((0,) * max_boxes)], axis=0), 0, 0, max_boxes
    )
    out = c.node.outputs
    to_int = c.operator("Cast", to="int32")
    names = [c.builder.add(to_int, [padded], [out[0]])]
    if soft:
        is_selected = c.add("Less", [c.ints(tuple(range(max_boxes))), count])
        value = c.add("Gather", [c.required(1), padded], axis=0)
        operands = [is_selected, value, c.constant(0, np.float32)]
        names.append(c.builder.add(c.operator("Where"), operands, [out[1]]))
    scalar_count = c.add("Squeeze", [count, c.ints((0,))])
    return (*names, c.builder.add(to_int, [scalar_count], [out[-1]]))
