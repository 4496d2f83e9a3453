"""TensorFlow files -> `Model`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verax.base.errors import UsageError
from verax.frontends.importing import Importer, Shapes
from verax.frontends.model import Model
from verax.frontends.tensorflow.reader import read_graph, read_saved_model
from verax.frontends.tensorflow.table import TABLE


def load_tensorflow(
    source: str | os.PathLike[str] | bytes,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> Model:
    """Import a frozen graph (a `.pb` file or its bytes) or a SavedModel folder.

    The `saved_model.pb` of a folder stands for the folder. shapes, values: as for every format.
    Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax lacks,
    `UsageError` when the path cannot be read.
    """
    if isinstance(source, bytes):
        return Importer(read_graph(source, "bytes"), TABLE, shapes, values).run(
            "bytes", "TensorFlow graph"
        )
    path = Path(source)
    folder = path.parent if path.name == "saved_model.pb" else path
    if folder.is_dir():
        foreign, kind = read_saved_model(folder), "TensorFlow SavedModel"
    else:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"the file cannot be read ({error.strerror})", place=str(path)
            ) from error
        foreign, kind = read_graph(data, path.name), "TensorFlow frozen graph"
    return Importer(foreign, TABLE, shapes, values).run(os.fspath(source), kind)
