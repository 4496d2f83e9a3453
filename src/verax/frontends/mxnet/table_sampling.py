"""MXNet's spatial transformers: grids of positions, and images sampled at them; images prepared.

A grid is [n, 2, h, w], x before y, where -1 and 1 are the middles of the outer pixels.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.mxnet.rows import floats, ints, known_dims, row


def _sampled(c: Conversion, data: str, grid: str) -> Result:
    """Bilinear, with zeros outside. grid: [n, h, w, 2]."""
    return c.result(
        "GridSample", [data, grid], mode="linear", padding_mode="zeros", align_corners=True
    )


def _affine(c: Conversion, data: str, size: tuple[int, int]) -> str:
    """The grid [n, h, w, 2] of transformations [n, 6]."""
    theta = c.add("Reshape", [data, c.ints((-1, 2, 3))])
    data_shape = c.add("Shape", [data])
    batch = c.add("Slice", [data_shape, c.ints((0,)), c.ints((1,))])
    shape = c.add("Concat", [batch, c.ints((1, *size))], axis=0)
    return c.add("AffineGrid", [theta, shape], align_corners=True)


def _target(c: Conversion, default: tuple[int, int] | None) -> tuple[int, int]:
    size = ints(c, "target_shape", (0, 0))
    if size == (0, 0) and default is not None:
        return default
    if len(size) != 2 or min(size) < 1:
        raise ModelError(f"target_shape = {size}", place=c.node.place)
    if 1 in size:
        c.attributes.refuse("target_shape", "the middle of a single pixel is nowhere")
    c.check_count(size[0] * size[1])
    return int(size[0]), int(size[1])


@row("BilinearSampler")
def bilinear_sampler(c: Conversion) -> Result:
    return _sampled(c, c.required(0), c.add("Transpose", [c.required(1)], perm=(0, 2, 3, 1)))


@row("GridGenerator")
def grid_generator(c: Conversion) -> Result:
    """From affine transformations [n, 6], or from how far each pixel moves [n, 2, h, w]."""
    a, kind = c.attributes, c.text("transform_type")
    if kind == "affine":
        grid = _affine(c, c.required(0), _target(c, None))
        return c.result("Transpose", [grid], perm=(0, 3, 1, 2))
    if kind != "warp":
        a.refuse("transform_type", "it is affine or warp")
    a.irrelevant("target_shape", "a warp has the size of its input")
    height, width = known_dims(c, 0, "where each pixel lies", 2)
    c.check_count(2 * height * width)
    positions = np.stack(np.meshgrid(np.arange(width), np.arange(height)))
    half = np.array([width - 1, height - 1]).reshape(2, 1, 1) / 2
    shifted = c.add("Add", [c.required(0), c.like(positions[None])])
    return c.result("Sub", [c.add("Div", [shifted, c.like(half[None])]), c.like(1)])


@row("SpatialTransformer")
def spatial_transformer(c: Conversion) -> Result:
    a = c.attributes
    a.expect("transform_type", "affine", reason="there is no other")
    a.expect("sampler_type", "bilinear", reason="there is no other")
    height, width = known_dims(c, 0, "the size of the result", 2)
    return _sampled(c, c.required(0), _affine(c, c.required(1), _target(c, (height, width))))


# Images as Gluon's transforms prepare them.


@row("_image_to_tensor")
def to_tensor(c: Conversion) -> Result:
    """[h, w, c] or [n, h, w, c] of 0 to 255 as float32 [..., c, h, w] of 0 to 1."""
    if c.rank() not in (3, 4):
        c.refuse(f"the input is {c.type(0)}")
    first = c.rank() - 3
    perm = (*range(first), first + 2, first, first + 1)
    pixels = c.add("Cast", [c.add("Transpose", [c.required(0)], perm=perm)], to="float32")
    return c.result("Div", [pixels, c.constant(255, np.float32)])


@row("_image_normalize")
def normalize(c: Conversion) -> Result:
    """[..., c, h, w] less the mean, over the deviation, each one number or one per channel."""
    sides = []
    for name, default in (("mean", (0.0,)), ("std", (1.0,))):
        values = floats(c, name, default)
        if len(values) not in (1, 3) or (name == "std" and 0 in values):
            c.attributes.refuse(name, "it must be one number or three")
        sides.append(c.like(np.reshape(values, (-1, 1, 1))))
    return c.result("Div", [c.add("Sub", [c.required(0), sides[0]]), sides[1]])


@row("_image_crop")
def crop(c: Conversion) -> Result:
    """A part of [h, w, c] or [n, h, w, c]: width x height pixels from (x, y) on."""
    a, axis = c.attributes, c.rank() - 3
    if axis not in (0, 1):
        c.refuse(f"the input is {c.type(0)}")
    start = [a.integer("y"), a.integer("x")]
    size = [a.integer("height"), a.integer("width")]
    dims = known_dims(c, 0, "whether the part lies inside", axis)
    if min(*start, *size) < 0 or any(s + n > d for s, n, d in zip(start, size, dims)):
        raise ModelError(f"a part of {size} at {start} of {c.type(0)}", place=c.node.place)
    ends = c.ints([s + n for s, n in zip(start, size)])
    axes, steps = c.ints((axis, axis + 1)), c.ints((1, 1))
    return c.result("Slice", [c.required(0), c.ints(start), ends, axes, steps])
