"""ML program operations that resample images on a grid.

Meanings and defaults: coremltools, converters/mil/mil/ops/defs.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Result
from verax.frontends.coreml.mil_rows import Mil, mil
from verax.frontends.coreml.rows import resized
from verax.frontends.coreml.sampling import (
    ALIGN,
    OFFSET,
    STRICT,
    UNALIGN,
    UPSAMPLE,
    boxes_of,
    crops,
    resampled,
)

GRIDS = {
    "STRICT_ALIGN_CORNERS": STRICT,
    "ALIGN_CORNERS": ALIGN,
    "DEFAULT": UPSAMPLE,
    "OFFSET_CORNERS": OFFSET,
    "UNALIGN_CORNERS": UNALIGN,
}
RULES = {STRICT: "align_corners", UPSAMPLE: "asymmetric", UNALIGN: "half_pixel"}
"""Grids that are a rule of the operator Resize whatever the sizes."""


def _grid(c: Mil) -> str:
    mode = c.choice("sampling_mode", GRIDS, "DEFAULT")
    return GRIDS[mode]


def _scales(c: Mil, x: str) -> tuple[int, int]:
    """Height and width after scaling: the whole part of size times factor."""
    factors = [c.scalar(f"scale_factor_{n}", 1.0) for n in ("height", "width")]
    dims = c.known_sizes(x, (-2, -1), "the new size")
    sizes = [int(np.floor(f * d)) for f, d in zip(factors, dims)]
    return sizes[0], sizes[1]


def _linear(c: Mil, x: str, grid: str, sizes: tuple[int, int]) -> Result:
    if grid in RULES:
        return resized(c, x, "linear", RULES[grid], sizes)
    if grid == ALIGN and 1 not in sizes:
        return resized(c, x, "linear", "align_corners", sizes)
    return c.result("Identity", [resampled(c, x, grid, sizes)])


@mil("upsample_nearest_neighbor")
def upsample_nearest(c: Mil) -> Result:
    x = c.tensor("x")
    return resized(c, x, "nearest", "asymmetric", _scales(c, x))


@mil("upsample_bilinear")
def upsample_bilinear(c: Mil) -> Result:
    """half_pixel_centers is what align_corners is not, unless it is given."""
    x, corners = c.tensor("x"), c.flag("align_corners", True)
    centers = c.flag("half_pixel_centers", not corners)
    if corners and centers:
        c.attributes.refuse("half_pixel_centers", "align_corners is true")
    rule = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    return resized(c, x, "linear", rule, _scales(c, x))


def _target(c: Mil, word: str = "size_") -> tuple[int, int]:
    return c.integer(f"target_{word}height", 1), c.integer(f"target_{word}width", 1)


@mil("resize_nearest_neighbor")
def resize_nearest(c: Mil) -> Result:
    return resized(c, c.tensor("x"), "nearest", "asymmetric", _target(c))


@mil("resize_bilinear")
def resize_bilinear(c: Mil) -> Result:
    return _linear(c, c.tensor("x"), _grid(c), _target(c))


@mil("resize")
def resize(c: Mil) -> Result:
    """The last resized_dims axes get the last sizes of `shape`; a 0 leaves an axis as it is."""
    x, shape, count = c.tensor("x"), c.integers("shape", ()), c.integer("resized_dims")
    rank, grid = c.rank(x), _grid(c)
    mode = c.text("interpolation_mode", "LINEAR")
    if not 0 < count <= len(shape) <= rank:
        raise ModelError(f"{count} axes of {rank} by {shape}", place=c.node.place)
    dims = c.type(x).dims
    sizes = [n or d for n, d in zip(shape[-count:], dims[-count:])]
    if not all(isinstance(n, int) for n in (*sizes, *dims[-2:])) or rank < 2:
        c.refuse(f"{c.type(x)} by {shape}: the sizes must be known")
    if any(n != d for n, d in zip(sizes[:-2], dims[-count:])):
        c.attributes.refuse("resized_dims", "only height and width can change")
    last = [int(n) for n in (*dims[-2:], *sizes)[-2:]]  # type: ignore[arg-type]
    if mode == "LINEAR":
        return _linear(c, x, grid, (last[0], last[1]))
    if mode != "NEAREST_NEIGHBOR" or grid != UPSAMPLE:
        c.attributes.refuse("interpolation_mode", "it is not supported on this grid")
    return resized(c, x, "nearest", "asymmetric", last)


@mil("crop_resize")
def crop_resize(c: Mil) -> Result:
    """Up to iOS 16 boxes are roi [N, 1, 4 or 5, 1, 1]; then boxes [N, 4] with box_indices [N]."""
    x, size = c.tensor("x"), _target(c, "")
    order = c.text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST")
    if order not in (f"{a}_{b}_FIRST" for a in ("CORNERS", "CENTER_SIZE")
                     for b in ("HEIGHT", "WIDTH")):  # fmt: skip
        c.attributes.refuse("box_coordinate_mode", "unknown mode")
    batches: str | None = None
    if c.version >= 7:
        boxes = c.tensor("boxes")
        count = c.type(boxes).dims[0]
        if c.fixed("box_indices") is not None or "box_indices" in c.attributes.get("inputs", ()):
            batches = c.positions("box_indices")
        elif isinstance(count, int):
            c.check_count(count)
            batches = c.ints(range(count))
        else:
            c.refuse("boxes in an unknown number without box_indices")
        lift: tuple[int, ...] | None = None
    else:
        boxes, batches = boxes_of(c, c.tensor("roi"))
        lift = None if batches is None else (1,)
    crop = crops(
        c, x, boxes, batches, size, _grid(c), order=order,
        normalized=c.flag("normalized_coordinates"), scale=c.scalar("spatial_scale", 1.0),
        outside=c.scalar("pad_value", 0.0),
    )  # fmt: skip
    if lift is None:
        return c.result("Identity", [crop])
    return c.result("Unsqueeze", [crop, c.ints(lift)])


PADDINGS = {
    ("constant", True): "zeros",
    ("constant", False): "zeros",
    ("border", True): "border",
    ("border", False): "border",
    ("reflection", True): "reflection",
    ("symmetric", False): "reflection",
}
"""How GridSample names the padding, by padding_mode and align_corners: it reflects about the
centers of the outer pixels, or about their edges."""


@mil("resample")
def resample(c: Mil) -> Result:
    """x [B, C, H, W] at coordinates [B, h, w, 2] of (x, y)."""
    x, at = c.tensor("x"), c.tensor("coordinates")
    sampling, padding = c.text("sampling_mode", ""), c.text("padding_mode", "")
    coordinates, corners = c.text("coordinates_mode", ""), c.flag("align_corners")
    if padding == "constant" and c.scalar("padding_value"):
        c.attributes.refuse("padding_value", "only 0 is supported")
    c.attributes.irrelevant("padding_value", f"padding_mode is {padding}")
    if c.type(at).dtype != c.type(x).dtype:
        at = c.add("Cast", [at], to=str(c.type(x).dtype))
    if coordinates == "unnormalized":
        dims = c.type(x).dims[-2:]
        if any(not isinstance(d, int) or d < 2 for d in dims):
            c.refuse(f"coordinates in pixels of {c.type(x)}")
        last = c.like([int(dims[1]) - 1, int(dims[0]) - 1], x)  # type: ignore[arg-type]
        at, corners = c.add("Div", [at, last]), True
    elif coordinates not in ("normalized_zero_to_one", "normalized_minus_one_to_one"):
        c.attributes.refuse("coordinates_mode", "unknown mode")
    if coordinates != "normalized_minus_one_to_one":
        at = c.add("Sub", [c.add("Mul", [at, c.like(2, x)]), c.like(1, x)])
    if (padding, corners) not in PADDINGS:
        c.attributes.refuse("padding_mode", f"it is not supported with align_corners = {corners}")
    return _sampled(c, x, at, sampling, PADDINGS[padding, corners], corners=corners)


def _sampled(c: Mil, x: str, at: str, sampling: str, padding: str, *, corners: bool) -> Result:
    modes = {"bilinear": "linear", "nearest": "nearest"}
    if sampling not in modes:
        c.attributes.refuse("sampling_mode", "unknown mode")
    return c.result(
        "GridSample",
        [x, at],
        mode=modes[sampling],
        padding_mode=padding,
        align_corners=corners,
    )


@mil("affine")
def affine(c: Mil) -> Result:
    """Samples at (a0 x + a1 y + a2, b0 x + b1 y + b2) of coordinates from -1 to 1."""
    x, matrix = c.tensor("x"), c.tensor("transform_matrix")
    height, width = c.integer("output_height"), c.integer("output_width")
    supported = {"padding_mode": "constant", "coordinates_mode": "normalized_minus_one_to_one"}
    for name, value in supported.items():
        if c.text(name, "") != value:
            c.attributes.refuse(name, "the format has no other value")
    if c.scalar("padding_value"):
        c.attributes.refuse("padding_value", "only 0 is supported")
    if not c.flag("align_corners"):
        c.attributes.refuse("align_corners", "the format has no other value")
    if min(height, width) < 2:
        c.refuse(f"an output of {height} x {width}")
    c.check_count(height * width)
    batch, rows = c.type(x).dims[0], c.type(matrix).dims[0]
    if rows == 1 and batch != 1:
        if not isinstance(batch, int):
            c.refuse("one matrix for an unknown number of images")
        matrix = c.add("Expand", [matrix, c.ints((batch, 6))])
    axes = []
    for i, count in enumerate((height, width)):
        coordinates = c.add("Div", [c.like(2 * np.arange(count) - (count - 1), x),
                              c.like(count - 1, x)])  # fmt: skip
        lone = c.add("Unsqueeze", [coordinates, c.ints((1 - i,))])
        axes.append(c.add("Expand", [lone, c.ints((height, width))]))
    ones = c.like(np.ones((height, width)), x)
    components = [c.add("Unsqueeze", [v, c.ints((2,))]) for v in (axes[1], axes[0], ones)]
    base = c.add("Reshape", [c.add("Concat", components, axis=2), c.ints((1, height * width, 3))])
    matrices = c.add("Reshape", [matrix, c.ints((0, 2, 3))])
    product = c.add("MatMul", [base, c.add("Transpose", [matrices], perm=(0, 2, 1))])
    at = c.add("Reshape", [product, c.ints((0, height, width, 2))])
    return _sampled(c, x, at, c.text("sampling_mode", ""), "zeros", corners=True)
