"""Samples, as inputs of a network, one at a time: images of a folder or of Parquet files, arrays.

Folders and Parquet files are read while the network runs, so that they need not fit into memory.
Arrays of bytes that have the form of pictures are prepared as image files are; others are taken as
they are. What a sample is before it is prepared (`Samples.raw`) can be sent to another process,
which prepares it as this one would.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.base.storage.npz import read_npz
from verax.evaluation.parquet import ParquetTable, parquet_files
from verax.images import ImageOptions, prepare_pixels, read_image
from verax.ir.pixels import Pixels
from verax.ir.types import TensorType
from verax.records.environment import array_hash, file_hash

SUFFIXES = (".png", ".jpg", ".jpeg")
IMAGE_NAMES = ("images", "image", "x", "x_test", "X", "X_test", "data", "inputs", "input")
LABEL_NAMES = ("labels", "label", "y", "y_test", "targets", "target", "classes")


@dataclass(frozen=True)
class Samples:
    """Samples by name, each an input with a batch axis of 1 (if the network has one).

    raw: what sample i is before it is prepared: the path of an image file, the bytes of one, or an
    array; kind: which of them ("file", "encoded", "array", or "picture" for an array of pixels).
    labels: as the data state them, None when they do not. digest: SHA-256 of names and bytes.
    steps: what was assumed, in words.
    """

    names: tuple[str, ...]
    raw: Callable[[int], Any]
    kind: str
    input_format: InputFormat
    labels: Any
    digest: str
    location: str
    steps: tuple[str, ...] = ()

    def load(self, i: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """The array of sample i, and how it came about, in words. Raises `InputError`."""
        try:
            return prepared(self.kind, self.raw(i), self.input_format, self.names[i])
        except InputError as error:
            if error.place != self.names[i]:
                raise
            raise InputError(
                error.cause, place=self.location_of(i), next_step=error.next_step
            ) from error

    def location_of(self, i: int) -> str:
        """Where sample i is, for errors: a name inside of a file, with that file."""
        return self.names[i] if self.kind == "file" else f"{self.names[i]} of {self.location}"


@dataclass(frozen=True)
class InputFormat:
    """What samples must become: the input's name, its type for one sample (a batch axis of 1), and
    how pictures are made into it. batched: whether its first axis is the batch."""

    name: str
    type: TensorType
    batched: bool
    options: ImageOptions = field(default_factory=ImageOptions)
    pixels: Pixels | None = None


def prepared(
    kind: str, raw: Any, input_format: InputFormat, name: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """A sample as an input, and how it came about, in words.

    kind, raw: as `Samples` has them. Raises `InputError`.
    """
    form = input_format
    if kind == "array":
        array = raw[np.newaxis] if form.batched else raw
        return np.ascontiguousarray(array, form.type.dtype.numpy), ()
    if kind == "picture":
        image = prepare_pixels(raw, form.type, form.options, form.pixels, name)
    elif kind == "encoded":
        image = read_image(io.BytesIO(raw), form.type, form.options, form.pixels, name)
    else:
        image = read_image(raw, form.type, form.options, form.pixels)
    return image.array, image.steps


def read_samples(
    data: Any, input_format: InputFormat, arrays: tuple[str, str] | None = None
) -> Samples:
    """The samples of a folder of images or of Parquet files, a Parquet file, an .npz, an array
    [n, ...], or arrays by name.

    arrays: names of the images and of the labels in an .npz or of columns; guessed when not given.
    Raises `UsageError`, `InputError`.
    """
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        if files := parquet_files(path):
            return _of_parquet(path, files, input_format, arrays)
        if path.is_dir():
            if arrays:
                raise UsageError("names of arrays belong to an .npz file", place=str(path))
            return _of_folder(path, input_format)
        if not path.exists():
            raise UsageError("there is no such folder or file", place=str(path))
        if path.suffix.lower() == ".npz":
            return _of_arrays(read_npz(path), input_format, arrays, str(path))
        raise UsageError(
            "samples are read from a folder of images, a Parquet file or an .npz file",
            place=str(path),
        )
    if isinstance(data, Mapping):
        return _of_arrays({k: np.asarray(v) for k, v in data.items()}, input_format, arrays, "data")
    return _of_array(np.asarray(data), None, input_format, "data", ())


def _of_folder(folder: Path, input_format: InputFormat) -> Samples:
    files = sorted(
        (f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file()),
        key=lambda f: f.relative_to(folder).as_posix(),
    )
    if not files:
        raise InputError(
            "the folder holds no image",
            place=str(folder),
            next_step=f"give a folder with files that end in {', '.join(SUFFIXES)}",
        )
    names = tuple(f.relative_to(folder).as_posix() for f in files)
    digest = hashlib.sha256()
    for name, file in zip(names, files):
        try:
            digest.update(f"{name}\0{file_hash(file)}\0".encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise InputError(f"cannot read the image: {error.strerror}", place=str(file)) from error

    labels = (
        [name.partition("/")[0] for name in names] if all("/" in name for name in names) else None
    )
    return Samples(
        names, files.__getitem__, "file", input_format, labels, digest.hexdigest(), str(folder)
    )


def _of_parquet(
    path: Path, files: Sequence[Path], input_format: InputFormat, columns: tuple[str, str] | None
) -> Samples:
    table = ParquetTable(files, columns)
    return Samples(
        tuple(f"row {i}" for i in range(len(table))),
        table.image,
        "encoded",
        input_format,
        table.labels,
        table.digest,
        str(path),
        table.steps,
    )


def _of_arrays(
    stored: Mapping[str, np.ndarray],
    input_format: InputFormat,
    arrays: tuple[str, str] | None,
    location: str,
) -> Samples:
    if arrays is not None:
        missing = [name for name in arrays if name and name not in stored]
        if missing:
            raise InputError(
                f"there is no array {missing[0]!r}",
                place=location,
                next_step=f"there is {', '.join(stored) or 'none'}",
            )
        images, labels = arrays
        steps: tuple[str, ...] = ()
    else:
        images, labels = _guessed(stored, input_format, location)
        steps = (
            f"assumed, as nobody says: {images!r} are the samples"
            + (f", {labels!r} the labels" if labels else ""),
        )
    return _of_array(stored[images], stored.get(labels), input_format, location, steps)


def _guessed(
    stored: Mapping[str, np.ndarray], input_format: InputFormat, location: str
) -> tuple[str, str]:
    """Names of the array of samples and of that of labels ("" for none). Raises `InputError`."""
    images = [k for k, a in stored.items() if a.ndim >= 2 and a.shape[1:] != (1,)]
    images = _best(images, (input_format.name, *IMAGE_NAMES))
    if len(images) != 1:
        listed = ", ".join(f"{k}: {a.dtype}{list(a.shape)}" for k, a in stored.items())
        count = "none" if not images else f"{len(images)}"
        raise InputError(
            f"{count} of the arrays could be the samples ({listed or 'there are no arrays'})",
            place=location,
            next_step="name them: --arrays IMAGES,LABELS",
        )
    columns = [k for k, a in stored.items() if k != images[0] and a.ndim and a.size == len(a)]
    labels = _best(columns, LABEL_NAMES)
    if len(labels) > 1:
        raise InputError(
            f"{', '.join(labels)} could all be the labels",
            place=location,
            next_step="name them: --arrays IMAGES,LABELS",
        )
    return images[0], labels[0] if labels else ""


def _best(names: list[str], usual: tuple[str, ...]) -> list[str]:
    """The names that are usual, if any; else all."""
    return [name for name in usual if name in names][:1] or names


def _of_array(
    images: np.ndarray,
    labels: np.ndarray | None,
    input_format: InputFormat,
    location: str,
    steps: tuple[str, ...],
) -> Samples:
    if images.ndim < 2 or len(images) == 0:
        raise InputError(
            f"the samples are {images.dtype}{list(images.shape)}: there is no axis of samples "
            "with another one behind it"
            if images.ndim < 2
            else "there are no samples",
            place=location,
        )
    names = tuple(f"sample {i}" for i in range(len(images)))
    digest, form = array_hash(images), images.shape[1:]
    dims = input_format.type.dims[1:] if input_format.batched else input_format.type.dims
    fits = len(dims) == len(form) and all(
        not isinstance(d, int) or d == n for d, n in zip(dims, form)
    )
    dtype = input_format.type.dtype.numpy
    if fits and (images.dtype == dtype or (images.dtype.kind == "f" and dtype.kind == "f")):
        if input_format.options != ImageOptions():
            raise UsageError(
                "the arrays are inputs of the network already: options of images do not apply",
                place=location,
                next_step="leave --image-... out, or give bytes 0 to 255",
            )
        conversion = (
            "as they are" if images.dtype == dtype else f"rounded to {input_format.type.dtype}"
        )
        steps = (f"arrays {images.dtype}{list(images.shape)} are taken {conversion}", *steps)
        return Samples(
            names, images.__getitem__, "array", input_format, labels, digest, location, steps
        )
    if images.dtype != np.uint8:
        raise InputError(
            f"the samples are {images.dtype}{list(form)} each, the input is {input_format.type}",
            place=location,
            next_step="give arrays of the input's own form, or pictures as bytes [n, rows, columns]"
            " or [n, rows, columns, 3]",
        )
    last = _channels_last(images)

    return Samples(
        names, last.__getitem__, "picture", input_format, labels, digest, location, steps
    )


def _channels_last(images: np.ndarray) -> np.ndarray:
    """Pictures [n, rows, columns] or [n, rows, columns, 3], from either order of axes."""
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] not in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    return images
