"""Regions of interest: RoiAlign, MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.compiler.kernels.search.regions_of_interest import AlignSpec, RoiPoolSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType, TensorType
from verax.ops.images.detection import MaxRoiPool, RoiAlign


def plan_roi_align(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, types = node.op, [planning.graph.types[v or ""] for v in node.inputs]
    assert isinstance(op, RoiAlign)
    if op.sampling_ratio > 4 * (min(types[0].shape[2:]) + 2):
        return NoKernel("more samples than pixels")
    refused = _not_floats(types[:2]) or planning.refused(node, AlignSpec)
    return refused or (Choice("RoI align"),)


@plans(RoiAlign, plan=plan_roi_align)
def place_roi_align(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Image, regions, numbers of images, scratch memory, output, flag."""
    node, op = group.root, group.root.op
    assert isinstance(op, RoiAlign)
    types = [lowering.graph.types[v or ""] for v in node.inputs]
    dtypes = [str(t.dtype) for t in types[:2]]
    batch, channels, height, width = types[0].shape
    spec = AlignSpec(
        batch,
        channels,
        (height, width),
        types[1].shape[0],
        (op.output_height, op.output_width),
        op.sampling_ratio,
        op.spatial_scale,
        0.5 if op.coordinate_transformation_mode == "half_pixel" else 0.0,
        op.mode == "max",
        str(types[2].dtype),
        *dtypes,
    )
    x, rois, images = (lowering.values.read_contiguous(v or "") for v in node.inputs)
    y = lowering.values.write_contiguous(node.outputs[0])
    scratch = lowering.values.scratch(spec.scratch_bytes)
    flag = lowering.calls.flag(node.place)
    lowering.calls.call(spec, [x, rois, images, scratch, y, flag], group.label)


def plan_max_roi_pool(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    types = [planning.graph.types[v or ""] for v in node.inputs]
    refused = _not_floats(types) or planning.refused(node, RoiPoolSpec)
    return refused or (Choice("RoI max pooling"),)


@plans(MaxRoiPool, plan=plan_max_roi_pool)
def place_max_roi_pool(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Image, regions, output, flag."""
    node, op = group.root, group.root.op
    assert isinstance(op, MaxRoiPool)
    types = [lowering.graph.types[v or ""] for v in node.inputs]
    dtypes = [str(t.dtype) for t in types]
    batch, channels, height, width = types[0].shape
    scale, regions = float(np.float32(op.spatial_scale)), types[1].shape[0]
    bins = op.pooled_shape[0], op.pooled_shape[1]
    spec = RoiPoolSpec(batch, channels, (height, width), regions, bins, scale, *dtypes)
    x, rois = (lowering.values.read_contiguous(v or "") for v in node.inputs)
    y = lowering.values.write_contiguous(node.outputs[0])
    lowering.calls.call(spec, [x, rois, y, lowering.calls.flag(node.place)], group.label)


def _not_floats(types: Sequence[TensorType]) -> NoKernel | None:
    """`NoKernel` for element types other than float32 and float64."""
    floats = all(t.dtype in (DType.float32, DType.float64) for t in types)
    return None if floats else NoKernel("it takes float32 or float64")
