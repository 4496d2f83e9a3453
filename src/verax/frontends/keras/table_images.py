"""Keras layers for pictures: resizing, cropping the center, what is random in training only, and
pools of a stated output size."""

from __future__ import annotations

from collections.abc import Sequence

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.rows import (
    MAX_PIECES,
    TRAINING,
    LayerLayout,
    only_input,
    operation,
    row,
    sizes,
    spatial_rank,
)

RANDOM = (
    "AugMix", "CutMix", "MixUp", "RandAugment", "RandomBrightness", "RandomColorDegeneration",
    "RandomColorJitter", "RandomContrast", "RandomElasticTransform", "RandomErasing", "RandomFlip",
    "RandomGaussianBlur", "RandomGrayscale", "RandomHeight", "RandomHue", "RandomInvert",
    "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation",
    "RandomSharpness", "RandomShear", "RandomTranslation", "RandomWidth", "RandomZoom",
)  # fmt: skip
"""Layers that change pictures in training and pass them on at inference. RandomCrop is not one of
them: at inference it resizes."""


@row(*RANDOM)
def random(c: Conversion) -> Result:
    for name in tuple(c.attributes.values):
        if name != "weights" and not name.startswith("call."):
            c.attributes.irrelevant(name, TRAINING)
    return c.same(only_input(c))


def resized(c: Conversion, size: Sequence[int]) -> Result:
    """A picture or a batch of them, by half-pixel centers."""
    a, layout = c.attributes, LayerLayout(c)
    mode = c.choice("interpolation", ("bilinear", "nearest"), "bilinear")
    a.expect("pad_to_aspect_ratio", False)
    a.irrelevant("fill_value", "nothing is filled")
    a.expect("fill_mode", "constant")
    a.expect("antialias", False)
    x = layout.first(only_input(c))
    if c.rank() != 4:
        c.refuse("a single picture: a batch is needed")
    if a.flag("crop_to_aspect_ratio"):
        height, width = c.known_sizes(0, (1, 2) if layout.last else (2, 3))
        x = _cropped(c, x, (height, width), size)
    nearest = {"nearest_mode": "round_prefer_ceil"} if mode == "nearest" else {"mode": "linear"}
    y = c.add(
        "Resize",
        [x, None, None, c.ints(size)],
        coordinate_transformation_mode="half_pixel",
        axes=(2, 3),
        **nearest,
    )
    return c.same(layout.back(y))


def _cropped(c: Conversion, x: str, sides: tuple[int, int], size: Sequence[int]) -> str:
    """The largest middle part with the wanted ratio of sides; sizes are rounded down."""
    height, width = sides
    tall, wide = size
    lengths = (
        max(min(height, int(width * tall / wide)), 1),
        max(min(width, int(height * wide / tall)), 1),
    )
    starts = [int((side - length) / 2) for side, length in zip(sides, lengths)]
    ends = [start + length for start, length in zip(starts, lengths)]
    return c.add("Slice", [x, c.ints(starts), c.ints(ends), c.ints((2, 3))])


@row("Resizing")
def resizing(c: Conversion) -> Result:
    return resized(c, [c.integer(n, 0) for n in ("height", "width")])


@operation("Resize")
def resize_operation(c: Conversion) -> Result:
    return resized(c, c.integers("size", ()))


@row("CenterCrop")
def center_crop(c: Conversion) -> Result:
    """The middle; a picture that is too small would be resized and is refused."""
    layout = LayerLayout(c)
    crop_size = [c.integer(n, 0) for n in ("height", "width")]
    x, axes = only_input(c), (1, 2) if layout.last else (2, 3)
    sides = c.known_sizes(0, axes)
    if c.rank() != 4 or any(have < side for have, side in zip(sides, crop_size)):
        c.refuse(f"{crop_size} of {c.type(0)}: the batch's pictures must be as large")
    starts = [(have - side) // 2 for have, side in zip(sides, crop_size)]
    ends = [start + side for start, side in zip(starts, crop_size)]
    return c.result("Slice", [x, c.ints(starts), c.ints(ends), c.ints(axes)])


@row(*(f"Adaptive{k}Pooling{i}D" for k in ("Average", "Max") for i in (1, 2, 3)))
def adaptive_pool(c: Conversion) -> Result:
    """Along every axis, piece i covers floor(i n / pieces) to ceil((i + 1) n / pieces)."""
    rank, layout = spatial_rank(c), LayerLayout(c)
    kind = "ReduceMax" if "Max" in c.node.op_type else "ReduceMean"
    counts, y = sizes(c, "output_size", rank), only_input(c)
    first = 1 if layout.last else 2
    if c.rank() != rank + 2 or min(counts) < 1:
        raise ModelError(f"{counts} pieces of {c.type(0)}", place=c.node.place)
    axes = range(first, first + rank)
    c.check_count(sum(counts), MAX_PIECES, "pieces")
    for axis, count, size in zip(axes, counts, c.known_sizes(0, axes)):
        pieces = []
        for i in range(count):
            ends = (i * size // count, -(-(i + 1) * size // count))
            at = [c.ints((n,)) for n in (*ends, axis)]
            piece = c.add("Slice", [y, *at])
            pieces.append(c.add(kind, [piece, at[-1]], keepdims=True))
        y = c.add("Concat", pieces, axis=axis)
    return c.same(y)
