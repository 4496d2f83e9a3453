"""Functions: a model's own, and the bodies that ONNX gives for operators Verax does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import renamed
from verax.frontends.common.foreign import MAX_NODES, ForeignNode, Subgraph
from verax.frontends.common.ledger import Attributes
from verax.frontends.onnx.reader import (
    AttributeReference,
    FunctionBody,
    Opaque,
    read_attribute,
    read_function,
)
from verax.frontends.onnx.tensors import TensorReader
from verax.ir.types import TensorType
from verax.onnx_format.dtypes import CODES

MAX_DEPTH = 32
"""Functions calling functions; a recursive function would never end."""


def schema_of(node: ForeignNode) -> Any:
    """ONNX's own description of the node's operator, or None."""
    try:
        return onnx.defs.get_schema(node.op_type, node.version, node.domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: a version beyond 32 bits
        return None


def has_body(node: ForeignNode) -> bool:
    """Whether ONNX defines the operator by a function of other operators."""
    schema = schema_of(node)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def body_of(
    node: ForeignNode, types: Sequence[TensorType | None], versions: Mapping[str, int]
) -> FunctionBody:
    """ONNX's function for an operator; it may depend on the input types.

    versions: those of the model, for bodies that do not import the default operator set.
    """
    schema = schema_of(node)
    proto = onnx.FunctionProto()
    if schema.has_function:
        proto.CopyFrom(schema.function_body)
        defaults = {
            name: read_attribute(a.default_value, node.place, TensorReader(None))
            for name, a in schema.attributes.items()
            if a.default_value.name
        }
    else:
        defaults = {}
        versions_up_to = [
            v for v in schema.context_dependent_function_opset_versions if v <= node.version
        ]
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions_up_to, default=schema.since_version),
            _as_proto(node).SerializeToString(),
            [_type_proto(t).SerializeToString() for t in types],
        )
        if not data:
            raise UnsupportedError(
                f"the operator {node.operator} is not supported", place=node.place
            )
        proto.ParseFromString(data)
    function = read_function(proto, TensorReader(None), versions)
    return replace(function, attributes=tuple(schema.attributes), defaults=defaults)


def _as_proto(node: ForeignNode) -> onnx.NodeProto:
    attributes = {k: _as_message(v) for k, v in node.attributes.items()}
    if any(isinstance(v, Opaque | AttributeReference | Subgraph) for v in attributes.values()):
        raise UnsupportedError(f"the operator {node.operator} is not supported", place=node.place)
    try:
        return helper.make_node(
            node.op_type, node.inputs, node.outputs, domain=node.domain or None, **attributes
        )
    except (TypeError, ValueError) as error:
        raise ModelError(f"the attributes have no type: {error}", place=node.place) from error


def _as_message(value: Any) -> Any:
    """An attribute's value as the onnx package takes it; a graph whose names were changed stays."""
    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(value)
    unchanged = isinstance(value, Subgraph) and value.message is not None
    return value.message if unchanged else value


def _type_proto(type_: TensorType | None) -> onnx.TypeProto:
    if type_ is None:
        return onnx.TypeProto()
    dims = [d if isinstance(d, int) else None for d in type_.dims]
    return helper.make_tensor_type_proto(CODES[type_.dtype], dims)


def inline(
    node: ForeignNode,
    function: FunctionBody,
    attributes: Attributes,
    fresh: Callable[[str], str],
) -> list[ForeignNode]:
    """The body's nodes with the caller's names and attributes in place of the formal ones."""
    if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
        raise ModelError("the node has more inputs or outputs than its function", place=node.place)
    if node.depth >= MAX_DEPTH:
        raise ModelError("functions call each other too deeply", place=node.place)
    names = dict.fromkeys(function.inputs, "")
    names.update(zip(function.inputs, node.inputs))
    stated = {name: attributes.get(name) for name in function.attributes if attributes.has(name)}
    for name in function.defaults:
        if attributes.has(name):
            stated[name] = attributes.get(name)
    attributes.close()
    values = {**function.defaults, **stated}
    scope = f"{node.name or next((o for o in node.outputs if o), node.op_type)}/"
    results = {f: a for f, a in zip(function.outputs, node.outputs) if a}
    nodes = []
    for inner in function.nodes:
        for name in filter(None, inner.outputs):
            if name in names:
                raise ModelError(f"{name!r} is defined twice in a function", place=node.place)
            names[name] = results.get(name) or fresh(f"{scope}{name}")
        for name in filter(None, inner.inputs):
            if name not in names:
                raise ModelError(f"{name!r} is read before it is defined", place=inner.place)
        nodes.append(
            replace(
                inner,
                inputs=tuple(names[i] if i else "" for i in inner.inputs),
                outputs=tuple(names[o] if o else "" for o in inner.outputs),
                attributes={
                    k: renamed(v, names) for k, v in _bound(inner.attributes, values).items()
                },
                name=f"{scope}{inner.name or inner.op_type}",
                depth=node.depth + 1,
            )
        )
    passed_through = [f for f in results if f in function.inputs]
    for formal in passed_through:
        nodes.append(
            ForeignNode("Identity", (names[formal],), (results[formal],), {}, scope, version=14)
        )
    undefined = [f for f in results if f not in names]
    if undefined:
        raise ModelError(
            f"the function does not define its output {undefined[0]!r}", place=node.place
        )
    return nodes


def check_size(
    nodes: Sequence[ForeignNode], functions: Mapping[tuple[str, str], FunctionBody]
) -> None:
    """Refuse a model whose functions never end or unfold into too many nodes, before inlining.

    Raises `ModelError`.
    """
    sizes: dict[tuple[str, str], int] = {}

    def size(node: ForeignNode, callers: tuple[tuple[str, str], ...]) -> int:
        key = (node.domain, node.op_type)
        if key not in functions:
            return 1
        if key in callers or len(callers) >= MAX_DEPTH:
            raise ModelError("functions call each other too deeply", place=node.place)
        if key not in sizes:
            sizes[key] = sum(size(inner, (*callers, key)) for inner in functions[key].nodes)
        return sizes[key]

    total = sum(size(node, ()) for node in nodes)
    if total > MAX_NODES:
        raise ModelError(f"the model has {total} nodes once inlined; {MAX_NODES} are allowed")


def _bound(attributes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with references replaced; one whose caller gives no value is absent."""
    bound = {
        name: values.get(v.name) if isinstance(v, AttributeReference) else v
        for name, v in attributes.items()
    }
    return {name: v for name, v in bound.items() if v is not None}
