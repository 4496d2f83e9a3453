"""Keras: reading functional and sequential models from .h5 (or .hdf5) and .keras files.

`archive` opens the file (`hdf5` reads what is inside), `reader` makes foreign nodes of
configuration and weights, the `table_*` modules say what each layer means. Code in a file (Lambda
layers, custom classes) is never run.
"""

import os
from collections.abc import Mapping

import numpy as np

import verax.ops  # noqa: F401  (registers the operators that the table names)
from verax.frontends.common.importing import Importer
from verax.frontends.common.stated_sizes import Shapes
from verax.frontends.keras.archive import open_archive
from verax.frontends.keras.reader import read_model
from verax.frontends.keras.table import TABLE
from verax.frontends.model import Model

__all__ = ["load_keras"]


def load_keras(
    source: str | os.PathLike[str] | bytes,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> Model:
    """Import a .h5 or .keras model from a path or its bytes.

    Values are named as their layers. shapes, values: as for `load_onnx`. Raises `ModelError` for a
    damaged file, `UnsupportedError` listing what Verax lacks, `UsageError` for an unreadable path
    or shapes that do not fit.
    """
    archive = open_archive(source)
    foreign = read_model(archive)
    name = "bytes" if isinstance(source, bytes) else os.fspath(source)
    return Importer(foreign, TABLE, shapes, values).run(name, f"Keras, version {archive.version}")
