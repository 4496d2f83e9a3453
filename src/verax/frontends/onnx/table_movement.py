"""ONNX operators that move data: shapes, slices, gathers, scatters, resizing, detection."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import Fields, flag, integer, integers, scalar, text
from verax.frontends.onnx.rows import MICROSOFT, TABLE, moved_to_input, row
from verax.frontends.onnx.tensors import dtype_of

TABLE.operators({name: name for name in ("Size", "Expand", "Tile", "NonZero", "Range")})
TABLE.operator("Reshape", allowzero=flag())
TABLE.operator("Flatten", axis=integer(1))
TABLE.operator("Transpose", perm=integers())
TABLE.operator("DepthToSpace", blocksize=integer(0), mode=text("DCR"))
TABLE.operator("SpaceToDepth", blocksize=integer(0), mode=text("DCR"))
TABLE.operator("Shape", start=integer(0), end=integer())
TABLE.operator("Concat", axis=integer(1))
TABLE.operator("CenterCropPad", axes=integers())
TABLE.operator("Gather", axis=integer(0))
TABLE.operator("GatherElements", axis=integer(0))
TABLE.operator("GatherND", batch_dims=integer(0))
SCATTERED: Fields = {"axis": integer(0), "reduction": text("none")}
TABLE.operator("ScatterElements", "ScatterElements", "Scatter", **SCATTERED)
TABLE.operator("ScatterND", reduction=text("none"))
TABLE.operator("Compress", axis=integer())
TABLE.operator("ReverseSequence", batch_axis=integer(1), time_axis=integer(0))
TABLE.operator("Trilu", upper=flag(True))
TABLE.operator("Trilu", domain=MICROSOFT, upper=flag(True))
TABLE.operator("Pad", domain=MICROSOFT, mode=text("constant"))
TABLE.operator("OneHot", axis=integer(-1))
TABLE.operator("Unique", axis=integer(), sorted=flag(True))
TABLE.operator("NonMaxSuppression", center_point_box=flag())
TABLE.operator("MaxRoiPool", pooled_shape=integers(()), spatial_scale=scalar(1.0))
TABLE.operator("AffineGrid", align_corners=flag())


@row("Squeeze", "Unsqueeze")
def squeeze(c: Conversion) -> Result:
    axes = moved_to_input(c, "axes", 13, 1)
    return c.result(c.node.op_type, [c.required(0)] if axes is None else [c.required(0), axes])


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


@row("Pad")
def pad(c: Conversion) -> Result:
    """Pads and value are attributes before opset 11."""
    mode = c.text("mode", "constant")
    if c.version >= 11:
        return c.operator("Pad", mode=mode)
    pads = c.ints(c.integers("pads", ()))
    value = c.like(c.scalar("value", 0.0))
    return c.result("Pad", [c.required(0), pads, value], mode=mode)


@row("TensorScatter")
def tensor_scatter(c: Conversion) -> Result:
    """Updates written into a cache [batch, ..., length, ...] from a place of each item of the
    batch on, around its end where the mode is circular."""
    cache, update, mode = (
        c.required(0),
        c.required(1),
        c.choice("mode", ("linear", "circular"), "linear"),
    )
    rank = c.rank(0)
    axis = c.from_front(c.integer("axis", -2), rank)
    if not axis or c.rank(1) != rank:
        raise ModelError(f"axis {axis} of {c.type(0)}", place=c.node.place)
    count = c.add("Shape", [update], start=axis, end=axis + 1)
    stop = c.add("Squeeze", [count, c.ints([0])])
    indices = c.add("Range", [c.constant(0, np.int64), stop, c.constant(1, np.int64)])
    indices = c.add("Unsqueeze", [indices, c.ints([i for i in range(rank) if i != axis])])
    if (first := c.input(2)) is not None:
        behind = c.ints(range(1, rank))
        indices = c.add("Add", [c.add("Unsqueeze", [first, behind]), indices])
    if mode == "circular":
        indices = c.add("Mod", [indices, c.add("Shape", [cache], start=axis, end=axis + 1)])
    indices = c.add("Expand", [indices, c.add("Shape", [update])])
    return c.result("ScatterElements", [cache, indices, update], axis=axis)


@row("ConstantOfShape")
def constant_of_shape(c: Conversion) -> Result:
    value = c.attributes.tensor("value", np.zeros(1, np.float32))
    if value.size != 1:
        c.attributes.refuse("value", "it must have one element")
    return c.operator("ConstantOfShape", value=value.reshape(-1)[0].item(), dtype=str(value.dtype))


@row("EyeLike")
def eye_like(c: Conversion) -> Result:
    code = c.integer("dtype", 0)
    return c.operator(
        "EyeLike",
        dtype=dtype_of(code, c.node.place) if code else c.type(0).dtype,
        k=c.integer("k", 0),
    )


ROI_ALIGN: Fields = {
    "mode": text("avg"),
    "output_height": integer(1),
    "output_width": integer(1),
    "sampling_ratio": integer(0),
    "spatial_scale": scalar(1.0),
}
TABLE.operator(
    "RoiAlign",
    coordinate_transformation_mode=lambda c: c.text(
        "coordinate_transformation_mode",
        "half_pixel" if c.version >= 16 else "output_half_pixel",  # not shifted by half a pixel
    ),
    **ROI_ALIGN,
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
        cubic_coeff_a=a.scalar("cubic_coeff_a", -0.75),
        exclude_outside=a.flag("exclude_outside"),
        extrapolation_value=a.scalar("extrapolation_value", 0.0),
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
    mode = c.text("mode", "nearest")
    if c.version >= 9:
        return _old_resize(c, mode, c.required(1))
    return _old_resize(c, mode, c.constant(c.attributes.numbers("scales", ()), np.float32))


@row("GridSample")
@row("GridSample", domain=MICROSOFT)
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
