"""CoreML file or package -> `Model`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.frontends.coreml.messages import parse, refuse_unknown
from verax.frontends.coreml.network import KINDS, read_network
from verax.frontends.coreml.table import TABLE
from verax.frontends.foreign import ForeignNode
from verax.frontends.importing import Importer, Shapes
from verax.frontends.ledger import Attributes
from verax.frontends.model import Model


def load_coreml(
    source: str | os.PathLike[str] | bytes,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> Model:
    """Import a CoreML model from the path of a .mlmodel, or from its bytes.

    An image input is float32 [1, channels, height, width] of pixels 0 to 255 in the channel order
    that the model declares (and the metadata name); its scaling is part of the graph.
    shapes: sizes that the file leaves open. values: inputs to be made constants.
    Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax lacks,
    `UsageError` for an unreadable path, `MissingPackageError` without coremltools.
    """
    place = "bytes" if isinstance(source, bytes) else os.fspath(source)
    if not isinstance(source, bytes):
        try:
            source = Path(source).read_bytes()
        except OSError as error:
            raise UsageError(
                f"cannot read the file: {error.strerror}", place=place, next_step="check the path"
            ) from error
    model = parse(source, place)
    kind, name = model.WhichOneof("Type"), Path(place).stem
    refuse_unknown(model, place)
    if kind not in KINDS:
        raise UnsupportedError(
            f"the model is a {kind}", place=place, next_step=f"supported are {', '.join(KINDS)}"
        )
    try:
        foreign = read_network(model, name)
    except (UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise ModelError(f"the model is damaged: {error}", place=place) from error
    version = model.specificationVersion
    return _CoremlImporter(foreign, TABLE, shapes, values).run(
        place, f"CoreML {kind}, specification {version}"
    )


class _CoremlImporter(Importer):
    def attributes(self, node: ForeignNode) -> Attributes:
        return super().attributes(node)
