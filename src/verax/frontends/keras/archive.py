"""Opening Keras files: the configuration as JSON, and the weights of every layer by name.

A .h5 file is HDF5 with the configuration in an attribute; a .keras file is a zip of `config.json`
and an HDF5 file of weights. Nothing is unpacked to disk, links that leave the file are refused, and
no array may be larger than what the file could hold.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.base.optional import optional

MAX_RATIO = 200
"""How many times larger than the file its compressed contents may claim to be."""
MAX_ATTRIBUTE = 1 << 28
"""Most bytes that the configuration may have."""
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"

Group = Any
"""An open h5py group."""


@dataclass(frozen=True)
class Archive:
    """An open file. config: of the model. version: of Keras. weights: where they are."""

    config: Mapping[str, Any]
    version: str
    weights: Weights


class Weights:
    """The weights below one group of a file; `size` is that of the file in bytes."""

    def __init__(self, group: Group, size: int, scope: str = "") -> None:
        self.group, self.size, self.scope = group, size, scope

    def of_layer(self, path: tuple[str, ...], classes: tuple[str, ...]) -> list[np.ndarray]:
        """Weights in the layer's own order. path: names from the outermost model to the layer.
        classes: the name by which each of them may be stored instead (see `stored_names`)."""
        raise NotImplementedError

    def read(self, dataset: Any, place: str) -> np.ndarray:
        """The array of a dataset, checked before it is read."""
        h5py = optional("h5py", "to read Keras files")
        if not isinstance(dataset, h5py.Dataset):
            raise ModelError("the file stores no array here", place=place)
        if dataset.external or dataset.is_virtual:
            raise UnsupportedError("the array lies outside of the file", place=place)
        if dataset.dtype.kind not in "fiu":
            raise UnsupportedError(f"weights of {dataset.dtype} are not supported", place=place)
        if math.prod(dataset.shape) * dataset.dtype.itemsize > MAX_RATIO * self.size:
            raise ModelError(f"the shape {dataset.shape} does not fit the file", place=place)
        return np.asarray(dataset[()])

    def child(self, group: Group, name: str) -> Any:
        """A member of a group that lies in the same file; None when there is none."""
        h5py = optional("h5py", "to read Keras files")
        for part in name.split("/"):
            if not isinstance(group, h5py.Group) or part not in group:
                return None
            if not isinstance(group.get(part, getlink=True), h5py.HardLink):
                raise UnsupportedError("links to other places are not followed", place=name)
            group = group[part]
        return group


class H5Weights(Weights):
    """Of a .h5 file: a group per layer of the outermost model, whose attribute lists the weights of
    the layer, or of all layers of a nested model."""

    def of_layer(self, path: tuple[str, ...], classes: tuple[str, ...]) -> list[np.ndarray]:
        group = self.child(self.group, path[0])
        if group is None:
            return []
        names = [_text(n) for n in np.ravel(group.attrs.get("weight_names", []))]
        if len(path) > 1:
            names = [n for n in names if n.split("/")[-2:-1] == [path[-1]]]
        return [self.read(self.child(group, n), f"weight {n!r}") for n in names]


class KerasWeights(Weights):
    """Of a .keras file: a group `layers/NAME/vars` per layer, its weights numbered. Newer files
    give the layer's own name as an attribute; NAME is made of its class."""

    def of_layer(self, path: tuple[str, ...], classes: tuple[str, ...]) -> list[np.ndarray]:
        group: Any = self.group
        for name, stored in zip(path, classes, strict=True):
            layers = self.child(group, "layers")
            group = None if layers is None else self._layer(layers, name, stored)
        variables = None if group is None else self.child(group, "vars")
        if variables is None:
            return []
        place = f"weights of {'/'.join(path)!r}"
        return [self.read(self.child(variables, f"{i}"), place) for i in range(len(variables))]

    def _layer(self, layers: Group, name: str, stored: str) -> Any:
        for key in layers:
            variables = self.child(layers, f"{key}/vars")
            if variables is not None and _text(variables.attrs.get("name", "")) == name:
                return layers[key]
        group = self.child(layers, stored)
        if group is not None and "name" in group.get("vars", group).attrs:
            return None  # it is another layer's
        return group


