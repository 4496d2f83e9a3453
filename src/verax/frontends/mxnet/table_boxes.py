"""MXNet's operators on boxes and regions: GluonCV's detectors end in them."""

from __future__ import annotations

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.mxnet.rows import count_inputs, ints, row

FORMATS = ("corner", "center")
"""(x1, y1, x2, y2), or (x, y, width, height) about the center."""


def _format(c: Conversion, name: str, default: str = "corner") -> bool:
    """Whether a parameter says that boxes are given about their center."""
    box_format = c.text(name, default)
    if box_format not in FORMATS:
        c.attributes.refuse(name, "there is no such format of boxes")
    return bool(box_format == "center")


def _coordinates(c: Conversion, boxes: str) -> list[str]:
    """The four coordinates, each [..., 1]."""
    return c.split(boxes, 4, c.rank(boxes) - 1)


def _halved(c: Conversion, value: str) -> str:
    return c.add("Mul", [value, c.like(0.5)])


def _corners(c: Conversion, boxes: str, is_center: bool) -> list[str]:
    """x1, y1, x2, y2 of boxes, each [..., 1]."""
    coordinates = _coordinates(c, boxes)
    if not is_center:
        return coordinates
    half = [_halved(c, p) for p in coordinates[2:]]
    low = [c.add("Sub", [p, h]) for p, h in zip(coordinates, half)]
    return [*low, *(c.add("Add", [p, h]) for p, h in zip(coordinates, half))]


@row("_contrib_box_nms", "_contrib_box_non_maximum_suppression")
def box_nms(c: Conversion) -> Result:
    """Rows that survive, then -1. Boxes are converted only where their first number is not
    negative, as MXNet does."""
    a = c.attributes
    was, is_center_out = _format(c, "in_format"), _format(c, "out_format")
    start = a.integer("coord_start", 2)
    fields = {
        "overlap_thresh": a.scalar("overlap_thresh", 0.5),
        "valid_thresh": a.scalar("valid_thresh", 0.0),
        "topk": a.integer("topk", -1),
        "coord_start": start,
        "score_index": a.integer("score_index", 1),
        "id_index": a.integer("id_index", -1),
        "background_id": a.integer("background_id", -1),
        "force_suppress": a.flag("force_suppress", False),
        "center": was,
    }
    if was == is_center_out or fields["topk"] == 0:
        return c.result("BoxNMS", [c.required(0)], **fields)
    rows, last, width = c.add("BoxNMS", [c.required(0)], **fields), c.rank() - 1, c.type(0).dims[-1]

    def cut(begin: int, end: int) -> str:
        return c.add("Slice", [rows, *(c.ints((v,)) for v in (begin, end, last, 1))])

    boxes = cut(start, start + 4)
    is_left_alone = c.add("Less", [cut(start, start + 1), c.like(0)])
    if is_center_out:
        low, high = cut(start, start + 2), cut(start + 2, start + 4)
        converted = [_halved(c, c.add("Add", [low, high])), c.add("Sub", [high, low])]
    else:
        converted = _corners(c, boxes, True)
    boxes_out = c.add("Where", [is_left_alone, boxes, c.add("Concat", converted, axis=last)])
    columns = [boxes_out]
    if start > 0:
        columns.insert(0, cut(0, start))
    if width != start + 4:
        columns.append(cut(start + 4, 2**31 - 1))
    return c.result("Concat", columns, axis=last)


@row("_contrib_box_iou")
def box_iou(c: Conversion) -> Result:
    """Intersection over union of each box [..., 4] with each of the other input; 0 for none."""
    is_center = _format(c, "format")
    left, right = c.rank(0) - 1, c.rank(1) - 1
    spread = c.ints(tuple(range(left, left + right)))
    first = c.add("Unsqueeze", [c.required(0), spread])
    sides = [_corners(c, v, is_center) for v in (first, c.required(1))]

    def lengths(corners: list[str]) -> list[str]:
        differences = [c.add("Sub", [corners[i + 2], corners[i]]) for i in range(2)]
        return [c.add("Relu", [v]) for v in differences]

    low = [c.add("Max", [p, q]) for p, q in zip(sides[0][:2], sides[1][:2])]
    high = [c.add("Min", [p, q]) for p, q in zip(sides[0][2:], sides[1][2:])]
    common = c.add("Mul", lengths([*low, *high]))
    areas = [c.add("Mul", lengths(s)) for s in sides]
    union = c.add("Sub", [c.add("Add", areas), common])
    none = c.add("LessOrEqual", [common, c.like(0)])
    ratio = c.add("Div", [common, c.add("Where", [none, c.like(1), union])])
    return c.result("Squeeze", [ratio, c.ints((left + right,))])


@row("_contrib_box_decode")
def box_decode(c: Conversion) -> Result:
    """Corners of boxes [n, anchors, 4] given as offsets from anchors [1, anchors, 4]."""
    a = c.attributes
    count_inputs(c, 2)
    is_center = _format(c, "format", "center")
    anchors = _coordinates(c, c.required(1))
    if not is_center:
        size = [c.add("Sub", [anchors[i + 2], anchors[i]]) for i in range(2)]
        middle = [c.add("Add", [p, _halved(c, s)]) for p, s in zip(anchors, size)]
        anchors = [*middle, *size]
    offsets = [
        c.add("Mul", [offset, c.like(a.scalar(f"std{i}", 1.0))])
        for i, offset in enumerate(_coordinates(c, c.required(0)))
    ]
    limit = a.scalar("clip", -1.0)
    if limit > 0:
        offsets[2:] = [c.add("Min", [v, c.like(limit)]) for v in offsets[2:]]
    low, high = [], []
    for i in range(2):
        center_shift = c.add("Add", [c.add("Mul", [offsets[i], anchors[i + 2]]), anchors[i]])
        half = _halved(c, c.add("Mul", [c.add("Exp", [offsets[i + 2]]), anchors[i + 2]]))
        low.append(c.add("Sub", [center_shift, half]))
        high.append(c.add("Add", [center_shift, half]))
    return c.result("Concat", [*low, *high], axis=2)


@row("ROIPooling")
def roi_pooling(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "MaxRoiPool", pooled_shape=_pooled(c), spatial_scale=a.scalar("spatial_scale")
    )


@row("_contrib_ROIAlign")
def roi_align(c: Conversion) -> Result:
    """Regions (batch, x1, y1, x2, y2); without `aligned` they are at least a pixel wide."""
    a = c.attributes
    a.expect("position_sensitive", False, reason="channels by position are not supported")
    height, width = _pooled(c)
    samples = a.integer("sample_ratio", -1)
    begin, end, axis = c.ints((0,)), c.ints((1,)), c.ints((1,))
    batch = c.add("Squeeze", [c.add("Slice", [c.required(1), begin, end, axis]), axis])
    boxes = c.add("Slice", [c.required(1), c.ints((1,)), c.ints((5,)), axis])
    is_aligned = a.flag("aligned", False)
    return c.result(
        "RoiAlign",
        [c.required(0), boxes, c.add("Cast", [batch], to="int64")],
        coordinate_transformation_mode="half_pixel" if is_aligned else "output_half_pixel",
        output_height=height,
        output_width=width,
        sampling_ratio=max(samples, 0),
        spatial_scale=a.scalar("spatial_scale"),
    )


def _pooled(c: Conversion) -> tuple[int, int]:
    size = ints(c, "pooled_size")
    if size is None or len(size) != 2 or min(size) < 1:
        raise ModelError(f"pooled_size = {size}", place=c.node.place)
    return int(size[0]), int(size[1])
