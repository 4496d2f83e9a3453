"""Boxes that survive others: NonMaxSuppression, BoxNMS, MultiBoxDetection."""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.search.detect import DetectSpec
from verax.compiler.kernels.search.suppress import SuppressSpec, TakenSpec
from verax.compiler.kernels.sizes import Size, minimum
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Physical, Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Input, TracingArith
from verax.ops.images.detection import NonMaxSuppression
from verax.ops.images.multibox import BoxNMS, MultiBoxDetection

M = TracingArith()
LIMIT = 1 << 22
"""Boxes that may be found, in all."""


def plan_box_nms(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, dtype = node.op, planning.graph.types[node.inputs[0] or ""].dtype
    assert isinstance(op, BoxNMS)
    if dtype is not DType.float32:
        return NoKernel(f"boxes of {dtype} have no kernel")
    if op.topk == 0:
        return NoKernel("none is looked at")
    return planning.refused(node, SuppressSpec) or (Choice("suppression"),)


@plans(BoxNMS, plan=plan_box_nms)
def place_box_nms(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Coordinates, scores, scratch memory, rows, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, BoxNMS)
    type_ = lowering.graph.types[node.inputs[0] or ""]
    *outer, boxes, width = type_.shape
    x = lowering.values.read_contiguous(node.inputs[0] or "")
    y = lowering.values.write_contiguous(node.outputs[0])
    has_classes = op.id_index >= 0
    spec = SuppressSpec(
        problems=math.prod(outer),
        boxes=boxes,
        max_boxes=boxes,
        max_candidates=boxes if op.topk < 0 else op.topk,
        shared=1,
        box_step=boxes * width,
        box_stride=width,
        score_step=boxes * width,
        score_stride=width,
        overlap=float(np.float32(op.overlap_thresh)),
        lowest=float(np.float32(op.valid_thresh)),
        centered=op.center,
        ordered=True,
        strict=False,
        classes=op.id_index - op.score_index if has_classes else None,
        background=float(np.float32(op.background_id)) if has_classes else None,
        apart=has_classes and not op.force_suppress,
        row=width,
    )
    scratch = lowering.values.scratch(spec.scratch_bytes)
    columns = (_column(x, op.coord_start), _column(x, op.score_index))
    lowering.calls.call(spec, [*columns, scratch, x, y], group.label)


def plan_non_max_suppression(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: what the kernel computes."""
    graph, op = planning.graph, node.op
    assert isinstance(op, NonMaxSuppression)
    limits = [*node.inputs[2:], None, None, None][:3]
    if any(v is not None and v not in graph.constants for v in limits):
        return NoKernel("its limits are computed")
    limit, overlap, lowest = (
        None if v is None else graph.constants[v].reshape(-1)[0] for v in limits
    )
    batch, classes, boxes = graph.types[node.inputs[1] or ""].shape
    max_per_class: Size = 0 if limit is None else int(limit)
    if not isinstance(boxes, int) and int(max_per_class) > LIMIT:
        max_per_class = boxes  # a number that says "all of them"
    else:
        max_per_class = minimum(max_per_class, boxes)
    allowed = 0.0 if overlap is None else float(overlap)
    if max_per_class < 1 or not 0 <= allowed <= 1 or not batch * classes * boxes:
        return NoKernel("none is kept, or the limits are refused")
    if batch * classes * max_per_class > LIMIT:
        return NoKernel("more boxes than there is room for might be found")
    spec = SuppressSpec(
        problems=batch * classes,
        boxes=boxes,
        max_boxes=max_per_class,
        max_candidates=boxes,
        shared=classes,
        box_step=boxes * 4,
        box_stride=4,
        score_step=boxes,
        score_stride=1,
        overlap=allowed,
        lowest=None if lowest is None else float(lowest),
        centered=op.center_point_box,
        ordered=False,
        strict=True,
    )
    refused = planning.refused_types(planning.graph.input_types(node)[:2], SuppressSpec)
    return (
        refused
        or planning.refused_names([str(DType.int64)], TakenSpec)
        or (Choice("suppression", detail=(spec, classes)),)
    )


@plans(NonMaxSuppression, plan=plan_non_max_suppression)
def place_non_max_suppression(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Boxes, scores, scratch memory, numbers found, counts; then these, rows, how many."""
    node, (spec, classes) = group.root, choice.detail
    max_per_class = spec.max_boxes

    def table(*shape: int) -> Placed:
        return lowering.values.allocate(Physical(TensorType(DType.int64, shape)))

    selected, counts = table(spec.problems, max_per_class), table(spec.problems)
    rows, count = table(spec.problems * max_per_class, 3), table(1)
    x, scores = (lowering.values.read_contiguous(v or "") for v in node.inputs[:2])
    scratch = lowering.values.scratch(spec.scratch_bytes)
    lowering.calls.call(spec, [x, scores, scratch, selected, counts], group.label)
    listed = TakenSpec(spec.problems, max_per_class, classes)
    lowering.calls.call(listed, [selected, counts, rows, count], f"{group.label}: rows")
    lowering.counted(node.outputs[0], rows, count, group.label)


def plan_multi_box_detection(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    scores = planning.graph.types[node.inputs[0] or ""]
    images, _, count = scores.shape
    if scores.dtype is not DType.float32 or not images * count:
        return NoKernel("it takes float32 and some anchors")
    names = [str(DType.float32), str(DType.float64)]
    return planning.refused_names(names, LoopSpec, DetectSpec) or (Choice("detection"),)


@plans(MultiBoxDetection, plan=plan_multi_box_detection)
def place_multi_box_detection(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Offsets, anchors, boxes of a loop; scores, these, scratch memory, rows."""
    node, op = group.root, group.root.op
    assert isinstance(op, MultiBoxDetection)
    scores = lowering.graph.types[node.inputs[0] or ""]
    images, classes, count = scores.shape
    inputs = [Input(k, "float32") for k in range(8)]
    wide = [M.convert(v, "float64") for v in inputs]
    boxes = lowering.values.allocate(Physical(TensorType(DType.float64, (images, 4, count))))
    read = (
        *(Access("float32", (4 * count, 4), k) for k in range(4)),
        *(Access("float32", (0, 4), k) for k in range(4)),
    )
    written = tuple(Access("float64", (4 * count, 1), k * count) for k in range(4))
    loop = LoopSpec((images, count), read, written, tuple(op.decoded(M, wide[:4], wide[4:])))
    x, shifts, corners = (lowering.values.read_contiguous(v or "") for v in node.inputs)
    args = [*(shifts,) * 4, *(corners,) * 4, *(boxes,) * 4]
    lowering.calls.call(loop, args, f"{group.label}: boxes")
    suppresses = 0 < op.nms_threshold <= 1
    spec = DetectSpec(
        images=images,
        classes=classes,
        anchors=count,
        threshold=float(np.float32(op.threshold)),
        overlap=float(np.float32(op.nms_threshold)) if suppresses else None,
        topk=max(0, op.nms_topk),
        apart=not op.force_suppress,
    )
    scratch = lowering.values.scratch(spec.scratch_bytes)
    y = lowering.values.write_contiguous(node.outputs[0])
    lowering.calls.call(spec, [x, boxes, scratch, y], group.label)


def _column(placed: Placed, index: int) -> Pointer:
    """The first element of a column of rows."""
    pointer = placed.pointer
    step = placed.physical.type.dtype.itemsize
    return Pointer(pointer.buffer, pointer.byte_offset + index * step)
