"""Opening Keras files: the configuration as JSON, and the weights of every layer by name.

A .h5 file is HDF5 with the configuration in an attribute; a .keras file is a zip of `config.json`
and an HDF5 file of weights. Nothing is unpacked to disk; arrays are views of the file's bytes.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.base.storage.reading import BytesFile, open_bytes
from verax.frontends.keras.hdf5 import SIGNATURE, File, Object

MAX_RATIO = 200
"""How many times larger than the file its compressed contents may claim to be."""
MAX_CONFIG = 1 << 28
"""Most bytes that the configuration may have."""


@dataclass(frozen=True)
class KerasArchive:
    """An open file. config: of the model. version: of Keras. weights: where they are."""

    config: Mapping[str, Any]
    version: str
    weights: StoredWeights


PROJECTIONS = ("query_dense", "key_dense", "gate_dense", "value_dense", "output_dense")

PARTS = {
    "LSTM": ("cell",),
    "GRU": ("cell",),
    "SimpleRNN": ("cell",),
    "MultiHeadAttention": PROJECTIONS,
    "GroupQueryAttention": PROJECTIONS,
}
"""Parts of a layer that have its weights in a .keras file, in the layer's order; some versions
write the names with an underscore."""


class StoredWeights(Protocol):
    """The weights of a file."""

    def of_layer(
        self, path: tuple[str, ...], stored: tuple[str, ...], kind: str
    ) -> list[np.ndarray]:
        """Weights in the layer's own order. path: names from the outermost model to the layer.
        stored: the name by which each of them may be stored instead (see `stored_names`), or
        `.NAME` for a part of the layer before. kind: the layer's class."""
        ...


@dataclass(frozen=True)
class H5Weights:
    """Of a .h5 file: a group per layer of the outermost model, whose attribute lists the weights of
    the layer, or of all layers of a nested model."""

    group: Object | None

    def of_layer(
        self, path: tuple[str, ...], stored: tuple[str, ...], kind: str
    ) -> list[np.ndarray]:
        group = self.group and self.group.child(path[0])
        if group is None:
            return []
        names = texts(group.attributes.get("weight_names", ()))
        for name, step in zip(path[1:], stored[1:]):
            inside = [n for n in names if name in n.split("/")[:-1]]
            if not inside and step.startswith("."):  # Keras 2 names only the layer around it
                inside = [n for n in names if not n.split("/")[-1].startswith(AROUND)]
            names = inside or (names if name != path[-1] else [])
        return [_array(group.child(n), f"weight {n!r}") for n in names]


AROUND = ("vector_u", "sn_u")
"""Weights of a layer around another that inference has no use for."""


@dataclass(frozen=True)
class KerasWeights:
    """Of a .keras file: a group `layers/NAME/vars` per layer, its weights numbered. Newer files
    give the layer's own name as an attribute; NAME is made of its class."""

    group: Object
    named: dict[int, dict[str, Object]] = field(default_factory=dict)

    def of_layer(
        self, path: tuple[str, ...], stored: tuple[str, ...], kind: str
    ) -> list[np.ndarray]:
        group: Object | None = self.group
        for name, step in zip(path, stored, strict=True):
            if step.startswith("."):
                group = group and group.child(step[1:])
                continue
            layers = group and group.child("layers")
            group = layers and self._layer(layers, name, step)
        if group is None:
            return []
        groups = [
            group.child(f"{group_name}/vars") or group.child(f"_{group_name}/vars")
            for group_name in PARTS.get(kind, ())
        ]
        location = f"weights of {'/'.join(path)!r}"
        return [
            _array(variables.child(f"{i}"), location)
            for variables in (group.child("vars"), *groups)
            if variables is not None
            for i in range(len(variables.members))
        ]

    def _layer(self, layers: Object, name: str, stored: str) -> Object | None:
        if layers.at not in self.named:
            self.named[layers.at] = {_own_name(group): group for group in layers.members.values()}
        if name in self.named[layers.at]:
            return self.named[layers.at][name]
        layer = layers.child(stored)
        return (
            None if layer is None or _own_name(layer) else layer
        )  # a named one is another layer's


def _own_name(group: Object) -> str:
    """The layer's own name, where the file gives it."""
    variables = group.child("vars")
    return "".join(texts(variables.attributes.get("name", ()))[:1]) if variables else ""


def _array(stored: Object | None, location: str) -> np.ndarray:
    if stored is None:
        raise ModelError("the file stores no array here", place=location)
    return stored.array()


def texts(attribute: Any) -> list[str]:
    """The strings of an attribute: an array of fixed-length ones, or a list."""
    if isinstance(attribute, np.ndarray):
        attribute = attribute.ravel().tolist()
    return [v.decode() for v in attribute if isinstance(v, bytes)]


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


def open_archive(source: str | os.PathLike[str] | bytes) -> KerasArchive:
    """Open a .h5 or .keras file; which one it is, its first bytes say."""
    with damage_told():
        data = open_bytes(source)
        if data[:8] == SIGNATURE:
            return _open_h5(data)
        if data[:2] == b"PK":
            return _open_zip(data)
    raise ModelError(
        "the file is neither HDF5 nor a .keras archive",
        next_step="save the model again with model.save()",
    )


def _open_h5(data: memoryview) -> KerasArchive:
    root = File(data).root
    config = texts(root.attributes.get("model_config", ()))
    version = texts(root.attributes.get("keras_version", ())) or ["2"]
    if not config:
        raise UnsupportedError(
            "the file holds weights and no model",
            next_step="save the whole model with model.save(), not its weights",
        )
    return KerasArchive(_json(config[0]), version[0], H5Weights(root.child("model_weights")))


def _open_zip(data: memoryview) -> KerasArchive:
    with zipfile.ZipFile(BytesFile(data)) as archive:
        config = _json(bytes(_member(archive, "config.json", data)))
        metadata = _json(bytes(_member(archive, "metadata.json", data)))
        weights = File(_member(archive, "model.weights.h5", data))
    return KerasArchive(config, str(metadata.get("keras_version", "3")), KerasWeights(weights.root))


def _member(archive: zipfile.ZipFile, name: str, data: memoryview) -> memoryview:
    """A member of a zip: a view of the file when it is stored as it is, which is what Keras does;
    else no larger than is plausible."""
    if name not in archive.namelist():
        raise ModelError(f"the archive holds no {name}")
    info = archive.getinfo(name)
    if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
        lengths = struct.unpack_from("<HH", data, info.header_offset + 26)
        start = info.header_offset + 30 + sum(lengths)
        content = data[start : start + info.file_size]
        if zlib.crc32(content) != info.CRC:
            raise ModelError(f"{name} is damaged: its checksum is wrong")
        return content
    if info.file_size > MAX_RATIO * len(data):
        raise ModelError(
            f"{name} claims to have {info.file_size} bytes, the archive has {len(data)}"
        )
    with archive.open(name) as stream:
        return memoryview(stream.read(info.file_size))


def _json(text: str | bytes) -> Mapping[str, Any]:
    if len(text) > MAX_CONFIG:
        raise ModelError("the configuration is too large")
    config = json.loads(text)
    if not isinstance(config, dict):
        raise ModelError("the configuration is no JSON object")
    return config


CHOKED = (
    ArithmeticError, AttributeError, EOFError, IndexError, KeyError, MemoryError,
    NotImplementedError, OSError, RecursionError, RuntimeError, TypeError, ValueError,
    struct.error, zipfile.BadZipFile,
)  # fmt: skip
"""What zipfile, json and struct raise on damaged files, and our own reading of their contents."""


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
