"""ONNX file -> foreign nodes. The file is untrusted: whatever is wrong with it is a `ModelError`.

What is checked here needs no operator's meaning: names are defined once and before they are used,
stored data have the size that their type and dimensions claim, operator sets are known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import (
    ForeignModel,
    ForeignNode,
    ForeignValue,
    Subgraph,
    refuse_many,
)
from verax.frontends.onnx.stored_tensors import file_content
from verax.frontends.onnx.tensors import MAX_ELEMENTS, TensorReader
from verax.onnx_format.dtypes import DTYPES, OLDEST, dtype_name, newest_opset


@dataclass(frozen=True)
class AttributeReference:
    """An attribute inside a function that takes its value from the calling node."""

    name: str


@dataclass(frozen=True)
class Opaque:
    """An attribute that no supported operator has: a graph, a type, a sparse tensor."""

    kind: str


@dataclass(frozen=True)
class FunctionBody:
    """A function: nodes that stand for one operator. `defaults` are attributes' default values."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any]
    nodes: tuple[ForeignNode, ...]


@dataclass(frozen=True)
class StoredModel:
    """A protobuf message. apart: by index of an initializer its raw data, which the message does
    not hold."""

    proto: onnx.ModelProto
    apart: Mapping[int, memoryview]


def parse(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> StoredModel:
    """The protobuf message of a file, of its bytes, or as given."""
    if isinstance(source, onnx.ModelProto):
        return StoredModel(source, {})
    location = "bytes" if isinstance(source, bytes) else str(source)
    apart: Mapping[int, memoryview] = {}
    if not isinstance(source, bytes):
        source, apart = file_content(source)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(source)
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ModelError(
            f"this is not an ONNX model ({error})",
            place=location,
            next_step="the file is damaged, cut off, or of another format",
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError("this is not an ONNX model: it has no graph or no opset", place=location)
    return StoredModel(model, apart)


def read_model(
    stored: StoredModel, folder: Path | None
) -> tuple[ForeignModel, dict[tuple[str, str], FunctionBody]]:
    """The content of a model and its own functions by (domain, name).

    folder: where external data may lie. Raises `ModelError`, `UnsupportedError`.
    """
    try:
        return _OnnxReader(stored, TensorReader(folder)).read()
    except (UnicodeDecodeError, DecodeError, OverflowError, RecursionError) as error:
        raise ModelError(f"the model is damaged: {error}") from error


def text(value: Any) -> str:
    """A name. protobuf hands over bytes where they are no UTF-8."""
    if not isinstance(value, str):
        raise ModelError(f"the name {value!r} is not valid text", next_step="the file is damaged")
    return value


def domain_of(name: str) -> str:
    """The default domain has two names."""
    return "" if name == "ai.onnx" else text(name)


def _unchanged(node: onnx.NodeProto, version: int) -> bool:
    """True if an operator has the same definition in `version` of the default operator set as in
    the oldest one that is read, and so have those of the graphs in its attributes."""
    if domain_of(node.domain):
        return True
    try:
        old, new = (onnx.defs.get_schema(node.op_type, v) for v in (version, OLDEST))
    except onnx.defs.SchemaError:
        return False
    inner = [n for a in node.attribute for g in (a.g, *a.graphs) for n in g.node]
    same = old.since_version == new.since_version
    return same and all(_unchanged(n, version) for n in inner)


def opset_versions(
    imports: Iterable[onnx.OperatorSetIdProto], location: str, nodes: Sequence[onnx.NodeProto]
) -> dict[str, int]:
    """Versions by domain; the oldest that is read where `nodes` mean the same in an older one.
    Raises `UnsupportedError` for sets that are not understood."""
    versions: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelError(f"two versions of the opset {domain!r} are imported", place=location)
    version = versions.get("", newest_opset())
    if 1 <= version < OLDEST and all(_unchanged(node, version) for node in nodes):
        version = versions[""] = OLDEST
    if not OLDEST <= version <= newest_opset():
        raise UnsupportedError(
            f"opset {version} is not supported; {OLDEST} to {newest_opset()} are",
            place=location,
            next_step="onnx.version_converter converts a model to another opset",
        )
    return versions


class _OnnxReader:
    def __init__(self, stored: StoredModel, tensors: TensorReader) -> None:
        self.proto, self.apart, self.tensors = stored.proto, stored.apart, tensors

    def read(self) -> tuple[ForeignModel, dict[tuple[str, str], FunctionBody]]:
        proto, graph = self.proto, self.proto.graph
        versions = opset_versions(proto.opset_import, "model", graph.node)
        refuse_many(len(graph.node))
        if graph.sparse_initializer:
            raise UnsupportedError("the model has sparse initializers", place="model")
        constants: dict[str, Any] = {}
        for index, tensor in enumerate(graph.initializer):
            location = f"initializer {text(tensor.name)!r}"
            if not tensor.name or tensor.name in constants:
                raise ModelError("an initializer is unnamed or named twice", place=location)
            constants[tensor.name] = self.tensors.read(tensor, location, self.apart.get(index))
        inputs = tuple(read_value(v) for v in graph.input)
        declared = {v.name: read_value(v) for v in graph.value_info}
        declared |= {v.name: read_value(v) for v in graph.output}
        declared |= {v.name: v for v in inputs}
        nodes = tuple(read_node(n, versions, self.tensors) for n in graph.node)
        functions = {
            (domain_of(f.domain), text(f.name)): read_function(f, self.tensors)
            for f in proto.functions
        }
        model = ForeignModel(
            name=text(graph.name) or "graph",
            inputs=tuple(v for v in inputs if v.name not in constants),
            outputs=tuple(read_value(v) for v in graph.output),
            nodes=nodes,
            constants=constants,
            declared=declared,
            versions=versions,
            metadata=_metadata(proto),
        )
        _check_names(model, [v.name for v in inputs])
        return model, functions


def _metadata(proto: onnx.ModelProto) -> dict[str, str]:
    entries = {text(p.key): text(p.value) for p in proto.metadata_props}
    for key in ("producer_name", "producer_version", "domain", "doc_string"):
        if value := getattr(proto, key):
            entries[key] = text(value)
    entries["ir_version"] = str(proto.ir_version)
    return entries


def _check_names(model: ForeignModel, inputs: list[str]) -> None:
    """Single assignment, definition before use."""
    if len(set(inputs)) != len(inputs) or "" in inputs:
        raise ModelError("an input is unnamed or named twice", place="model inputs")
    outputs = [v.name for v in model.outputs]
    if len(set(outputs)) != len(outputs) or "" in outputs:
        raise ModelError("an output is unnamed or named twice", place="model outputs")
    if not outputs:
        raise ModelError("the model has no outputs", place="model outputs")
    later: dict[str, str] = {}
    for node in model.nodes:
        for name in filter(None, node.outputs):
            if name in later or name in inputs or name in model.constants:
                raise ModelError(f"the value {name!r} is defined twice", place=node.place)
            later[name] = node.place
    defined = {*inputs, *model.constants}
    for node in model.nodes:
        for name in filter(None, node.inputs):
            if name not in defined:
                raise _undefined(name, node, later)
        defined.update(node.outputs)
    for name in outputs:
        if name not in defined:
            raise ModelError(f"nothing defines the output {name!r}", place="model outputs")


def _undefined(name: str, node: ForeignNode, later: Mapping[str, str]) -> ModelError:
    if name in later:
        return ModelError(
            f"{name!r} is read before {later[name]} defines it",
            place=node.place,
            next_step="the nodes are not sorted, or form a cycle",
        )
    return ModelError(
        f"{name!r} is read, but no node, input or initializer defines it",
        place=node.place,
        next_step="the file is damaged or an initializer was left out",
    )


def read_value(proto: onnx.ValueInfoProto) -> ForeignValue:
    """A declared value. `dtype` is None when it is no tensor of a supported element type."""
    return _value(text(proto.name), proto.type)


def _value(name: str, proto: onnx.TypeProto) -> ForeignValue:
    tensor = proto.tensor_type
    kind = proto.WhichOneof("value") or "no type"
    if kind in ("sequence_type", "optional_type"):
        element = _value(name, getattr(proto, kind).elem_type)
        return ForeignValue(name, None, None, kind.replace("_type", ""), element)
    if kind != "tensor_type":
        return ForeignValue(name, None, None, kind.replace("_type", ""))
    if not tensor.HasField("shape"):
        dims: tuple[int | str | None, ...] | None = None
    else:
        dims = tuple(_dim(d, name) for d in tensor.shape.dim)
        size = 1
        for d in dims:
            size *= max(1, d) if isinstance(d, int) else 1
        if size > MAX_ELEMENTS:
            raise ModelError(f"the dimensions {dims} are absurdly large", place=f"value {name!r}")
    dtype = DTYPES.get(tensor.elem_type)
    return ForeignValue(name, dtype, dims, "" if dtype else dtype_name(tensor.elem_type))


def _dim(proto: Any, name: str) -> int | str | None:
    """A size, its name, or None. Older converters (paddle2onnx) write -1 or "?" for an open size,
    however many there are: no two of them are one."""
    if proto.HasField("dim_value"):
        if proto.dim_value < -1:
            raise ModelError(f"a dimension is {proto.dim_value}", place=f"value {name!r}")
        return None if proto.dim_value == -1 else int(proto.dim_value)
    name_in_file = text(proto.dim_param)
    return None if name_in_file in ("", "?") else name_in_file


def _overloaded(proto: Any, field: str) -> str:
    """The name of a function or of a node's operator, with its overload if it has one."""
    name, overload = text(getattr(proto, field)), text(proto.overload)
    return f"{name}:{overload}" if overload else name


def read_node(
    proto: onnx.NodeProto, versions: Mapping[str, int], tensors: TensorReader
) -> ForeignNode:
    """A node with its attributes as plain values."""
    domain = domain_of(proto.domain)
    outputs = tuple(map(text, proto.output))
    kind = _overloaded(proto, "op_type")
    bare = ForeignNode(kind, (), outputs, {}, text(proto.name), domain)
    if domain not in versions and domain == "":
        raise ModelError("the model imports no version of the default opset", place=bare.place)
    attributes: dict[str, Any] = {}
    for attribute in proto.attribute:
        if not text(attribute.name) or attribute.name in attributes:
            raise ModelError(
                f"the attribute {attribute.name!r} is unnamed or given twice", place=bare.place
            )
        attributes[attribute.name] = read_attribute(attribute, bare.place, tensors, versions)
    return replace(
        bare,
        inputs=tuple(map(text, proto.input)),
        attributes=attributes,
        version=versions.get(domain, 0),
    )


def read_attribute(
    proto: onnx.AttributeProto,
    location: str,
    tensors: TensorReader,
    versions: Mapping[str, int] = MappingProxyType({}),
) -> Any:
    """An attribute's value: number, string, array, tuple of these, `Subgraph`, `Reference` or
    `Opaque`. versions: of operator sets, for the nodes of a graph."""
    if proto.ref_attr_name:
        return AttributeReference(text(proto.ref_attr_name))
    location = f"attribute {proto.name!r} of {location}"
    match proto.type:
        case AttributeProto.INT:
            return int(proto.i)
        case AttributeProto.FLOAT:
            return float(proto.f)
        case AttributeProto.STRING:
            return proto.s.decode("utf-8", "backslashreplace")
        case AttributeProto.TENSOR:
            if proto.t.data_type == onnx.TensorProto.STRING:
                return Opaque("string tensor")
            return tensors.read(proto.t, location)
        case AttributeProto.INTS:
            return tuple(int(i) for i in proto.ints)
        case AttributeProto.FLOATS:
            return tuple(float(f) for f in proto.floats)
        case AttributeProto.STRINGS:
            return tuple(s.decode("utf-8", "backslashreplace") for s in proto.strings)
        case AttributeProto.GRAPH if versions:
            return _read_subgraph(proto.g, versions, tensors, location)
        case AttributeProto.UNDEFINED:
            raise ModelError("the attribute has no type", place=location)
    return Opaque(AttributeProto.AttributeType.Name(proto.type).lower())


def _read_subgraph(
    proto: onnx.GraphProto, versions: Mapping[str, int], tensors: TensorReader, location: str
) -> Subgraph:
    refuse_many(len(proto.node), location)
    if proto.sparse_initializer:
        raise UnsupportedError("a graph has sparse initializers", place=location)
    constants: dict[str, Any] = {}
    for tensor in proto.initializer:
        if not text(tensor.name) or tensor.name in constants:
            raise ModelError("an initializer is unnamed or named twice", place=location)
        constants[tensor.name] = tensors.read(tensor, f"initializer {tensor.name!r} of {location}")
    inputs = tuple(text(v.name) for v in proto.input if v.name not in constants)
    outputs = tuple(text(v.name) for v in proto.output)
    nodes = tuple(read_node(n, versions, tensors) for n in proto.node)
    return Subgraph(inputs, outputs, constants, nodes, proto)


def read_function(
    proto: onnx.FunctionProto,
    tensors: TensorReader,
    default: Mapping[str, int] = MappingProxyType({}),
) -> FunctionBody:
    """A function's body. Its names are checked when it is inlined.

    default: versions of operator sets that the function does not import itself.
    """
    versions = {
        **default,
        **opset_versions(proto.opset_import, f"function {proto.name!r}", proto.node),
    }
    location = f"function {proto.name!r}"
    defaults = {a.name: read_attribute(a, location, tensors) for a in proto.attribute_proto}
    nodes = tuple(read_node(n, versions, tensors) for n in proto.node)
    names = (tuple(map(text, side)) for side in (proto.input, proto.output, proto.attribute))
    inputs, outputs, attributes = names
    return FunctionBody(inputs, outputs, attributes, defaults, nodes)
