"""Photos as network inputs. Every step is stated in words, because each is a way to be wrong.

Networks disagree on layout, channel order, range and normalization. What the user gives is used;
what is not given is what the model's file says (`Pixels`); what that leaves open is chosen from the
declared input type and said to be assumed. `PreparedImage.steps` says what was done.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.base.optional import late
from verax.ir.pixels import LAYOUTS, Pixels
from verax.ir.types import DType, TensorType

if TYPE_CHECKING:
    from PIL import Image, ImageOps
else:
    Image, ImageOps = late("PIL.Image", "images"), late("PIL.ImageOps", "images")

MAX_PIXELS = 64_000_000
"""Images with more pixels are refused before they are decoded."""

ORDERS = ("RGB", "BGR", "GRAY")
FITS = ("stretch", "crop", "pad")
BYTES = (DType.uint8, DType.int8)
"""Pixels as they are, or moved by 128 as quantized networks take them."""
_ORIENTATION = 0x0112
_READABLE = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


@dataclass(frozen=True)
class ImageOptions:
    """How to turn an image into an array; None means: choose from the input's type.

    layout: one of LAYOUTS. order: one of ORDERS. low, high: what black and white become. mean,
    std: per channel, applied after that: (value - mean) / std. fit: how to reach the network's
    size: stretch, crop (the middle) or pad (black borders).
    """

    layout: str | None = None
    order: str | None = None
    low: float | None = None
    high: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    fit: str = "stretch"


@dataclass(frozen=True)
class PreparedImage:
    """The array for the network, and what was done to the file, step by step, in words."""

    array: np.ndarray
    steps: tuple[str, ...]


def read_image(
    path: str | os.PathLike[str] | BinaryIO,
    type_: TensorType,
    options: ImageOptions | None = None,
    stated: Pixels | None = None,
    name: str = "",
) -> PreparedImage:
    """The image file (PNG or JPEG) as an input of type `type_`.

    path: of the file, or a stream of its bytes, which is called `name`. stated: what the model's
    file says of this input; options that are given win.

    Raises `InputError` when the file is no readable image or the input cannot hold one, and
    `UsageError` when the options do not fit the input.
    """
    requested = options or ImageOptions()
    options, notes = _completed(requested, stated or Pixels(), type_)
    layout = options.layout or _layout(type_)
    _validate(options, layout, type_)
    picture, steps = _open(path, name)
    return _prepared(picture, steps, type_, layout, options, notes)


def prepare_pixels(
    pixels: np.ndarray,
    type_: TensorType,
    options: ImageOptions | None = None,
    stated: Pixels | None = None,
    name: str = "an array",
) -> PreparedImage:
    """Bytes [rows, columns] (grey) or [rows, columns, 3] (RGB) as `read_image` takes a file.

    Raises `InputError` for an array of another form, and what `read_image` raises.
    """
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or pixels.shape[2:] == (3,)):
        raise InputError(
            f"{pixels.dtype}{list(pixels.shape)} is no picture: bytes [rows, columns] or "
            "[rows, columns, 3] are",
            place=name,
        )
    if 0 in pixels.shape:
        raise InputError(f"a picture of {list(pixels.shape)} has no pixels", place=name)
    options, notes = _completed(options or ImageOptions(), stated or Pixels(), type_)
    layout = options.layout or _layout(type_)
    _validate(options, layout, type_)
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    rows, columns = pixels.shape[:2]
    steps = [f"{name}: {rows} rows x {columns} columns, {picture.mode}"]
    return _prepared(picture, steps, type_, layout, options, notes)


def _prepared(
    picture: Image.Image,
    steps: list[str],
    type_: TensorType,
    layout: str,
    options: ImageOptions,
    notes: list[str],
) -> PreparedImage:
    """The decoded picture as an array of `type_`; steps: what was done so far, in words."""
    channels = _channels(type_, layout)
    order = options.order or ("GRAY" if channels == 1 else "RGB")
    if (1 if order == "GRAY" else 3) != channels:
        raise UsageError(f"the input has {channels} channels, {order} has another number")
    picture = picture.convert("L" if order == "GRAY" else "RGB")
    steps.append(f"channels {order}" + (" (ITU-R 601 luma)" if order == "GRAY" else ""))
    height, width = (_size(type_, layout, axis, own) for axis, own in _own(picture).items())
    picture = _fit(picture, height, width, options.fit, steps)
    pixels = np.asarray(picture).reshape(height, width, channels)
    if order == "BGR":
        pixels = pixels[:, :, ::-1]
    array = _scale(pixels, type_.dtype, options, steps)
    if "C" not in layout:
        array = array[:, :, 0]
    elif layout.endswith("CHW"):
        array = array.transpose(2, 0, 1)
    if layout.startswith("N"):
        array = array[None]
    steps.append(f"layout {layout}, {type_.dtype}{list(array.shape)}")
    steps += notes
    return PreparedImage(np.ascontiguousarray(array), tuple(steps))


def _completed(
    requested: ImageOptions, stated: Pixels, type_: TensorType
) -> tuple[ImageOptions, list[str]]:
    """The options with what the file says where they are silent; what came from where, in words.

    Range, mean and deviation belong together: whoever gives one of them gives all.
    """
    takes_bytes = type_.dtype in BYTES
    own_numbers = requested.low is not None or bool(requested.mean) or bool(requested.std)
    values = {"layout": requested.layout or stated.layout, "order": requested.order or stated.order}
    numbers = Pixels(low=stated.low, high=stated.high, mean=stated.mean, std=stated.std)
    fitting = stated.layout is None or len(stated.layout) == type_.rank
    if requested.layout is None and not fitting:
        values["layout"] = None
    adopted = [
        f"{name} {value}"
        for name, value in values.items()
        if getattr(requested, name) is None and value is not None
    ]
    if stated.is_normalized and not own_numbers and not takes_bytes:
        requested = replace(
            requested, low=stated.low, high=stated.high, mean=stated.mean, std=stated.std
        )
        adopted.append(f"numbers {numbers.to_text().removeprefix('pixels ')}")
    notes = [f"as the file says: {', '.join(adopted)}"] if adopted else []
    against = [
        f"{name} {getattr(requested, name)} was asked for, the file says {getattr(stated, name)}"
        for name in ("layout", "order")
        if None not in (own := getattr(requested, name), stated_value := getattr(stated, name))
        and own != stated_value
    ]
    if own_numbers and stated.is_normalized and not takes_bytes:
        requested_numbers = Pixels(
            low=requested.low, high=requested.high, mean=requested.mean, std=requested.std
        )
        if requested_numbers != numbers:
            against.append(
                f"numbers {requested_numbers.to_text().removeprefix('pixels ')} were asked for, "
                f"the file says {numbers.to_text().removeprefix('pixels ')}"
            )
    notes += [f"CONTRADICTION: {text}" for text in against]
    options = replace(requested, layout=values["layout"], order=values["order"])
    return options, notes + _assumed(options, type_)


def _assumed(options: ImageOptions, type_: TensorType) -> list[str]:
    """What neither the user nor the file nor the input's type says, in words."""
    layout = options.layout or _layout(type_)
    colors = "C" in layout and len(layout) == type_.rank and type_.dims[layout.index("C")] != 1
    open_ = [
        *["order of the channels"] * (options.order is None and colors),
        *["range"] * (options.low is None and type_.dtype not in BYTES),
    ]
    return [f"assumed, as nobody says: {', '.join(open_)}"] if open_ else []