def stored_names(classes: list[str]) -> list[str]:
    """Names under which a .keras file stores layers: the class in snake case, numbered."""
    seen: Counter[str] = Counter()
    names = []
    for cls in classes:
        snake = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", cls))
        snake = re.sub(r"([a-z])([A-Z])", r"\1_\2", snake).lower()
        names.append(f"{snake}_{seen[snake]}" if seen[snake] else snake)
        seen[snake] += 1
    return names


def open_archive(source: str | os.PathLike[str] | bytes) -> Archive:
    """Open a .h5 or .keras file; which one it is, its first bytes say."""
    try:
        if isinstance(source, bytes):
            size, start = len(source), source[:8]
        else:
            size = os.path.getsize(source)
            with Path(source).open("rb") as stream:
                start = stream.read(8)
    except OSError as error:
        raise UsageError(f"cannot read the file: {error.strerror}", place=str(source)) from error
    content = io.BytesIO(source) if isinstance(source, bytes) else os.fspath(source)
    with damage_told():
        if start == HDF5_SIGNATURE:
            return _open_h5(content, size)
        if start[:2] == b"PK":
            return _open_zip(content, size)
    raise ModelError(
        "the file is neither HDF5 nor a .keras archive",
        next_step="save the model again with model.save()",
    )


def _open_h5(content: Any, size: int) -> Archive:
    file = optional("h5py", "to read Keras files").File(content, "r")
    text, version = file.attrs.get("model_config"), _text(file.attrs.get("keras_version", "2"))
    if text is None:
        raise UnsupportedError(
            "the file holds weights and no model",
            next_step="save the whole model with model.save(), not its weights",
        )
    weights = H5Weights(file, size)
    group = weights.child(file, "model_weights")
    return Archive(_json(text), version, H5Weights({} if group is None else group, size))


def _open_zip(content: Any, size: int) -> Archive:
    with zipfile.ZipFile(content) as archive:
        config = _json(_member(archive, "config.json", size))
        metadata = _json(_member(archive, "metadata.json", size))
        stored = _member(archive, "model.weights.h5", size)
    version = str(metadata.get("keras_version", "3"))
    weights = optional("h5py", "to read Keras files").File(io.BytesIO(stored), "r")
    return Archive(config, version, KerasWeights(weights, len(stored)))


def _member(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    """A member of a zip, no larger than it says and than is plausible."""
    if name not in archive.namelist():
        raise ModelError(f"the archive holds no {name}")
    claimed = archive.getinfo(name).file_size
    if claimed > MAX_RATIO * size:
        raise ModelError(f"{name} claims to have {claimed} bytes, the archive has {size}")
    with archive.open(name) as stream:
        return stream.read(claimed)


def _json(text: Any) -> Mapping[str, Any]:
    if len(text) > MAX_ATTRIBUTE:
        raise ModelError("the configuration is too large")
    found = json.loads(_text(text))
    if not isinstance(found, dict):
        raise ModelError("the configuration is no JSON object")
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


CHOKED = (
    ArithmeticError, AttributeError, EOFError, IndexError, KeyError, MemoryError,
    NotImplementedError, OSError, RecursionError, RuntimeError, TypeError, ValueError,
    zipfile.BadZipFile,
)  # fmt: skip
"""What h5py, zipfile and json raise on damaged files, and our own reading of their contents."""


@contextmanager
def damage_told() -> Iterator[None]:
    """Whatever the libraries choke on in the block becomes a `ModelError`."""
    try:
        yield
    except CHOKED as error:
        text = str(error).partition("\n")[0][:200]
        raise ModelError(
            f"the file is damaged ({type(error).__name__}: {text})",
            next_step="copy or save the file again",
        ) from error
