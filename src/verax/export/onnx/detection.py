"""The last layers of SSD and YOLO detectors in ONNX's operators, around its NonMaxSuppression.

Boxes are suppressed there when their overlap is above a limit; a rule "at least" becomes "above the
number just below". Where no box remains a score of minus infinity stands. Of equal scores the
lower index comes first in NonMaxSuppression and in TopK alike. Corners in the wrong order mean an
empty box here and a turned one in ONNX: the second corner is raised to the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.export.onnx.emission import (
    NodeGroup,
    OnnxEmission,
    written_for,
)
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.ops.images.multibox import BoxNMS, MultiBoxDetection

NEVER = -np.inf
FLOAT = np.float32


@written_for("MultiBoxDetection")
def multibox_detection(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Decoded boxes, the best class of each, sorted and suppressed class by class."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, MultiBoxDetection)
    classes = g.type(0).dims[1]
    if g.type(0).dtype is not DType.float32:
        return g.refuse("has no ONNX form for other types than float32")
    if not isinstance(classes, int):
        return g.refuse("has no ONNX form while the number of classes is unknown")
    count = _size(g, g.input(0), 2)
    if classes < 2:
        nothing = g.add("Concat", _size(g, g.input(0), 0), count, g.constant([6]), axis=0)
        return g.finish(g.add("Expand", g.constant(-1, FLOAT), nothing))
    boxes = _decoded(g, op)
    best, label, detected = _best_class(g, op.threshold)
    rank = _positions(g, count)
    sequence = g.add(
        "Where", detected, g.cast(g.add("Neg", rank), DType.float32), _float32(g, NEVER)
    )
    _, by_index = _sorted(g, sequence, count)
    total = g.add("ReduceSum", g.cast(detected, DType.int64), g.constant([1]))
    present = g.add("Less", rank, total)
    if not 0 < op.nms_threshold <= 1:
        order, final_label, has_class = by_index, label, present
    else:
        candidates, has_class = detected, present
        _, order = _sorted(g, g.add("Where", detected, best, _float32(g, NEVER)), count)
        if op.nms_topk > 0:
            is_first = g.add("Less", rank, g.constant(op.nms_topk))
            candidates = g.add("And", detected, _scattered(g, order, is_first, detected))
            order = g.add("Where", is_first, order, by_index)
            has_class = g.add("And", present, is_first)
        key = g.add("Where", candidates, best, _float32(g, NEVER))
        scores = g.add("Unsqueeze", key, g.constant([1]))
        if not op.force_suppress:
            class_indices = g.constant(np.arange(classes - 1).reshape(1, -1, 1))
            of_class = g.add("Equal", g.add("Unsqueeze", label, g.constant([1])), class_indices)
            scores = g.add("Where", of_class, scores, _float32(g, NEVER))
        limit = np.nextafter(FLOAT(op.nms_threshold), FLOAT(-np.inf))
        stays = _survivors(g, boxes, scores, candidates, count, limit)
        final_label = g.add("Where", stays, label, g.constant(-1))
    column = g.add("Unsqueeze", g.cast(final_label, DType.float32), g.constant([2]))
    rows = g.add("Concat", g.add("Unsqueeze", best, g.constant([2])), boxes, axis=2)
    columns = [_in_order(g, column, order, has_class), _in_order(g, rows, order, present)]
    return g.finish(g.add("Concat", *columns, axis=2))


def _best_class(g: NodeGroup, threshold: float) -> tuple[str, str, str]:
    """Score and number of each anchor's best class, the background aside, and whether it counts."""
    scores = g.add("Slice", g.input(0), g.constant([1]), g.constant([2**31 - 1]), g.constant([1]))
    scores = g.add("Where", g.add("IsNaN", scores), _float32(g, NEVER), scores)
    label = g.add("ArgMax", scores, axis=1, keepdims=0)
    at = g.add("Unsqueeze", label, g.constant([1]))
    best = g.add("Squeeze", g.add("GatherElements", scores, at, axis=1), g.constant([1]))
    is_score = g.add("Greater", best, _float32(g, -1.0))
    is_high = g.add("GreaterOrEqual", best, _float32(g, threshold))
    return best, label, g.add("And", is_score, is_high)


def _decoded(g: NodeGroup, op: MultiBoxDetection) -> str:
    """Boxes [n, anchors, 4]: the anchors moved and scaled by the offsets."""
    shape = g.add("Concat", _size(g, g.input(0), 0), g.constant([-1, 4]), axis=0)
    offsets = g.add("Reshape", g.input(1), shape)
    shift = g.add("Mul", offsets, g.constant(op.variances, FLOAT))
    low, high = _first_and_last_two(g, g.input(2))
    move, grow = _first_and_last_two(g, shift)
    size = g.add("Sub", high, low)
    center = g.add("Div", g.add("Add", low, high), _float32(g, 2))
    middle = g.add("Add", g.add("Mul", move, size), center)
    half = g.add("Div", g.add("Mul", g.add("Exp", grow), size), _float32(g, 2))
    boxes = g.add("Concat", g.add("Sub", middle, half), g.add("Add", middle, half), axis=2)
    return g.add("Clip", boxes, _float32(g, 0), _float32(g, 1)) if op.clip else boxes


