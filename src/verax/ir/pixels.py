"""What a file says of its image inputs: layout, order of the channels, range, normalization.

Readers write it into a model's metadata as one line for each input, `input NAME`: "pixels 0..255,
BGR, NHWC, mean 127.5, std 128". ONNX files may say it in their own words, too, of their only image:
`Image.BitmapPixelFormat` and `Image.NominalPixelRange` as ONNX defines them, `layout` and `range`
as people write them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from verax.ir.types import DType, TensorType

IMAGE_CHANNELS = (1, 3, 4)
LAYOUTS = ("NCHW", "NHWC", "CHW", "HWC", "NHW", "HW")
ORDERS = {
    **{name: "RGB" for name in ("RGB", "RGB8", "RGBA8")},
    **{name: "BGR" for name in ("BGR", "BGR8", "BGRA8")},
    **{name: "GRAY" for name in ("GRAY", "GRAY8", "GRAYSCALE", "GRAYSCALE_FLOAT16")},
}
"""Names of channel orders in files, in capitals."""
RANGES = {
    "NominalRange_0_255": (0.0, 255.0),
    "NominalRange_16_235": (16.0, 235.0),
    "Normalized_0_1": (0.0, 1.0),
    "Normalized_1_1": (-1.0, 1.0),
}
"""Values of ONNX's Image.NominalPixelRange."""
_RANGE = re.compile(r"(?:pixels )?\s*([-+.\de]+)\s*(?:\.\.|,)\s*([-+.\de]+)\s*")


@dataclass(frozen=True)
class Pixels:
    """What is known of an image input; None or () for what the file leaves open.

    low, high: what black and white are. mean, std: of the pixels in that range, subtracted and
    divided by before they are handed over, one number or one for each channel.
    """

    layout: str | None = None
    order: str | None = None
    low: float | None = None
    high: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def is_normalized(self) -> bool:
        """Whether anything is said of the numbers."""
        return self.low is not None or bool(self.mean) or bool(self.std)

    def to_text(self) -> str:
        """One line, as it stands in metadata."""
        items = [] if self.low is None else [f"pixels {self.low:g}..{self.high:g}"]
        items += [p for p in (self.order, self.layout) if p]
        for name, values in (("mean", self.mean), ("std", self.std)):
            items += [f"{name} {' '.join(f'{v:.9g}' for v in values)}"] if values else []
        return ", ".join(items)

    @staticmethod
    def from_text(text: str) -> Pixels | None:
        """What such a line says; None for a line about something else."""
        first, *items = (item.strip() for item in text.split(","))
        if not first.startswith("pixels"):
            return None
        pixels = _within(Pixels(), first)
        for item in items:
            name, *values = item.split()
            if item.upper() in ORDERS:
                pixels = dataclasses.replace(pixels, order=ORDERS[item.upper()])
            elif item.upper() in LAYOUTS:
                pixels = dataclasses.replace(pixels, layout=item.upper())
            elif name == "mean":
                pixels = dataclasses.replace(pixels, mean=_numbers(values))
            elif name == "std":
                pixels = dataclasses.replace(pixels, std=_numbers(values))
        return pixels


def stated_pixels(
    metadata: Mapping[str, str], types: Mapping[str, TensorType]
) -> dict[str, Pixels]:
    """What metadata says of each input that is an image, by input."""
    pixels_of = {}
    for name in types:
        stated = Pixels.from_text(metadata.get(f"input {name}", ""))
        if stated is not None:
            pixels_of[name] = stated
    images = [name for name, type_ in types.items() if can_be_image(type_)]
    stated = _of_the_only_image(metadata)
    if not pixels_of and len(images) == 1 and stated != Pixels():
        pixels_of[images[0]] = stated
    return pixels_of


def can_be_image(type_: TensorType) -> bool:
    """Whether element type and rank allow for pixels."""
    return type_.rank in (3, 4) and (
        type_.dtype.is_float or type_.dtype in (DType.uint8, DType.int8)
    )


def _of_the_only_image(metadata: Mapping[str, str]) -> Pixels:
    order = ORDERS.get(metadata.get("Image.BitmapPixelFormat", "").upper())
    ends = RANGES.get(metadata.get("Image.NominalPixelRange", ""))
    layout = metadata.get("layout", "").strip().upper()
    pixels = Pixels(
        layout if layout in LAYOUTS else None,
        order or ORDERS.get(metadata.get("order", "").strip().upper()),
    )
    if ends is None:
        return _within(pixels, metadata.get("range", ""))
    return dataclasses.replace(pixels, low=ends[0], high=ends[1])


def _within(pixels: Pixels, text: str) -> Pixels:
    """With the range that `0..255` or `-1, 1` gives; the same for any other text."""
    ends = _RANGE.fullmatch(text)
    numbers = _numbers(ends.groups()) if ends else ()
    if len(numbers) != 2 or numbers[0] >= numbers[1]:
        return pixels
    return dataclasses.replace(pixels, low=numbers[0], high=numbers[1])


def _numbers(texts: Iterable[str]) -> tuple[float, ...]:
    """Finite numbers; nothing when one is none."""
    try:
        numbers = tuple(map(float, texts))
    except ValueError:
        return ()
    return numbers if all(map(math.isfinite, numbers)) else ()
