"""An ONNX model run in pieces, so that a runtime can fuse nothing across their edges.

Transformations that a runtime has no switch for need the nodes that they rewrite in one model.
Consecutive nodes are run as models of their own, each on what those before it gave; which of them
stand in one piece is the choice. Small integers that are computed on the way (shapes, axes) are
constants of the next piece, as they are where the runtime folds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import numpy as np

from verax.base.errors import UnsupportedError
from verax.onnx_format.package import helper, numpy_helper, onnx

MOST = 300
"""Nodes of a model that is run in pieces; each is a model of its own at first."""
SMALL = 64
"""Elements of integers that count as a shape."""
JOINED = "in one model with the node before: "
"""How the names of joints begin."""
Arrays = Mapping[str, np.ndarray]
RunModel: TypeAlias = "Callable[[onnx.ModelProto, Arrays], Arrays]"
"""(a model, its inputs) -> its outputs by name."""


def joints(model: onnx.ModelProto) -> list[str]:
    """For each node but the first, what it is called when it joins the one before it; none for a
    model that cannot be run in pieces: with inner graphs, or with too many nodes."""
    nodes = _steps(model)
    inner = any(a.type in (a.GRAPH, a.GRAPHS) for n in model.graph.node for a in n.attribute)
    if inner or model.functions or model.graph.sparse_initializer or not 2 <= len(nodes) <= MOST:
        return []
    return [f"{JOINED}{i} {called(node)} ({node.op_type})" for i, node in enumerate(nodes[1:], 1)]


def called(node: onnx.NodeProto) -> str:
    """The name of a node, or of its first output."""
    return node.name or node.output[0]


def nodes_at(model: onnx.ModelProto, joint: int) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """The two consecutive nodes that the joint with index `joint` (from 1) lies between."""
    nodes = _steps(model)
    return nodes[joint - 1], nodes[joint]


def run_in_pieces(
    model: onnx.ModelProto, inputs: Arrays, closed_joints: Collection[int], run: RunModel
) -> dict[str, np.ndarray]:
    """Outputs of the model by name. closed_joints: indices, from 1, of the nodes that are in one
    piece with the node before. Raises what `run` raises, and `UnsupportedError` where a value is
    no tensor."""
    weights = {t.name: t for t in model.graph.initializer}
    constants = [n for n in model.graph.node if n.op_type == "Constant"]
    values: dict[str, np.ndarray] = dict(inputs)
    output_names = {v.name for v in model.graph.output}
    pieces = _pieces(_steps(model), closed_joints)
    for i, nodes in enumerate(pieces):
        later = {v for piece in pieces[i + 1 :] for n in piece for v in n.input}
        fixed = {v: a for v, a in values.items() if v not in inputs and _is_shape(a)}
        submodel = _piece(model, nodes, weights, constants, values, fixed, later | output_names)
        submodel_outputs = {v.name for v in submodel.graph.output}
        if not submodel_outputs:
            continue
        needed = {v.name: values[v.name] for v in submodel.graph.input}
        results = run(submodel, needed)
        for name, array in results.items():
            if not isinstance(array, np.ndarray):
                raise UnsupportedError("a value between two pieces is no tensor", place=name)
        values |= {v: a for v, a in results.items() if v in submodel_outputs}
    return {v: values[v] for v in output_names if v in values}


def _steps(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that compute."""
    return [n for n in model.graph.node if n.op_type != "Constant"]


def _is_shape(array: np.ndarray) -> bool:
    return array.dtype in (np.int32, np.int64) and array.size <= SMALL


def _pieces(
    nodes: list[onnx.NodeProto], closed_joints: Collection[int]
) -> list[list[onnx.NodeProto]]:
    pieces: list[list[onnx.NodeProto]] = []
    for i, node in enumerate(nodes):
        if i and i in closed_joints:
            pieces[-1].append(node)
        else:
            pieces.append([node])
    return pieces


def _piece(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    weights: Mapping[str, onnx.TensorProto],
    constants: list[onnx.NodeProto],
    values: Arrays,
    fixed: Arrays,
    requested: Collection[str],
) -> onnx.ModelProto:
    """A model of `nodes` alone, whose outputs are those of their values that are in `requested`.

    values: arrays of values that may be its inputs; fixed: those of them that it holds as
    constants."""
    computed = {v for n in nodes for v in n.output if v}
    read = list(dict.fromkeys(v for n in nodes for v in n.input if v and v not in computed))
    graph = onnx.GraphProto(name=model.graph.name or "piece")
    graph.node.extend(n for n in constants if n.output[0] in read)
    graph.node.extend(nodes)
    for name in read:
        if name in weights:
            graph.initializer.append(weights[name])
        elif name in fixed:
            graph.initializer.append(numpy_helper.from_array(fixed[name], name))
        elif name in values:
            kind = helper.np_dtype_to_tensor_dtype(values[name].dtype)
            graph.input.append(helper.make_tensor_value_info(name, kind, values[name].shape))
    graph.output.extend(onnx.ValueInfoProto(name=v) for v in computed if v in requested)
    submodel = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
    submodel.opset_import.extend(model.opset_import)
    return submodel
