"""ONNX operators that move data: shapes, slices, gathers, scatters, resizing, detection."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion
from verax.frontends.onnx.rows import Result, moved_to_input, plain, row
from verax.frontends.onnx.tensors import dtype_of

plain("Size", "Expand", "Tile", "NonZero", "Range")


@row("Reshape")
def reshape(c: Conversion) -> Result:
    return c.operator("Reshape", allowzero=c.attributes.flag("allowzero"))


@row("Flatten")
def flatten(c: Conversion) -> Result:
    return c.operator("Flatten", axis=c.attributes.integer("axis", 1))


@row("Transpose")
def transpose(c: Conversion) -> Result:
    return c.operator("Transpose", perm=c.attributes.integers("perm"))


@row("Squeeze", "Unsqueeze")
def squeeze(c: Conversion) -> Result:
    axes = moved_to_input(c, "axes", 13, 1)
    return c.result(c.node.op_type, [c.required(0)] if axes is None else [c.required(0), axes])


@row("DepthToSpace")
def depth_to_space(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "DepthToSpace", blocksize=a.integer("blocksize", 0), mode=a.text("mode", "DCR")
    )


@row("SpaceToDepth")
def space_to_depth(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "SpaceToDepth", blocksize=a.integer("blocksize", 0), mode=a.text("mode", "DCR")
    )


@row("Shape")
def shape(c: Conversion) -> Result:
    a = c.attributes
    return c.operator("Shape", start=a.integer("start", 0), end=a.integer("end"))


@row("Concat")
def concat(c: Conversion) -> Result:
    return c.operator("Concat", axis=c.attributes.integer("axis", 1))


@row("Split")
def split(c: Conversion) -> Result:
    """Sizes are an attribute before opset 13; the number of parts is that of the outputs."""
    a = c.attributes
    sizes = moved_to_input(c, "split", 13, 1)
    count = a.integer("num_outputs", len(c.node.outputs))
    return c.result(
        "Split",
        [c.required(0)] if sizes is None else [c.required(0), sizes],
        num_outputs=count,
        axis=a.integer("axis", 0),
    )


@row("Slice")
def slice_(c: Conversion) -> Result:
    """All bounds are attributes before opset 10."""
    if c.version >= 10:
        return c.operator("Slice")
    a = c.attributes
    starts, ends = a.integers("starts", ()), a.integers("ends", ())
    axes = a.integers("axes", tuple(range(len(starts))))
    return c.result("Slice", [c.required(0), c.ints(starts), c.ints(ends), c.ints(axes)])


@row("CenterCropPad")
def center_crop_pad(c: Conversion) -> Result:
    return c.operator("CenterCropPad", axes=c.attributes.integers("axes"))


@row("Pad")
def pad(c: Conversion) -> Result:
    """Pads and value are attributes before opset 11."""
    mode = c.attributes.text("mode", "constant")
    if c.version >= 11:
        return c.operator("Pad", mode=mode)
    pads = c.ints(c.attributes.integers("pads", ()))
    value = c.constant(c.attributes.number("value", 0.0), c.type(0).dtype.numpy)
    return c.result("Pad", [c.required(0), pads, value], mode=mode)


@row("Gather", "GatherElements")
def gather(c: Conversion) -> Result:
    return c.operator(c.node.op_type, axis=c.attributes.integer("axis", 0))


@row("GatherND")
def gather_nd(c: Conversion) -> Result:
    return c.operator("GatherND", batch_dims=c.attributes.integer("batch_dims", 0))


@row("Scatter", "ScatterElements")
def scatter_elements(c: Conversion) -> Result:
    """Scatter is the deprecated name."""
    a = c.attributes
    return c.operator(
        "ScatterElements", axis=a.integer("axis", 0), reduction=a.text("reduction", "none")
    )


@row("ScatterND")
def scatter_nd(c: Conversion) -> Result:
    return c.operator("ScatterND", reduction=c.attributes.text("reduction", "none"))


@row("Compress")
def compress(c: Conversion) -> Result:
    return c.operator("Compress", axis=c.attributes.integer("axis"))


@row("ReverseSequence")
def reverse_sequence(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "ReverseSequence",
        batch_axis=a.integer("batch_axis", 1),
        time_axis=a.integer("time_axis", 0),
    )


@row("Trilu")
def trilu(c: Conversion) -> Result:
    return c.operator("Trilu", upper=c.attributes.flag("upper", True))


@row("OneHot")
def one_hot(c: Conversion) -> Result:
    return c.operator("OneHot", axis=c.attributes.integer("axis", -1))


@row("Unique")
def unique(c: Conversion) -> Result:
    a = c.attributes
    return c.operator("Unique", axis=a.integer("axis"), sorted=a.flag("sorted", True))


@row("ConstantOfShape")
def constant_of_shape(c: Conversion) -> Result:
    value = c.attributes.tensor("value", np.zeros(1, np.float32))
    if value.size != 1:
        c.attributes.refuse("value", "it must have one element")
    return c.operator("ConstantOfShape", value=value.reshape(-1)[0].item(), dtype=str(value.dtype))


@row("EyeLike")
def eye_like(c: Conversion) -> Result:
    code = c.attributes.integer("dtype", 0)
    return c.operator(
        "EyeLike",
        dtype=dtype_of(code, c.node.place) if code else c.type(0).dtype,
        k=c.attributes.integer("k", 0),
    )


@row("NonMaxSuppression")
def non_max_suppression(c: Conversion) -> Result:
    center = c.attributes.flag("center_point_box")
    return c.operator("NonMaxSuppression", center_point_box=center)


@row("RoiAlign")
def roi_align(c: Conversion) -> Result:
    """Before opset 16 coordinates are not shifted by half a pixel."""
    a = c.attributes
    shift = "half_pixel" if c.version >= 16 else "output_half_pixel"
    return c.operator(
        "RoiAlign",
        coordinate_transformation_mode=a.text("coordinate_transformation_mode", shift),
        mode=a.text("mode", "avg"),
        output_height=a.integer("output_height", 1),
        output_width=a.integer("output_width", 1),
        sampling_ratio=a.integer("sampling_ratio", 0),
        spatial_scale=a.number("spatial_scale", 1.0),
    )


@row("MaxRoiPool")
def max_roi_pool(c: Conversion) -> Result:
    return c.operator(
        "MaxRoiPool",
        pooled_shape=c.attributes.integers("pooled_shape", ()),
        spatial_scale=c.attributes.number("spatial_scale", 1.0),
    )


@row("Resize")
def resize(c: Conversion) -> Result:
    """Opset 10 has scales only and asymmetric coordinates; nearest rounds down there."""
    a = c.attributes
    mode = a.text("mode", "nearest")
    if c.version < 11:
        return _old_resize(c, mode, c.required(1))
    return c.operator(
        "Resize",
        mode=mode,
        coordinate_transformation_mode=a.text("coordinate_transformation_mode", "half_pixel"),
        nearest_mode=a.text("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=a.number("cubic_coeff_a", -0.75),
        exclude_outside=a.flag("exclude_outside"),
        extrapolation_value=a.number("extrapolation_value", 0.0),
        antialias=a.flag("antialias"),
        axes=a.integers("axes"),
        keep_aspect_ratio_policy=a.text("keep_aspect_ratio_policy", "stretch"),
    )


def _old_resize(c: Conversion, mode: str, scales: str) -> Result:
    return c.result(
        "Resize",
        [c.required(0), None, scales],
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@row("Upsample")
def upsample(c: Conversion) -> Result:
    """Scales are an attribute before opset 9."""
    mode = c.attributes.text("mode", "nearest")
    if c.version >= 9:
        return _old_resize(c, mode, c.required(1))
    return _old_resize(c, mode, c.constant(c.attributes.numbers("scales", ()), np.float32))


@row("GridSample")
def grid_sample(c: Conversion) -> Result:
    """Modes were called bilinear and bicubic before opset 20."""
    a = c.attributes
    mode = a.text("mode", "linear" if c.version >= 20 else "bilinear")
    return c.operator(
        "GridSample",
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=a.text("padding_mode", "zeros"),
        align_corners=a.flag("align_corners"),
    )


@row("AffineGrid")
def affine_grid(c: Conversion) -> Result:
    return c.operator("AffineGrid", align_corners=c.attributes.flag("align_corners"))
