"""`--input` and `--image`: arrays and photos from files, named and stated."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.base.option_groups.options import InputOptions, PhotoOptions
from verax.base.storage.npz import npz_headers, read_npy, read_npz
from verax.images import BYTES, ImageOptions, read_image
from verax.ir.pixels import Pixels
from verax.ir.stored import in_type
from verax.ir.types import TensorType

SPARE, SMALL = 16, 1 << 20
"""An array with so many times the elements of its input, and more than a few, is not unpacked."""
PHOTOS = (".png", ".jpg", ".jpeg")
READ = (*PHOTOS, ".npy", ".npz")


@dataclass(frozen=True)
class PreparedInputs:
    """Arrays by input name, and a description of the steps that made each."""

    arrays: dict[str, np.ndarray]
    steps: dict[str, tuple[str, ...]]


def image_options(photo: PhotoOptions) -> ImageOptions:
    """The options' texts parsed: how images become arrays. Raises `UsageError`."""
    layout, order = photo.image_layout, photo.image_order
    ends = _numbers("--image-range", photo.image_range)
    if ends and len(ends) != 2:
        raise UsageError("--image-range takes two numbers", next_step="for instance -1,1")
    low, high = ends or (None, None)
    return ImageOptions(
        layout.upper() if layout else None,
        order.upper() if order else None,
        low,
        high,
        _numbers("--image-mean", photo.image_mean),
        _numbers("--image-std", photo.image_std),
        photo.image_fit,
    )


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in text.split(",")) if text else ()
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is not a list of numbers") from error


def read_inputs(
    files: InputOptions,
    types: Mapping[str, TensorType],
    options: ImageOptions,
    pixels: Mapping[str, Pixels] | None = None,
) -> PreparedInputs:
    """Read the files named on the command line for inputs of the given types.

    pixels: of image inputs, what the model's file states about their pixels.

    Raises `UsageError` for names that the model lacks, `InputError` for unreadable files.
    """
    prepared = PreparedInputs({}, {})
    for text in files.input:
        name, equals, file = text.partition("=")
        if not equals:
            name, file = "", text
        path, key = _split_key(file)
        if not name and path.suffix == ".npz" and not key:
            for key_, array in _npz(path, tuple(types), types).items():
                _add(prepared, key_, array, (f"{path}: array {key_!r}",), types)
            continue
        _add(prepared, *_read_input(name or _only(types), path, key, types, options, pixels), types)
    if files.image is not None:
        name, image = photogenic(types, pixels), Path(files.image)
        _add(prepared, *_read_input(name, image, "", types, options, pixels), types)
    return prepared


def files_of(texts: Sequence[str]) -> tuple[str, ...]:
    """The path in each `--input` text."""
    return tuple(str(_split_key(text.partition("=")[2] or text)[0]) for text in texts)


def _split_key(file: str) -> tuple[Path, str]:
    head, colon, key = file.rpartition(":")
    return (Path(head), key) if colon and head.endswith(".npz") else (Path(file), "")


def _add(
    prepared: PreparedInputs,
    name: str,
    array: np.ndarray,
    steps: tuple[str, ...],
    types: Mapping[str, TensorType],
) -> None:
    _require_input(name, types)
    if name in prepared.arrays:
        raise UsageError(f"the input {name!r} is given twice")
    prepared.arrays[name], prepared.steps[name] = in_type(array, types[name].dtype), steps


def _require_input(name: str, types: Mapping[str, TensorType]) -> None:
    if name not in types:
        near = difflib.get_close_matches(name, types, 1)
        raise UsageError(
            f"the model has no input {name!r}" + (f"; is {near[0]!r} meant?" if near else ""),
            next_step="it takes " + ", ".join(f"{n}: {t}" for n, t in types.items()),
        )


def _only(types: Mapping[str, TensorType]) -> str:
    if len(types) != 1:
        raise UsageError(
            "the model has several inputs",
            next_step="write --input NAME=FILE for each of " + ", ".join(types),
        )
    return next(iter(types))


def photogenic(types: Mapping[str, TensorType], pixels: Mapping[str, Pixels] | None = None) -> str:
    """Name of the only input that is stated to be an image, or else that can take a photo.

    Raises `UsageError` when it is not clear.
    """
    if pixels and len(pixels) == 1:
        return next(iter(pixels))
    able = [n for n, t in types.items() if t.rank >= 3 and (t.dtype.is_float or t.dtype in BYTES)]
    if len(able) == 1:
        return able[0]
    return _only(types)


def _read_input(
    name: str,
    path: Path,
    key: str,
    types: Mapping[str, TensorType],
    options: ImageOptions,
    pixels: Mapping[str, Pixels] | None,
) -> tuple[str, np.ndarray, tuple[str, ...]]:
    _require_input(name, types)
    if not os.path.isfile(path):
        raise _no_file(path)
    suffix = path.suffix.lower()
    if suffix in PHOTOS:
        prepared = read_image(path, types[name], options, (pixels or {}).get(name))
        return name, prepared.array, prepared.steps
    if suffix == ".npy":
        return name, read_npy(path), (str(path),)
    if suffix == ".npz":
        arrays = _npz(path, (key or name,), {key or name: types[name]})
        return name, arrays[key or name], (f"{path}: array {key or name!r}",)
    raise UsageError("inputs are read from .npy, .npz, .png and .jpg files", place=f"{name}={path}")


def _no_file(path: Path) -> UsageError:
    """The error for a path that is no file, with similar names as suggestions."""
    if os.path.isdir(path):
        return UsageError("this is a folder, not a file", place=str(path), next_step="name a file")
    try:
        there = [f.name for f in path.parent.iterdir() if f.suffix.lower() in READ]
    except OSError:
        there = []
    same = [name for name in there if Path(name).suffix == path.suffix]
    near = difflib.get_close_matches(path.name, same or there, 3, 0.4)
    meant = f"did you mean {', '.join(near)}?" if near else "check the path"
    return UsageError("there is no such file", place=str(path), next_step=meant)


def _npz(
    path: Path, keys: tuple[str, ...], types: Mapping[str, TensorType]
) -> dict[str, np.ndarray]:
    """Arrays of an .npz; with `in:` before their names as `--output` of other tools writes them.

    types: what is expected of those of these names; nothing else is unpacked.
    """
    if not os.path.isfile(path):
        raise _no_file(path)
    try:
        headers = npz_headers(path)
        names = {k.removeprefix("in:"): k for k in headers if not k.startswith("out:")}
        missing = [name for name in keys if name not in names]
        if missing:
            raise InputError(
                f"the file has no array {', '.join(missing)}",
                place=str(path),
                next_step=f"it has {', '.join(names) or 'none'}",
            )
        for name in keys:
            _must_fit(name, headers[names[name]][0], types.get(name), path)
        arrays = read_npz(path, [names[name] for name in keys])
    except UsageError as error:
        cause = f"this cannot be read: {error.cause}"
        raise InputError(cause, place=str(path), next_step=error.next_step) from error
    return {name: arrays[names[name]] for name in keys}


def _must_fit(name: str, shape: tuple[int, ...], type_: TensorType | None, path: Path) -> None:
    """Raise `InputError` when an array has many more elements than the model takes: a small archive
    may unpack to any size."""
    if type_ is None or not type_.is_static:
        return
    if prod(shape) > max(SPARE * int(type_.size), SMALL):
        raise InputError(
            f"the array {name!r} has the shape {list(shape)}, the model takes {type_}",
            place=str(path),
            next_step="give an array of that shape",
        )
