"""ONNX model -> `Model`. Operators that the table lacks but that ONNX itself defines as functions
are expanded, and so are the file's own functions.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from verax.base.errors import UnsupportedError
from verax.frontends.common.control import Control
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.common.importing import Importer, is_fresh
from verax.frontends.common.stated_sizes import Shapes
from verax.frontends.model import Model
from verax.frontends.onnx.control import control_of, is_control
from verax.frontends.onnx.functions import body_of, check_size, has_body, inline
from verax.frontends.onnx.reader import FunctionBody, parse, read_model
from verax.frontends.onnx.records import NOTE, inferred_otherwise, note
from verax.frontends.onnx.sequences import (
    SequenceExpansion,
    expand_sequences,
    item_name,
    note_outputs,
    uses_sequences,
)
from verax.frontends.onnx.state import with_state
from verax.frontends.onnx.table import TABLE
from verax.frontends.onnx.training import ADVICE, RANDOM, at_inference
from verax.ir.types import TensorType
from verax.onnx_format.dtypes import newest_opset


def load_onnx(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    evaluation: bool = False,
) -> Model:
    """Import an ONNX model from a path, its bytes, or a `ModelProto`.

    shapes: sizes for what the file leaves open: {"x": (1, 3, 224, None)} or {"batch": 2} by the
    name of a dimension. values: inputs to be made constants (a shape given as an input, say).
    evaluation: read what was exported in training mode as it is at inference.
    State that `verax convert` wrote is state again (see `state`).
    Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax lacks,
    `UsageError` for an unreadable path or shapes that do not fit.
    """
    is_path = isinstance(source, str | os.PathLike)
    path = Path(os.fspath(source)) if is_path else None  # type: ignore[arg-type]
    foreign, functions = read_model(parse(source), path and path.parent)
    name = os.fspath(source) if is_path else f"{type(source).__name__}"  # type: ignore[arg-type]
    versions = ", ".join(f"{d or 'opset'} {version}" for d, version in foreign.versions.items())
    changed: list[str] = []
    if evaluation:
        nodes, changed = at_inference(foreign.nodes, foreign.constants)
        foreign = replace(foreign, nodes=tuple(nodes))
    importer = _OnnxImporter(foreign, functions, shapes, values)
    if changed:
        importer.metadata["read as at inference"] = "; ".join(changed)
    importer.refuse_unsupported(foreign.nodes, "")
    check_size(foreign.nodes, functions)
    model = importer.run(str(name), f"ONNX, {versions}")
    return with_state(model, path)


BLOCKED = "com.microsoft.nchwc"
"""Domain of operators on channels in blocks, as wide as a vector of the machine that wrote them."""

TEXT = "text is no number: export the network behind it, with numbers as input"
DRAWN = (
    "export the network with its random numbers as an input: what it draws would be another at "
    "each run"
)
INSTEAD = {
    ("ZipMap", "DictVectorizer", "CastMap"): "maps are no tensors: export scores as a tensor, with "
    "scikit-learn's exporter by to_onnx(..., options={'zipmap': False})",
    (
        *("StringNormalizer", "StringSplit", "StringConcat", "RegexFullMatch", "CategoryMapper"),
        "LabelEncoder",
    ): TEXT,
    ("ImageDecoder",): "decode images before the network, and export it with pixels as input",
    ("RandomNormal", "RandomNormalLike", "Multinomial"): DRAWN,
}
"""What to do about operators that have no meaning on tensors alone."""


class _OnnxImporter(Importer):
    def __init__(
        self,
        foreign: ForeignModel,
        functions: Mapping[tuple[str, str], FunctionBody],
        shapes: Shapes | None,
        values: Mapping[str, np.ndarray] | None,
    ) -> None:
        spread = SequenceExpansion(foreign, shapes, values)
        super().__init__(spread.foreign, TABLE, spread.shapes, values)
        self.sequences, self.empty = spread.sequences, spread.empty
        self.functions = functions
        self.versions = {"": newest_opset(), **foreign.versions}
        self.overruled: list[tuple[str, str, str]] = []
        self._output_names = {v.name for v in foreign.outputs}

    def can_convert(self, node: ForeignNode) -> bool:
        is_function = (node.domain, node.op_type) in self.functions
        if is_function or is_control(node) or uses_sequences(node):
            return True
        return super().can_convert(node) or has_body(node)

    def advice(self, missing: Sequence[ForeignNode]) -> str:
        if any(node.domain == BLOCKED for node in missing):
            return (
                "ONNX Runtime saved this file for one processor, weights in its blocks: save it "
                "with SessionOptions.graph_optimization_level = ORT_ENABLE_EXTENDED, or give the "
                "model that it was made from"
            )
        if any(node.op_type in RANDOM for node in missing):
            return f"{ADVICE}; if it is meant to draw, {DRAWN}"
        kinds = {node.op_type for node in missing}
        advice = (text for named, text in INSTEAD.items() if kinds.intersection(named))
        return next(advice, super().advice(missing))

    def _input_dims(self, value: ForeignValue) -> tuple[int | str | None, ...]:
        if value.kind == "STRING":
            location = f"input {value.name!r}"
            raise UnsupportedError("the input is text", place=location, next_step=TEXT)
        return super()._input_dims(value)

    def overrules(self, declared: ForeignValue, inferred: TensorType) -> bool:
        """Recorded shapes bind nobody. Where a runtime would tell of an output's too, a warning
        does: not where onnx itself infers another size, or where axes with a name were counted
        before the network ended in another rank, which PyTorch's exporter writes."""
        if declared.dtype != inferred.dtype:
            return False
        remark = self._remark(declared, inferred)
        named = declared.dims is not None and any(not isinstance(d, int) for d in declared.dims)
        another_rank = named and len(declared.dims or ()) != inferred.rank
        if not another_rank and declared.name in self._output_names:
            inferred_types = {k: self.builder.types[v] for k, v in self.names.items()}
            if not inferred_otherwise(declared.name, self.foreign.nodes, inferred_types):
                warnings.warn(f"{remark}, which is what is computed", stacklevel=2)
        return True

    def _check_declared(self, name: str, value: str, node: ForeignNode) -> None:
        """As ever; an output's fixed size where it follows from an open one is a remark, too."""
        inferred = self.builder.types[value]
        super()._check_declared(name, value, node)
        declared = self.foreign.declared.get(name)
        if declared is None or declared.dims is None or name not in self._output_names:
            return
        same_rank = len(declared.dims) == inferred.rank
        if same_rank and any(
            isinstance(declared_size, int)
            and not isinstance(inferred_size, int)
            and not is_fresh(inferred_size)
            for declared_size, inferred_size in zip(declared.dims, inferred.dims)
        ):
            self._remark(declared, inferred)

    def _remark(self, declared: ForeignValue, inferred: TensorType) -> str:
        """Note a recorded type that is overruled in the metadata; returns the note's text."""
        dims = "" if declared.dims is None else list(declared.dims)
        entry = (declared.name, f"{declared.dtype}{dims}", str(inferred))
        if entry not in self.overruled:
            self.overruled.append(entry)
        self.metadata[NOTE] = note(self.overruled)
        return note([entry])

    def outputs_of(self, name: str) -> list[str]:
        """An output's value, those of a sequence's tensors, none of an empty optional."""
        if name not in self.sequences and name not in self.empty:
            return super().outputs_of(name)
        items = [] if name in self.empty else self.sequences[name]
        outputs = [self.fresh(item_name(name, i)) for i in range(len(items))]
        self.names.update(zip(outputs, [self.names[v] for v in items]))
        note_outputs(self.metadata, name, None if name in self.empty else outputs)
        return [self._output(v) for v in outputs]

    def expand(self, node: ForeignNode) -> list[ForeignNode] | None:
        key = (node.domain, node.op_type)
        if key not in self.functions and is_control(node):
            return [control_of(node, self.attributes(node))]
        expanded = None if key in self.functions else expand_sequences(self, node)
        if expanded is not None:
            return expanded
        if isinstance(node, Control):
            return super().expand(node)
        if key not in self.functions and key in self.table:
            return None
        inputs = tuple(self.names.get(i) for i in node.inputs)
        types = [None if i is None else self.builder.types[i] for i in inputs]
        function = self.functions.get(key) or body_of(node, types, self.versions)
        nodes = inline(node, function, self.attributes(node), self.fresh)
        self.refuse_unsupported(nodes, f"inside {node.place}")
        return nodes
