"""ONNX model -> `Model`: walks over the foreign nodes and lets the table convert each.

Operators that the table lacks but that ONNX itself defines as functions are expanded. Everything
unsupported is listed at once, before anything is converted.
"""

from __future__ import annotations

import keyword
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from verax.base.errors import GraphError, ModelError, UnsupportedError, UsageError
from verax.frontends.conversion import Conversion, ValueNeededError, convert
from verax.frontends.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.ledger import Ledger
from verax.frontends.model import Model
from verax.frontends.onnx.functions import MAX_NODES, body_of, check_size, has_body, inline
from verax.frontends.onnx.reader import NEWEST, Function, parse, read_model
from verax.frontends.onnx.table import TABLE
from verax.ir.dim import DimLike, parse_dim, substitute, symbol, symbols
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.where import Identity

Shapes = Mapping[str, "Sequence[int | None] | int"]


def load_onnx(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> Model:
    """Import an ONNX model from a path, its bytes, or a `ModelProto`.

    shapes: sizes for what the file leaves open: {"x": (1, 3, 224, None)} or {"batch": 2} by the
    name of a dimension. values: inputs to be made constants (a shape given as an input, say).
    Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax lacks,
    `UsageError` for an unreadable path or shapes that do not fit.
    """
    is_path = isinstance(source, str | os.PathLike)
    folder = Path(os.fspath(source)).parent if is_path else None  # type: ignore[arg-type]
    foreign, functions = read_model(parse(source), folder)
    name = os.fspath(source) if is_path else f"{type(source).__name__}"  # type: ignore[arg-type]
    return _Importer(foreign, functions, shapes or {}, values or {}).run(str(name))


class _Importer:
    def __init__(
        self,
        foreign: ForeignModel,
        functions: Mapping[tuple[str, str], Function],
        shapes: Shapes,
        values: Mapping[str, np.ndarray],
    ) -> None:
        self.foreign, self.functions = foreign, functions
        self.shapes, self.values = shapes, values
        self.builder = Builder(foreign.name)
        self.ledger = Ledger()
        self.versions = {"": NEWEST, **foreign.versions}
        self.names: dict[str, str] = {}
        self.taken = {*foreign.constants, *(v.name for v in foreign.inputs)}
        self.taken.update(o for node in foreign.nodes for o in node.outputs)

    def run(self, source: str) -> Model:
        self._refuse_unsupported(self.foreign.nodes, "")
        check_size(self.foreign.nodes, self.functions)
        self._inputs()
        for name, array in self.foreign.constants.items():
            self._constant(name, array)
        pending = list(reversed(self.foreign.nodes))
        done = 0
        while pending:
            node = pending.pop()
            done += 1
            if done + len(pending) > MAX_NODES:
                raise ModelError(f"the model has more than {MAX_NODES} nodes once inlined")
            pending.extend(reversed(self._convert(node)))
        graph = self.builder.graph([self._output(v.name) for v in self.foreign.outputs])
        versions = ", ".join(
            f"{domain or 'opset'} {version}" for domain, version in self.foreign.versions.items()
        )
        return Model(graph, self.ledger, f"ONNX, {versions}", source, self.foreign.metadata)

    def _fresh(self, hint: str) -> str:
        """A name that neither the graph nor any part of the file uses."""
        name, i = hint, 0
        while name in self.taken or name in self.builder.types:
            i += 1
            name = f"{hint}_{i}"
        self.taken.add(name)
        return name

    # Inputs and dimensions

    def _inputs(self) -> None:
        declared = {v.name: self._input_dims(v) for v in self.foreign.inputs}
        unknown = set(self.shapes) - set(declared)
        labels = {d for dims in declared.values() for d in dims if isinstance(d, str)}
        if unknown - labels:
            raise UsageError(
                f"the model has no input or dimension {sorted(unknown - labels)[0]!r}",
                next_step=f"it has {', '.join(sorted([*declared, *labels])) or 'none'}",
            )
        known = {str(k): int(v) for k, v in self.shapes.items() if isinstance(v, int)}
        for value in self.foreign.inputs:
            self._bind(value.name, declared[value.name], known)
        taken: dict[str, str] = {}
        for value in self.foreign.inputs:
            dims = []
            for axis, dim in enumerate(declared[value.name]):
                given = self.shapes.get(value.name, ())
                size = given[axis] if isinstance(given, Sequence) and given else None
                dims.append(_dim(dim if size is None else size, value.name, axis, known, taken))
            assert value.dtype is not None
            type_ = TensorType(value.dtype, tuple(dims))
            if value.name in self.values:
                self._constant(value.name, np.asarray(self.values[value.name]))
                _must_fit(type_, self.builder.types[value.name], f"value for {value.name!r}")
            else:
                self.names[value.name] = self.builder.input(value.name, type_)

    def _input_dims(self, value: ForeignValue) -> tuple[int | str | None, ...]:
        place = f"input {value.name!r}"
        if value.dtype is None:
            raise UnsupportedError(
                f"the input is {value.kind}, not a tensor of a supported type", place=place
            )
        given = self.shapes.get(value.name)
        if value.dims is not None:
            return value.dims
        if value.name in self.values:
            return tuple(np.shape(self.values[value.name]))
        if not isinstance(given, Sequence):
            raise ValueNeededError(
                "the file does not say how many dimensions the input has",
                place=place,
                next_step=f"give its shape, e.g. shapes={{{value.name!r}: (1, 3, 224, 224)}}",
            )
        return (None,) * len(given)

    def _bind(self, name: str, dims: tuple[int | str | None, ...], known: dict[str, int]) -> None:
        """Learn what sizes `shapes` and `values` give to named dimensions."""
        given = self.shapes.get(name)
        if name in self.values:
            given = np.shape(self.values[name])
        if not isinstance(given, Sequence):
            return
        if len(given) != len(dims):
            raise UsageError(
                f"the shape {tuple(given)} is given for {len(dims)} dimensions",
                place=f"input {name!r}",
            )
        for dim, size in zip(dims, given):
            if size is None:
                continue
            fixed = known.setdefault(dim, int(size)) if isinstance(dim, str) else dim
            if size < 0 or (fixed is not None and fixed != size):
                raise UsageError(
                    f"the shape {tuple(given)} does not fit {dims}", place=f"input {name!r}"
                )

    def _constant(self, name: str, array: np.ndarray) -> None:
        self.names[name] = self.builder.constant(array, name)

    def _output(self, name: str) -> str:
        """The value of a model output, which must bear its name."""
        value = self.names[name]
        return value if value == name else self.builder.add(Identity(), [value], [name])

    # Nodes

    def _refuse_unsupported(self, nodes: Sequence[ForeignNode], place: str) -> None:
        missing = Counter(node.operator for node in nodes if not self._can_convert(node))
        if missing:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
            raise UnsupportedError(
                f"operators that are not supported: {listed}",
                place=place,
                next_step="`verax ops` lists the supported operators",
            )

    def _can_convert(self, node: ForeignNode) -> bool:
        key = (node.domain, node.op_type)
        return key in self.functions or key in TABLE or has_body(node)

    def _convert(self, node: ForeignNode) -> list[ForeignNode]:
        """Convert a node, or return the nodes that it stands for."""
        key = (node.domain, node.op_type)
        attributes = self.ledger.attributes(node.place, node.operator, node.attributes)
        inputs = tuple(self.names[i] if i else None for i in node.inputs)
        row = TABLE.get(key)
        if key in self.functions or row is None:
            types = [None if i is None else self.builder.types[i] for i in inputs]
            function = self.functions.get(key) or body_of(node, types, self.versions)
            nodes = inline(node, function, attributes, self._fresh)
            self._refuse_unsupported(nodes, f"inside {node.place}")
            return nodes
        conversion = Conversion(node, inputs, attributes, self.builder, self._fresh)
        for name, value in zip(node.outputs, convert(row, conversion)):
            if name:
                self.names[name] = value
                self._check_declared(name, value, node)
        return []

    def _check_declared(self, name: str, value: str, node: ForeignNode) -> None:
        """Hold the recorded type against the inferred one; a size only running can tell is taken
        from the record."""
        declared = self.foreign.declared.get(name)
        if declared is None or declared.dtype is None:
            return
        inferred = self.builder.types[value]
        dims = list(inferred.dims)
        wrong = declared.dtype != inferred.dtype
        if declared.dims is not None:
            wrong |= len(declared.dims) != inferred.rank
            for axis, (said, found) in enumerate(zip(declared.dims, inferred.dims)):
                if isinstance(said, int) and isinstance(found, int):
                    wrong |= said != found
                elif isinstance(said, int) and _is_fresh(found):
                    dims[axis] = said
        if wrong:
            shown = "" if declared.dims is None else f"{list(declared.dims)}"
            raise ModelError(
                f"the file records {name!r} as {declared.dtype}{shown}, it is {inferred}",
                place=node.place,
                next_step="the file contradicts itself; strip its value_info or export again",
            )
        self.builder.types[value] = inferred.with_dims(dims)


def _is_fresh(dim: DimLike) -> bool:
    """Whether a size is one that only running can tell."""
    return any(name.startswith("_") for name in symbols(dim))


def _dim(
    dim: int | str | None, value: str, axis: int, known: Mapping[str, int], taken: dict[str, str]
) -> DimLike:
    """A declared dimension: a number, an expression over declared names, or a symbol of its own."""
    if isinstance(dim, int):
        return dim
    if dim is not None and dim in known:
        return known[dim]
    expression = None if dim is None else _expression(dim)
    if expression is not None and symbols(expression) <= {*known, *taken}:
        return substitute(expression, {**{k: symbol(v) for k, v in taken.items()}, **known})
    key = dim if dim is not None else f"{value}.{axis}"
    if key not in taken:
        plain = re.sub(r"\W", "_", key, flags=re.ASCII).strip("_")
        plain = plain if plain and not plain[0].isdigit() else f"d{plain}"
        if keyword.iskeyword(plain) or plain in ("max", "ceildiv"):
            plain += "_"
        unique, i = plain, 1
        while unique in taken.values():
            i += 1
            unique = f"{plain}_{i}"
        taken[key] = unique
    return symbol(taken[key])


def _expression(text: str) -> DimLike | None:
    """A dimension like `2*n + 1`, None when the text is only a name or cannot be read."""
    if len(text) > 200 or text.isidentifier():
        return None
    try:
        return parse_dim(text)
    except GraphError:
        return None


def _must_fit(declared: TensorType, found: TensorType, place: str) -> None:
    fits = declared.dtype == found.dtype and declared.rank == found.rank
    if not fits or any(
        isinstance(substitute(d, {}), int) and d != f for d, f in zip(declared.dims, found.dims)
    ):
        raise UsageError(f"{found} is given, the model takes {declared}", place=place)