def _layout(type_: TensorType) -> str:
    """The layout that a type suggests. Raises `UsageError` when it suggests none or several."""
    dims = type_.dims
    first = "NCHW" if len(dims) == 4 else "CHW"
    last = "NHWC" if len(dims) == 4 else "HWC"
    if len(dims) == 2:
        return "HW"
    if len(dims) in (3, 4):
        is_first, is_last = dims[-3] in (1, 3), dims[-1] in (1, 3)
        if is_first and not is_last:
            return first
        if is_last and not is_first:
            return last
    raise UsageError(
        f"an input of type {type_} does not say where an image's channels go",
        next_step=f"state the layout, one of {', '.join(LAYOUTS)}, or give an .npy file",
    )


def _validate(options: ImageOptions, layout: str, type_: TensorType) -> None:
    if layout not in LAYOUTS:
        raise UsageError(f"there is no layout {layout!r}", next_step=f"one of {', '.join(LAYOUTS)}")
    if options.order not in (None, *ORDERS):
        raise UsageError(
            f"there is no channel order {options.order!r}", next_step=f"one of {', '.join(ORDERS)}"
        )
    if options.fit not in FITS:
        raise UsageError(f"there is no fit {options.fit!r}", next_step=f"one of {', '.join(FITS)}")
    if len(layout) != type_.rank:
        raise UsageError(f"the layout {layout} does not fit an input of type {type_}")
    if not (type_.dtype.is_float or type_.dtype in BYTES):
        raise UsageError(f"an image cannot be an input of type {type_}")
    if layout.startswith("N") and isinstance(type_.dims[0], int) and type_.dims[0] != 1:
        raise UsageError(
            f"the input takes {type_.dims[0]} images at once",
            next_step="give an .npy file of that batch, or load the model with another batch",
        )
    count = _channels(type_, layout)
    for name in ("mean", "std"):
        numbers = getattr(options, name)
        if numbers and len(numbers) not in (1, count):
            raise UsageError(
                f"{len(numbers)} values of {name} given, the image has {count} channels"
            )
    if any(v == 0 for v in options.std):
        raise UsageError("a std of 0 divides by zero")
    if type_.dtype in BYTES and (options.mean or options.std or options.low is not None):
        raise UsageError("the input takes bytes: range, mean and std do not apply")


