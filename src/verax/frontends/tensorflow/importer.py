"""TensorFlow files -> `Model`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.base.reading import open_bytes
from verax.frontends.common.context import Row
from verax.frontends.common.foreign import ForeignModel, ForeignNode
from verax.frontends.common.importing import Importer, Shapes
from verax.frontends.model import Model
from verax.frontends.tensorflow.lists import List, is_of_lists, of_lists
from verax.frontends.tensorflow.reader import read_graph, read_saved_model
from verax.frontends.tensorflow.table import TABLE

ADVICE: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("TensorList", "TensorArray", "Enter", "LoopCond", "NextIteration"),
        "this loop cannot be followed: export the network unrolled, or the part before the loop",
    ),
    (
        ("Switch", "Merge", "RefSwitch"),
        "this branch cannot be followed: freeze the network for inference",
    ),
    (
        ("HashTable", "MutableHashTable", "LookupTable", "InitializeTable", "String", "Regex"),
        "text and tables are not computed: export the network behind them, with numbers as input",
    ),
    (
        ("Decode", "ParseExample", "ReadFile", "ParseSingleExample"),
        "files are not decoded: export the network behind it, with the decoded image as input",
    ),
    (
        ("Random", "StatelessRandom", "StatelessTruncated", "TruncatedNormal", "Multinomial"),
        "random numbers are not drawn: freeze the network for inference",
    ),
)
"""Beginnings of operators' names, and what to do when a network needs them."""


def load_tensorflow(
    source: str | os.PathLike[str] | bytes,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    signature: str | None = None,
) -> Model:
    """Import a frozen graph (a `.pb` file or its bytes) or a SavedModel folder.

    The `saved_model.pb` of a folder stands for the folder. shapes, values: as for every format.
    signature: of a SavedModel, if not the default one.
    Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax lacks,
    `UsageError` when the path cannot be read or there is no such signature.
    """
    name = "bytes" if isinstance(source, bytes) else os.fspath(source)
    kind, folder = "TensorFlow frozen graph", None
    if not isinstance(source, bytes):
        path = Path(source)
        folder = path.parent if path.name == "saved_model.pb" else path
    if folder is not None and folder.is_dir():
        foreign, kind = read_saved_model(folder, signature), "TensorFlow SavedModel"
    elif signature is not None:
        raise UsageError("a frozen graph has no signatures", place=name)
    else:
        foreign = read_graph(open_bytes(source), Path(name).name)
    return TensorFlowImporter(foreign, TABLE, shapes, values).run(name, kind)


class TensorFlowImporter(Importer):
    """The importer, which knows what to do about operators that no table row can convert, and
    which tensors lie in which list."""

    lists: dict[str, List]

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
        return is_of_lists(node) or super().can_convert(node)

    def expand(self, node: ForeignNode) -> list[ForeignNode] | None:
        nodes = of_lists(self, node)
        return super().expand(node) if nodes is None else nodes

    def refuse_unsupported(self, nodes: Sequence[ForeignNode], place: str) -> None:
        missing = {node.op_type for node in nodes if not self.can_convert(node)}
        try:
            super().refuse_unsupported(nodes, place)
        except UnsupportedError as error:
            advice = [text for kinds, text in ADVICE if any(m.startswith(kinds) for m in missing)]
            step = "; ".join(advice) or error.next_step
            raise UnsupportedError(error.cause, place=error.place, next_step=step) from error
