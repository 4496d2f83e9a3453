"""CoreML layers that resample images: upsample, resizeBilinear, cropResize.

Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.mil_rows import layer
from verax.frontends.coreml.mil_sampling import GRIDS as OPERATION_GRIDS
from verax.frontends.coreml.rows import LEGACY, resized, row, two
from verax.frontends.coreml.sampling import boxes_of, crops


@row("upsample")
def upsample(c: Conversion) -> Result:
    """Nearest repeats; bilinear samples at i * in / out unless linearUpsampleMode differs.

    The grid follows from the sizes, not from the factor: coremltools writes 1.80002 for 9 / 5.
    """
    a, rank = c.attributes, c.rank()
    mode = a.text("mode", "NN")
    factors: tuple[float, ...] = a.numbers("fractionalScalingFactor", ())
    if not factors:
        factors = two(c, "scalingFactor", (1, 1))
    if len(factors) != 2 or min(factors) <= 0:
        raise ModelError(f"the scaling factors are {factors}", place=c.node.place)
    rule = a.text("linearUpsampleMode", "DEFAULT") if mode == "BILINEAR" else "DEFAULT"
    a.irrelevant("linearUpsampleMode", "it belongs to bilinear interpolation")
    if mode == "NN" and any(f != int(f) for f in factors):
        a.refuse("fractionalScalingFactor", "nearest neighbors of fractions are not defined")
    rules = {"ALIGN_CORNERS_TRUE": "align_corners", "ALIGN_CORNERS_FALSE": "half_pixel"}
    rule = rules.get(rule, "asymmetric")
    kind = "nearest" if mode == "NN" else "linear"
    if any(f != int(f) for f in factors):
        dims = c.known_sizes(0, (rank - 2, rank - 1), "the new size")
        return resized(c, c.required(0), kind, rule, [int(f * n) for f, n in zip(factors, dims)])
    return c.result(
        "Resize",
        [c.required(0), None, c.constant(factors, np.float32)],
        mode=kind,
        coordinate_transformation_mode=rule,
        nearest_mode="floor",
        axes=(rank - 2, rank - 1),
    )


GRIDS = {
    "STRICT_ALIGN_ENDPOINTS_MODE": "STRICT_ALIGN_CORNERS",
    "ALIGN_ENDPOINTS_MODE": "ALIGN_CORNERS",
    "UPSAMPLE_MODE": "DEFAULT",
    "ROI_ALIGN_MODE": "OFFSET_CORNERS",
}
"""Grids of layers, and what operations call them."""


def _grid(c: Conversion) -> str:
    return GRIDS[c.text("mode.samplingMethod", "STRICT_ALIGN_ENDPOINTS_MODE")]


layer(
    "resizeBilinear",
    "resize_bilinear",
    sampling_mode=_grid,
    target_size_height=lambda c: two(c, "targetSize", (1, 1))[0],
    target_size_width=lambda c: two(c, "targetSize", (1, 1))[1],
)


@row("cropResize")
def crop_resize(c: Conversion) -> Result:
    """Images [1, B, C, H, W] and boxes [N, 1, 4, 1, 1], or 5 numbers, the first a batch's."""
    a, x = c.attributes, c.type(0)
    order = a.text("boxIndicesMode.boxMode", "CORNERS_HEIGHT_FIRST")
    scale = a.scalar("spatialScale", 0.0)
    if not scale:
        a.refuse("spatialScale", "a scale of 0, or none, has no stated meaning")
    if c.version <= LEGACY or x.rank != 5 or x.dims[0] != 1:
        c.refuse(f"images {x} do not have five axes")
    boxes, batches = boxes_of(c, c.required(1))
    crop = crops(
        c, c.add("Squeeze", [c.required(0), c.ints((0,))]), boxes, batches,
        two(c, "targetSize", (1, 1)), OPERATION_GRIDS[_grid(c)],
        order=order, normalized=a.flag("normalizedCoordinates"), scale=scale,
    )  # fmt: skip
    if batches is None:
        return c.same(crop)
    return c.apply("Unsqueeze", [crop, c.ints((1,))])