def _channels(type_: TensorType, layout: str) -> int:
    """Channels of the input; an open channel dimension counts as 3. Raises `UsageError`."""
    if "C" not in layout:
        return 1
    dim = type_.dims[layout.index("C")]
    if isinstance(dim, int) and dim not in (1, 3):
        raise UsageError(
            f"the input has {dim} channels in layout {layout}; images have 1 or 3",
            next_step="state another layout, or give an .npy file",
        )
    return dim if isinstance(dim, int) else 3


def _open(path: str | os.PathLike[str] | BinaryIO, name: str) -> tuple[Image.Image, list[str]]:
    """The decoded image, upright, and the first steps in words."""
    location = name or str(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(path, formats=("PNG", "JPEG"))
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise InputError(
                    f"the image claims {width} x {height} pixels; at most {MAX_PIXELS} are decoded",
                    place=location,
                    next_step="make it smaller, or give an .npy file",
                )
            if picture.mode not in _READABLE:
                raise InputError(
                    f"the image has pixels of kind {picture.mode!r}, not 8 bits a channel",
                    place=location,
                    next_step="convert it to 8 bits, or give an .npy file",
                )
            picture.load()
            upright = ImageOps.exif_transpose(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"this cannot be read as a PNG or JPEG image ({error})",
            place=location,
            next_step="repair it, or leave it out",
        ) from error
    steps = [f"{location}: {picture.format}, {height} rows x {width} columns, {picture.mode}"]
    if picture.getexif().get(_ORIENTATION, 1) != 1:
        steps.append("turned upright as its EXIF data says")
    if "A" in upright.mode or "transparency" in upright.info:
        ground = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(ground, upright.convert("RGBA"))
        steps.append("transparent parts laid on white")
    return upright, steps


def _own(picture: Image.Image) -> dict[str, int]:
    return {"H": picture.height, "W": picture.width}


def _size(type_: TensorType, layout: str, axis: str, own: int) -> int:
    """The network's size of an axis; the image's own where the type leaves it open."""
    dim = type_.dims[layout.index(axis)]
    return dim if isinstance(dim, int) else own


def _fit(picture: Image.Image, height: int, width: int, fit: str, steps: list[str]) -> Image.Image:
    size = (width, height)
    if picture.size == size:
        steps.append(f"no resize: already {height} x {width}")
        return picture
    method = Image.Resampling.BILINEAR
    words = "resized bilinearly (antialiased)"
    if fit == "crop":
        steps.append(f"middle cropped and {words} to {height} x {width}")
        return ImageOps.fit(picture, size, method)
    if fit == "pad":
        steps.append(f"{words} within {height} x {width}, the rest black")
        return ImageOps.pad(picture, size, method)
    steps.append(f"{words} to {height} x {width}, proportions not kept")
    return picture.resize(size, method)


def _scale(pixels: np.ndarray, dtype: DType, options: ImageOptions, steps: list[str]) -> np.ndarray:
    """Pixels 0..255 in the input's range and type."""
    if dtype is DType.uint8:
        steps.append("values 0..255 as bytes")
        return pixels
    if dtype is DType.int8:
        steps.append("values 0..255 less 128 as bytes")
        return (pixels.astype(np.int16) - 128).astype(np.int8)
    low = 0.0 if options.low is None else options.low
    high = 1.0 if options.high is None else options.high
    values = low + pixels.astype(np.float64) * ((high - low) / 255)
    steps.append(f"values 0..255 scaled to {low:g}..{high:g}")
    if options.mean:
        values = values - np.asarray(options.mean)
        steps.append(f"minus mean {', '.join(f'{v:g}' for v in options.mean)}")
    if options.std:
        values = values / np.asarray(options.std)
        steps.append(f"divided by std {', '.join(f'{v:g}' for v in options.std)}")
    return values.astype(dtype.numpy)
