"""TensorFlow Lite: reading .tflite models, floating-point and quantized.

`flatbuffer` reads the container, `schema` names its fields, `reader` makes foreign nodes, the
`table_*` modules say what each operator means.
"""

import os
from collections.abc import Mapping

import numpy as np

import verax.ops  # noqa: F401  (registers the operators that the table names)
from verax.base.storage.reading import open_bytes
from verax.frontends.common.importing import Importer
from verax.frontends.common.stated_sizes import Shapes
from verax.frontends.model import Model
from verax.frontends.tflite.reader import read_model
from verax.frontends.tflite.table import TABLE

__all__ = ["load_tflite"]


def load_tflite(
    source: str | os.PathLike[str] | bytes,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> Model:
    """Import a .tflite model from a path or its bytes.

    Values are named as the file's tensors; a name that is missing or used twice gets the tensor's
    index. Layout stays that of the file (channels last). shapes, values: as for `load_onnx`.
    Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax lacks,
    `UsageError` for an unreadable path or shapes that do not fit.
    """
    foreign = read_model(open_bytes(source))
    name = "bytes" if isinstance(source, bytes) else os.fspath(source)
    return Importer(foreign, TABLE, shapes, values).run(name, "TFLite, schema 3")