@written_for("BoxNMS")
def box_nms(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Rows that survive, moved to the front by falling score."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, BoxNMS)
    if g.type(0).dtype is not DType.float32:
        return g.refuse("has no ONNX form for other types than float32")
    if op.overlap_thresh < 0:
        return g.refuse(f"has no ONNX form for overlap_thresh = {op.overlap_thresh}")
    if op.topk == 0:
        return g.finish(g.add("Identity", g.input(0)))
    rank = g.type(0).rank
    count, width = _size(g, g.input(0), rank - 2), _size(g, g.input(0), rank - 1)
    flat = g.add("Concat", g.constant([-1]), count, width, axis=0)
    data = g.add("Reshape", g.input(0), flat)
    score = _column(g, data, op.score_index)
    valid = g.add("Greater", score, _float32(g, op.valid_thresh))
    if op.id_index >= 0:
        label = _column(g, data, op.id_index)
        not_background = g.add("Not", g.add("Equal", label, _float32(g, op.background_id)))
        valid = g.add("And", valid, not_background)
    if op.topk > 0:
        key = g.add("Where", valid, score, _float32(g, NEVER))
        _, order = _sorted(g, key, count)
        is_first = g.add("Less", _positions(g, count), g.constant(op.topk))
        valid = g.add("And", valid, _scattered(g, order, is_first, valid))
    key = g.add("Where", valid, score, _float32(g, NEVER))
    scores = g.add("Unsqueeze", key, g.constant([1]))
    if op.id_index >= 0 and not op.force_suppress:
        class_index = g.add("Unsqueeze", g.cast(label, DType.int64), g.constant([1]))
        all_classes = g.add("Reshape", g.add("Unique", class_index), g.constant([1, -1, 1]))
        scores = g.add(
            "Where", g.add("Equal", class_index, all_classes), scores, _float32(g, NEVER)
        )
    box = (op.coord_start, op.coord_start + 4)
    boxes = _columns(g, data, *box)
    limit = min(op.overlap_thresh, 1.0)
    stays = _survivors(g, boxes, scores, valid, count, limit, op.center)
    key = g.add("Where", stays, score, _float32(g, NEVER))
    _, order = _sorted(g, key, count)
    total = g.add("ReduceSum", g.cast(stays, DType.int64), g.constant([1]))
    rows = _in_order(g, data, order, g.add("Less", _positions(g, count), total))
    return g.finish(g.add("Reshape", rows, g.add("Shape", g.input(0))))


def _survivors(
    g: NodeGroup, boxes: str, scores: str, valid: str, count: str, limit: Any, center: bool = False
) -> str:
    """Bool [n, boxes]: which boxes no better one of their class overlaps by more than `limit`.

    scores: [n, classes, boxes], minus infinity where a box is not of the class or not to be had.
    """
    if not center:
        low, high = _first_and_last_two(g, boxes)
        boxes = g.add("Concat", low, g.add("Max", low, high), axis=2)
    lowest = g.constant([np.finfo(FLOAT).min], FLOAT)
    selected = g.add(
        "NonMaxSuppression", boxes, scores, count, g.constant([limit], FLOAT), lowest,
        center_point_box=int(center),
    )  # fmt: skip
    at = g.add("Gather", selected, g.constant([0, 2]), axis=1)
    ones = g.add("Expand", g.constant(1), _size(g, selected, 0))
    none = g.add("Mul", g.cast(valid, DType.int64), g.constant(0))
    marked = g.cast(g.add("ScatterND", none, at, ones), DType.bool_)
    return g.add("And", marked, valid)


def _in_order(g: NodeGroup, rows: str, order: str, present: str) -> str:
    """rows [n, boxes, width] taken in `order` [n, boxes], -1 where none is present."""
    shape = g.add("Shape", rows)
    index = g.add("Expand", g.add("Unsqueeze", order, g.constant([2])), shape)
    ordered = g.add("GatherElements", rows, index, axis=1)
    return g.add("Where", g.add("Unsqueeze", present, g.constant([2])), ordered, _float32(g, -1))


def _sorted(g: NodeGroup, key: str, count: str) -> list[str]:
    """Values and places of `key` [n, boxes] from the largest on."""
    return g.add_all("TopK", [key, count], 2, axis=1)


def _scattered(g: NodeGroup, order: str, flags: str, like: str) -> str:
    """`flags` along `order`, put back to the places that `order` names, [n, boxes]."""
    none = g.add("Mul", g.cast(like, DType.int64), g.constant(0))
    spread = g.add("Add", g.cast(flags, DType.int64), none)
    return g.cast(g.add("ScatterElements", none, order, spread, axis=1), DType.bool_)


def _positions(g: NodeGroup, count: str) -> str:
    """0, 1, ... count - 1."""
    end = g.add("Squeeze", count)
    return g.add("Range", g.constant(0), end, g.constant(1))


def _size(g: NodeGroup, value: str, axis: int) -> str:
    """The size of an axis, [1]."""
    return g.add("Gather", g.add("Shape", value), g.constant([axis]))


def _first_and_last_two(g: NodeGroup, value: str) -> list[str]:
    """The first and the second two numbers of the last axis of four."""
    return [_columns(g, value, 0, 2), _columns(g, value, 2, 4)]


def _columns(g: NodeGroup, value: str, begin: int, end: int) -> str:
    return g.add("Slice", value, g.constant([begin]), g.constant([end]), g.constant([-1]))


def _column(g: NodeGroup, value: str, index: int) -> str:
    return g.add("Gather", value, g.constant(index), axis=2)


def _float32(g: NodeGroup, value: float) -> str:
    return g.constant(value, FLOAT)
