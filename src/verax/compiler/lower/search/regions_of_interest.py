"""Regions of interest: RoiAlign, MaxRoiPool."""

from __future__ import annotations

import numpy as np

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.search.regions_of_interest import AlignSpec, RoiPoolSpec
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
from verax.ir.types import DType, TensorType
from verax.ops.images.detection import MaxRoiPool, RoiAlign


@lowers(RoiAlign)
def lower_roi_align(lowering: Lowering, group: Group) -> None:
    """Image, regions, numbers of images, scratch memory, output, flag."""
    node, op = group.root, group.root.op
    assert isinstance(op, RoiAlign)
    types = [lowering.graph.types[v or ""] for v in node.inputs]
    dtypes = _floats(types[0], types[1])
    batch, channels, height, width = types[0].shape
    if op.sampling_ratio > 4 * (min(height, width) + 2):
        raise NoKernel("more samples than pixels")
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
    x, rois, images = (lowering.read_contiguous(v or "") for v in node.inputs)
    y = lowering.write_contiguous(node.outputs[0])
    scratch = lowering.scratch(spec.scratch_bytes)
    flag = lowering.flag(node.place)
    lowering.call(spec, [x, rois, images, scratch, y, flag], group.label)


@lowers(MaxRoiPool)
def lower_max_roi_pool(lowering: Lowering, group: Group) -> None:
    """Image, regions, output, flag."""
    node, op = group.root, group.root.op
    assert isinstance(op, MaxRoiPool)
    types = [lowering.graph.types[v or ""] for v in node.inputs]
    dtypes = _floats(*types)
    batch, channels, height, width = types[0].shape
    scale, regions = float(np.float32(op.spatial_scale)), types[1].shape[0]
    bins = op.pooled_shape[0], op.pooled_shape[1]
    spec = RoiPoolSpec(batch, channels, (height, width), regions, bins, scale, *dtypes)
    x, rois = (lowering.read_contiguous(v or "") for v in node.inputs)
    y = lowering.write_contiguous(node.outputs[0])
    lowering.call(spec, [x, rois, y, lowering.flag(node.place)], group.label)


def _floats(*types: TensorType) -> tuple[str, ...]:
    if any(t.dtype not in (DType.float32, DType.float64) for t in types):
        raise NoKernel("it takes float32 or float64")
    return tuple(str(t.dtype) for t in types)
