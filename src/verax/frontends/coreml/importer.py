"""CoreML file or package -> `Model`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.base.storage.reading import companion, plain_bytes
from verax.frontends.common.context import Row
from verax.frontends.common.foreign import ForeignModel, ForeignNode
from verax.frontends.common.importing import Importer
from verax.frontends.common.stated_sizes import Shapes
from verax.frontends.common.tensor_lists import TensorList, expand_lists
from verax.frontends.coreml.blob import Blobs
from verax.frontends.coreml.lists import RULES as LIST_RULES
from verax.frontends.coreml.messages import parse
from verax.frontends.coreml.pipeline import read_model
from verax.frontends.coreml.table import TABLE
from verax.frontends.model import Model

MANIFEST = "Manifest.json"
MAX_MANIFEST = 1 << 20


def load_coreml(
    source: str | os.PathLike[str] | bytes,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> Model:
    """Import a CoreML model from the path of a .mlmodel or .mlpackage, or from a file's bytes.

    An image input is float32 [1, channels, height, width] of pixels 0 to 255 in the channel order
    that the model declares (and the metadata name); its scaling is part of the graph.
    shapes: sizes that the file leaves open. values: inputs to be made constants; an overridable
    threshold of a box suppression is a constant in any case, the file's unless it is given here.
    Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax lacks,
    `UsageError` for an unreadable path, `MissingPackageError` without coremltools.
    """
    location = "bytes" if isinstance(source, bytes) else os.fspath(source)
    folder = None
    if isinstance(source, bytes):
        data = source
    else:
        path = Path(source)
        try:
            if path.is_dir():
                path = _inside(path)
            data, folder = plain_bytes(path, place=location), path.parent
        except OSError as error:
            raise UsageError(
                f"cannot read the file: {error.strerror}",
                place=location,
                next_step="check the path",
            ) from error
    model = parse(data, location)
    del data
    kind, name = model.WhichOneof("Type"), Path(location).stem
    defaults: dict[str, np.ndarray] = {}
    try:
        foreign = read_model(model, name, Blobs(folder), defaults)
    except (UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise ModelError(f"the model is damaged: {error}", place=location) from error
    version = model.specificationVersion
    del model
    all_values = {**defaults, **{k: _as(v, defaults.get(k)) for k, v in (values or {}).items()}}
    importer = CoreMLImporter(foreign, TABLE, shapes, all_values)
    return importer.run(location, f"CoreML {kind}, specification {version}")


class CoreMLImporter(Importer):
    """The importer, which knows which tensors lie in which list."""

    lists: dict[str, TensorList]

    def __init__(
        self,
        foreign: ForeignModel,
        table: Mapping[tuple[str, str], Row],
        shapes: Shapes | None = None,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        super().__init__(foreign, table, shapes, values)
        self.lists = {}

    def can_convert(self, node: ForeignNode) -> bool:
        return (node.domain, node.op_type) in LIST_RULES or super().can_convert(node)

    def expand(self, node: ForeignNode) -> list[ForeignNode] | None:
        nodes = expand_lists(self, node, LIST_RULES)
        return super().expand(node) if nodes is None else nodes

    def _output(self, name: str) -> str:
        if name in self.lists:
            raise UnsupportedError(
                "the output is a list of tensors",
                place=f"output {name!r}",
                next_step="gather the list into one tensor (list_gather) before it goes out",
            )
        return super()._output(name)


def _as(value: np.ndarray, default: np.ndarray | None) -> np.ndarray:
    """A given value, in the type of the default that it replaces."""
    return np.asarray(value) if default is None else np.asarray(value, default.dtype)


def _inside(package: Path) -> Path:
    """The model's file in a package, as its manifest says. It must not leave the package.

    Raises `ModelError` for a folder that is no package.
    """
    manifest = companion(package, MANIFEST, "manifest")
    try:
        content = json.loads(plain_bytes(manifest, "manifest", limit=MAX_MANIFEST))
        named = content["itemInfoEntries"][content["rootModelIdentifier"]]["path"]
        if not isinstance(named, str):
            raise TypeError("a path that is no text")
    except (UsageError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"this folder is no CoreML package: its {MANIFEST} names no model",
            place=str(package),
            next_step="give the folder that ends in .mlpackage",
        ) from error
    for name in (named, f"Data/{named}"):  # the name by itself, and where its links lead
        companion(package, name, "model", place=str(manifest))
    return package / "Data" / named
