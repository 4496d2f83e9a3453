"""If and Loop: bodies as ONNX's graphs, which read what lies outside by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.export.onnx.emission import (
    OnnxEmission,
    emission_of,
    onnx_node_of,
    written_for,
)
from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import DType, TensorType
from verax.onnx_format.dtypes import CODES
from verax.onnx_format.package import helper, numpy_helper, onnx
from verax.ops.control.control import If, Loop
from verax.ops.control.subgraphs import body_of


@written_for("If")
def branches(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """If."""
    op = node.op
    assert isinstance(op, If)
    subgraphs = {}
    for name, text in (("then_branch", op.then_branch), ("else_branch", op.else_branch)):
        if not text:
            return OnnxEmission(problem="If has a branch that does not fit its sizes")
        operands = [v or "" for v in node.inputs[1:]]
        subgraph = _body(node, graph, version, text, operands, {}, name)
        if isinstance(subgraph, str):
            return OnnxEmission(problem=subgraph)
        subgraphs[name] = subgraph
    return OnnxEmission([onnx_node_of(node, "If", node.inputs[:1], node.outputs, **subgraphs)])


@written_for("Loop")
def loops(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Loop."""
    op = node.op
    assert isinstance(op, Loop)
    start, outside = node.inputs[2 : 2 + op.carried], node.inputs[2 + op.carried :]
    names = [f"{node.outputs[0]}/loop/{suffix}" for suffix in ("run", "go")]
    types = {names[0]: TensorType(DType.int64, ())}
    carried = [f"{node.outputs[0]}/loop/carried{i}" for i in range(op.carried)]
    types |= {name: graph.types[v or ""] for name, v in zip(carried, start)}
    operands = [names[0], *carried, *(v or "" for v in outside)]
    subgraph = _body(node, graph, version, op.body, operands, types, "body")
    if isinstance(subgraph, str):
        return OnnxEmission(problem=subgraph)
    subgraph.input.insert(1, _declared(names[1], TensorType(DType.bool_, ())))
    inputs = [v or "" for v in (*node.inputs[:2], *start)]
    loop = helper.make_node("Loop", inputs, list(node.outputs), name=node.name)
    loop.attribute.append(helper.make_attribute("body", subgraph))
    return OnnxEmission([loop])


def _body(
    node: Node,
    graph: Graph,
    version: int,
    text: str,
    operands: Sequence[str],
    formal: Mapping[str, TensorType],
    attribute: str,
) -> onnx.GraphProto | str:
    """The ONNX graph of a body on outer values `operands` and its own `formal` inputs; a text with
    the reason where there is none."""
    body, prefix = body_of(text), f"{node.outputs[0]}/{attribute}/"
    names = dict(zip(body.inputs, operands))
    b = Builder(f"{prefix}graph")
    for value in dict.fromkeys(operands):
        if value in graph.constants:
            b.constant(graph.constants[value], value)
        else:
            b.input(value, formal[value] if value in formal else graph.types[value])
    for index, inner in enumerate(body.nodes):
        names |= {v: f"{prefix}{v}" for v in inner.outputs}
        inputs = [v and names[v] for v in inner.inputs]
        b.add_all(inner.op, inputs, [names[v] for v in inner.outputs], f"{prefix}{index}")
    inside = b.graph([])
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    for inner in inside.nodes:
        emission = emission_of(inner, inside, version)
        if emission.problem:
            return f"inside of it, {inner.place}: {emission.problem}"
        for i, emitted in enumerate(emission.nodes):
            emitted.name = f"{inner.name}.{i}"
            nodes.append(emitted)
        constants |= emission.constants
    outputs = []
    for i, value in enumerate(body.outputs):
        name = f"{prefix}output{i}"
        nodes.append(helper.make_node("Identity", [names[value]], [name]))
        outputs.append(_declared(name, b.types[names[value]]))
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    inputs = [_declared(name, type_) for name, type_ in formal.items()]
    return helper.make_graph(nodes, body.name or attribute, inputs, outputs, stored)


def _declared(name: str, type_: TensorType) -> onnx.ValueInfoProto:
    dims = [d if isinstance(d, int) else None for d in type_.dims]
    return helper.make_tensor_value_info(name, CODES[type_.dtype], dims)
