"""TensorFlow files -> `Model`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.base.storage.reading import open_bytes
from verax.frontends.common.context import Row
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.common.importing import Importer
from verax.frontends.common.stated_sizes import Shapes
from verax.frontends.common.tensor_lists import TensorList, expand_lists
from verax.frontends.model import Model
from verax.frontends.tensorflow import complex_parts
from verax.frontends.tensorflow.lists import RULES as LIST_RULES
from verax.frontends.tensorflow.reader import read_graph, read_saved_model
from verax.frontends.tensorflow.table import TABLE
from verax.ops.movement.reshaping import Unsqueeze
from verax.ops.movement.slicing import Concat

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
        ("FFTND", "IFFTND", "RFFTND", "IRFFTND"),
        "export the transform along one, two or three axes (tf.signal.fft, rfft2d, ...)",
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
    """The importer, which knows what to do about operators that no table row can convert, which
    tensors lie in which list, and which are complex: real and imaginary part of each."""

    lists: dict[str, TensorList]
    components: dict[str, complex_parts.Parts]

    def __init__(
        self,
        foreign: ForeignModel,
        table: Mapping[tuple[str, str], Row],
        shapes: Shapes | None = None,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        super().__init__(foreign, table, shapes, values)
        self.lists, self.components = {}, {}

    def can_convert(self, node: ForeignNode) -> bool:
        if (complex_parts.DOMAIN, node.op_type) in self.table and not node.domain:
            return True  # on complex numbers at least
        return (node.domain, node.op_type) in LIST_RULES or super().can_convert(node)

    def expand(self, node: ForeignNode) -> list[ForeignNode] | None:
        nodes = complex_parts.in_parts(self, node)
        if nodes is None:
            complex_parts.must_not_be_real(self, node)
            nodes = expand_lists(self, node, LIST_RULES)
        return super().expand(node) if nodes is None else nodes

    def _constant(self, name: str, array: np.ndarray) -> None:
        if array.dtype.kind != "c":
            super()._constant(name, array)
            return
        self.components[name] = complex_parts.named(self, name)
        for component, numbers in zip(self.components[name], (array.real, array.imag)):
            super()._constant(component, np.ascontiguousarray(numbers))

    def _input_dims(self, value: ForeignValue) -> tuple[int | str | None, ...]:
        if value.kind in complex_parts.REAL:
            raise UnsupportedError(
                f"the input is of complex numbers ({value.kind})",
                place=f"input {value.name!r}",
                next_step="export the network with the real and the imaginary part as two inputs "
                "(tf.complex makes one of them)",
            )
        return super()._input_dims(value)

    def _output(self, name: str) -> str:
        """A complex output is pairs: a last axis of two."""
        if name not in self.components:
            return super()._output(name)
        builder = self.builder
        axis = builder.constant(np.array([-1]), self.fresh(f"{name}/axis"))
        ends = [
            builder.add(
                Unsqueeze(), [self.names[component], axis], [self.fresh(f"{component}/pair")]
            )
            for component in self.components[name]
        ]
        return builder.add(Concat(axis=-1), ends, [name])

    def refuse_unsupported(self, nodes: Sequence[ForeignNode], location: str) -> None:
        missing = {node.op_type for node in nodes if not self.can_convert(node)}
        try:
            super().refuse_unsupported(nodes, location)
        except UnsupportedError as error:
            advice = [text for kinds, text in ADVICE if any(m.startswith(kinds) for m in missing)]
            step = "; ".join(advice) or error.next_step
            raise UnsupportedError(error.cause, place=error.place, next_step=step) from error
