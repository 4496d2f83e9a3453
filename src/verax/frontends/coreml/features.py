"""Inputs and outputs that a CoreML model declares: arrays, images with their scaling, classes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import UNBOUNDED, ForeignNode, ForeignValue
from verax.ir.types import DType

INT32, FLOAT16 = 131104, 65552
"""Numbers of array element types; every other float counts as float32, in which CoreML computes."""

CHANNELS = {"GRAYSCALE": 1, "GRAYSCALE_FLOAT16": 1, "RGB": 3, "BGR": 3}


@dataclass(frozen=True)
class Feature:
    """A declared input or output. dims: sizes, None where any size is allowed or none is stated.

    color: order of an image's channels, "" for an array.
    """

    name: str
    kind: str
    dims: tuple[int | None, ...] | None
    dtype: DType | None = DType.float32
    color: str = ""

    def value(self) -> ForeignValue:
        """The feature as a value of the network."""
        return ForeignValue(self.name, self.dtype, self.dims, self.kind)


def feature_of(message: Any) -> Feature:
    """Read a FeatureDescription. Raises `ModelError` for sizes that make no sense."""
    name, location = message.name, f"feature {message.name!r}"
    kind = message.type.WhichOneof("Type") or "no type"
    if kind == "imageType":
        return _image(name, message.type.imageType, location)
    if kind != "multiArrayType":
        return Feature(name, kind, None, None)
    array = message.type.multiArrayType
    dtype = DType.int32 if array.dataType == INT32 else DType.float32
    dims: tuple[int | None, ...] = _sizes(array.shape, location)
    flexible = array.WhichOneof("ShapeFlexibility")
    if flexible == "shapeRange":
        ranges = [(int(r.lowerBound), int(r.upperBound)) for r in array.shapeRange.sizeRanges]
        dims = tuple(low if low == high else None for low, high in ranges)
    elif flexible == "enumeratedShapes":
        shapes = [_sizes(s.shape, location) for s in array.enumeratedShapes.shapes]
        if len({len(s) for s in shapes}) != 1:
            raise UnsupportedError(
                "the allowed shapes differ in their number of axes", place=location
            )
        dims = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes))
    return Feature(name, kind, dims or None, dtype)


def allowed_sizes(descriptions: Iterable[Any]) -> dict[str, Collection[int]]:
    """The sizes that FeatureDescriptions allow for axes that they leave open, by "feature.axis"."""
    sizes_by_axis: dict[str, Collection[int]] = {}
    for message in descriptions:
        kind = message.type.WhichOneof("Type")
        axes: list[Collection[int]] = []
        if kind == "multiArrayType":
            array = message.type.multiArrayType
            flexible = array.WhichOneof("ShapeFlexibility")
            if flexible == "shapeRange":
                axes = [_range(r) for r in array.shapeRange.sizeRanges]
            elif flexible == "enumeratedShapes":
                axes = list(zip(*(s.shape for s in array.enumeratedShapes.shapes)))
        elif kind == "imageType":
            image = message.type.imageType
            flexible = image.WhichOneof("SizeFlexibility")
            if flexible == "imageSizeRange":
                area = image.imageSizeRange
                axes = [(1,), (), _range(area.heightRange), _range(area.widthRange)]
            elif flexible == "enumeratedSizes":
                sizes = image.enumeratedSizes.sizes
                axes = [(1,), (), {s.height for s in sizes}, {s.width for s in sizes}]
        sizes_by_axis |= {f"{message.name}.{i}": axis for i, axis in enumerate(axes) if axis}
    return sizes_by_axis


def _range(bounds: Any) -> range:
    """A SizeRange; an upper bound below zero is none."""
    top = UNBOUNDED if bounds.upperBound < 0 else min(int(bounds.upperBound), UNBOUNDED)
    return range(int(bounds.lowerBound), top + 1)


def _sizes(sizes: Any, location: str) -> tuple[int, ...]:
    dims = tuple(int(d) for d in sizes)
    total = 1
    for d in dims:
        total *= d
        if d < 1 or total > 2**40:
            raise ModelError(f"the dimensions are {dims}", place=location)
    return dims


def _image(name: str, image: Any, location: str) -> Feature:
    """[1, channels, height, width]."""
    color = type(image).ColorSpace.Name(image.colorSpace) if image.colorSpace in (
        type(image).ColorSpace.values()) else "unknown"  # fmt: skip
    if color not in CHANNELS:
        raise UnsupportedError(f"an image with the colors {color}", place=location)
    height: int | None
    height, width = _sizes((image.height, image.width), location)
    if image.WhichOneof("SizeFlexibility") is not None:
        return Feature(name, "imageType", (1, CHANNELS[color], None, None), color=color)
    return Feature(name, "imageType", (1, CHANNELS[color], height, width), color=color)


def preprocessing_node(message: Any, feature: Feature, outcome: str) -> ForeignNode:
    """The scaling of an image input as a node from the image to the value that layers read."""
    kind = message.WhichOneof("preprocessor")
    location = f"preprocessing of {feature.name!r}"
    if kind == "scaler":
        s = message.scaler
        colors = {"BGR": ("blue", "green", "red"), "RGB": ("red", "green", "blue")}
        order = colors.get(feature.color, ("gray",))
        attributes: dict[str, Any] = {
            "channelScale": s.channelScale,
            "bias": tuple(getattr(s, f"{name}Bias") for name in order),
        }
        unread = [n for n in ("blue", "green", "red", "gray") if n not in order]
        attributes |= {f"{n}Bias": getattr(s, f"{n}Bias") for n in unread if getattr(s, f"{n}Bias")}
    elif kind == "meanImage":
        attributes = {"meanImage": tuple(message.meanImage.meanImage)}
    else:
        raise ModelError("the preprocessing is of no kind", place=location)
    return ForeignNode(f"preprocessing.{kind}", (feature.name,), (outcome,), attributes, location)
