"""TensorFlow operators that resample images or cut patches out of them."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.bicubic import resized_bicubic
from verax.frontends.common.channels_last import (
    channels_first,
    constant_ints,
    finish_channels_last,
    pixel_positions,
    resized,
    static_dims,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tensorflow.rows import MAX_COMPUTED, NodeLayout, bounded, row
from verax.ir.types import DType


@row("ResizeBilinear", "ResizeNearestNeighbor")
def resize(c: Conversion) -> Result:
    if c.node.op_type == "ResizeBilinear":
        return resized(c, _floats(c), "linear")
    return resized(c, c.required(0), "nearest")


@row("ResizeBicubic")
def resize_bicubic(c: Conversion) -> Result:
    """Four rows, then four columns, weighted. TensorFlow rounds a position to one of 1024 between
    two pixels; with half-pixel centers, weights outside of the image are dropped and the others
    scaled to a sum of 1, else border pixels repeat.
    Source: core/kernels/image/resize_bicubic_op.cc of tensorflow/tensorflow.
    """
    aligned, half = pixel_positions(c)
    old, new = static_dims(c, 0, "the image")[1:3], constant_ints(c, 1, "the size")
    if len(new) != 2 or min(*new, *old) < 1:
        raise ModelError(f"{c.type(0)} to {new}", place=c.node.place)
    bounded(c, max(new), MAX_COMPUTED)
    value = resized_bicubic(c, _floats(c), old, new, aligned, half)
    return c.result("Identity", [value])


@row("CropAndResize")
def crop_and_resize(c: Conversion) -> Result:
    """Operands: images [b, h, w, c], boxes [n, 4] as parts of the image, the image of each box, the
    size. Boxes must be constants: each is cut and resized by itself."""
    a = c.attributes
    method = {"bilinear": "linear", "nearest": "nearest"}.get(a.text("method", "bilinear"))
    if method is None:
        a.refuse("method")
    fill = a.scalar("extrapolation_value", 0.0)
    boxes, images = c.known_value(1), c.known_value(2)
    if boxes is None or images is None:
        c.refuse("boxes that the network computes")
    sizes = constant_ints(c, 3, "the size")
    bounded(c, images.size)
    x, crops = channels_first(c, _floats(c)), []
    for box, image in zip(boxes.reshape(-1, 4), images.reshape(-1)):
        one = c.add("Slice", [x, c.ints((int(image),)), c.ints((int(image) + 1,))])
        roi = c.constant(np.asarray(box, np.float32))
        crops.append(
            c.add(
                "Resize",
                [one, roi, None, c.ints(sizes)],
                mode=method,
                coordinate_transformation_mode="tf_crop_and_resize",
                nearest_mode="round_prefer_ceil",
                extrapolation_value=fill,
                axes=(2, 3),
            )
        )
    return finish_channels_last(c, c.add("Concat", crops, axis=0))


@row("ExtractImagePatches")
def extract_patches(c: Conversion) -> Result:
    """[b, rows, columns, ksize * channels]: the pixels of each window, row by row. A convolution
    with weights of 0 and 1 would do; slices are exact for every value."""
    layout = NodeLayout(c, "NHWC")
    kernel, strides = layout.spatial("ksizes"), layout.spatial("strides")
    rates = layout.spatial("rates")
    rule, dims = layout.pads(), static_dims(c, 0, "the image")
    begins: list[int] = []
    ends: list[int] = []
    counts: list[int] = []
    for size, k, s, r in zip(dims[1:3], kernel, strides, rates):
        wide = (k - 1) * r + 1
        count = -(-size // s) if rule else max(0, (size - wide) // s + 1)
        lost = max((count - 1) * s + wide - size, 0) if rule else 0
        begins, ends = [*begins, lost // 2], [*ends, lost - lost // 2]
        counts.append(count)
    bounded(c, kernel[0] * kernel[1])
    if min(counts) < 1:
        c.refuse("windows larger than the image")
    x = c.add("Pad", [c.required(0), c.ints([0, *begins, 0, 0, *ends, 0])])
    patches = []
    for i, j in np.ndindex(*kernel):
        first = [i * rates[0], j * rates[1]]
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, strides)]
        bounds = (c.ints(first), c.ints(last), c.ints((1, 2)), c.ints(strides))
        patches.append(c.add("Slice", [x, *bounds]))
    return c.result("Concat", patches, axis=3)


def _floats(c: Conversion) -> str:
    """The image in float32, in which TensorFlow resamples whatever it is given."""
    if c.type(0).dtype is DType.float64:
        c.refuse("images of float64, which it reads as float32")
    return c.cast(c.required(0), DType.float32)
