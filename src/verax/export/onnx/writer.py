"""Any Graph as an ONNX model, so that every network and every random graph runs elsewhere.

Operators carry ONNX's names and attributes; what little differs is stated by the modules
beside this one. The oldest operator set that can say everything is chosen, so that most runtimes
can read the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.base.storage.files import atomic_write
from verax.export.onnx.emission import OnnxEmission, emission_of
from verax.ir.dim import DimLike, symbols
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.onnx_format.dtypes import CODES, newest_opset
from verax.onnx_format.package import helper, onnx
from verax.onnx_format.packing import packed
from verax.onnx_format.schemas import fits

OLDEST_WRITTEN = 13
"""No older operator set is written."""
INLINE_LIMIT = 1_500_000_000
"""Bytes of weights above which they go to a file of their own (a message holds 2 GiB at most)."""
SMALL = 1024
"""Constants of fewer bytes stay in the model: readers want to see shapes and axes."""
OTHERWISE = "ONNX cannot say this; `verax run` and `verax compile` take the model as it is"
"""What is left to do with a network that has no ONNX form."""

Store: TypeAlias = "Callable[[onnx.TensorProto, np.ndarray], None]"


def to_onnx(graph: Graph, opset: int | None = None) -> onnx.ModelProto:
    """`graph` as a model with its weights inside.

    opset: the operator set to write, or None for the oldest one (from 13) that can express the
    graph. Raises `UnsupportedError` naming the node that the set cannot express.
    """
    return _model(graph, opset, _store_inside)


def to_bytes(graph: Graph, opset: int | None = None) -> bytes:
    """`to_onnx`, serialized. Raises `UnsupportedError` when the weights exceed 2 GiB."""
    if _weight_bytes(graph) > INLINE_LIMIT:
        raise UnsupportedError(
            "the weights do not fit into one ONNX message", next_step="write to a file instead"
        )
    return to_onnx(graph, opset).SerializeToString()


def write_onnx(
    graph: Graph,
    path: str | os.PathLike[str],
    opset: int | None = None,
    inline_limit: int = INLINE_LIMIT,
    metadata: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write `graph` to `path`; returns the files written.

    metadata: entries that the model is to carry. More than `inline_limit` bytes of weights go to
    `<name>.data` beside it. Raises `UnsupportedError` as `to_onnx` does, `UsageError` when a file
    cannot be written.
    """
    target = Path(path)
    if _weight_bytes(graph) <= inline_limit:
        data = _with_metadata(to_onnx(graph, opset), metadata).SerializeToString()
        with atomic_write(target) as stream:
            stream.write(data)
        return [target]
    side = target.with_name(target.name + ".data")
    with atomic_write(side) as stream:

        def store(tensor: onnx.TensorProto, array: np.ndarray) -> None:
            if array.nbytes < SMALL:
                return _store_inside(tensor, array)
            stream.write(b"\0" * (-stream.tell() % 4096))  # pages, so that maps are aligned
            data = packed(array)
            entries = {"location": side.name, "offset": stream.tell(), "length": len(data)}
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            stream.write(data)
            return None

        model = _with_metadata(_model(graph, opset, store), metadata)
    with atomic_write(target) as stream:
        stream.write(model.SerializeToString())
    return [target, side]


def _with_metadata(model: onnx.ModelProto, entries: Mapping[str, str] | None) -> onnx.ModelProto:
    for key, value in (entries or {}).items():
        model.metadata_props.add(key=key, value=value)
    return model


def _weight_bytes(graph: Graph) -> int:
    return sum(array.nbytes for array in graph.constants.values())


def _store_inside(tensor: onnx.TensorProto, array: np.ndarray) -> None:
    tensor.raw_data = packed(array)


def tensor_proto(name: str, array: np.ndarray, store: Store = _store_inside) -> onnx.TensorProto:
    """An array as an initializer."""
    tensor = onnx.TensorProto(name=name, data_type=CODES[DType.of(array)], dims=array.shape)
    store(tensor, array)
    return tensor


def value_info(name: str, type_: TensorType) -> onnx.ValueInfoProto:
    """A declared value; sizes that only running can tell are left open."""
    return helper.make_tensor_value_info(name, CODES[type_.dtype], [_dim(d) for d in type_.dims])


def _dim(dim: DimLike) -> int | str | None:
    if isinstance(dim, int):
        return dim
    return None if any(name.startswith("_") for name in symbols(dim)) else str(dim)


def _model(graph: Graph, opset: int | None, store: Store) -> onnx.ModelProto:
    version = _opset(graph) if opset is None else opset
    last = newest_opset()
    if not OLDEST_WRITTEN <= version <= last:
        raise UsageError(
            f"opset {version} cannot be written",
            next_step=f"choose one from {OLDEST_WRITTEN} to {last}",
        )
    nodes: list[onnx.NodeProto] = []
    constants = dict(graph.constants)
    for node in graph.nodes:
        emission = emission_of(node, graph, version)
        problem = _problem(emission, node, graph, version)
        if problem:
            newest = _problem(emission_of(node, graph, last), node, graph, last)
            raise UnsupportedError(
                f"opset {version} cannot express it: {problem}",
                place=node.place,
                next_step=OTHERWISE if newest else "write a newer opset",
            )
        constants |= emission.constants
        nodes += emission.nodes
    _name_once(nodes)
    read = {*graph.outputs, *_read(nodes)}
    body = helper.make_graph(
        nodes,
        graph.name,
        [value_info(v, graph.types[v]) for v in graph.inputs],
        [value_info(v, graph.types[v]) for v in graph.outputs],
        [tensor_proto(name, array, store) for name, array in constants.items() if name in read],
    )
    imports = [helper.make_opsetid("", version)]
    return helper.make_model(
        body,
        opset_imports=imports,
        ir_version=helper.find_min_ir_version_for(imports),
        producer_name="verax",
    )


def _read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Names that nodes read, those in their bodies too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _read(attribute.g.node)


def _name_once(nodes: Sequence[onnx.NodeProto]) -> None:
    """Number the nodes that one foreign node became: ONNX Runtime refuses a name given twice."""
    reserved = {node.name for node in nodes}
    used: set[str] = set()
    for node in nodes:
        name, i = node.name, 1
        while node.name and node.name in used:
            i += 1
            if f"{name}_{i}" not in reserved:
                node.name = f"{name}_{i}"
        used.add(node.name)
        reserved.add(node.name)


def _opset(graph: Graph) -> int:
    """The oldest operator set that expresses every node."""
    for version in range(OLDEST_WRITTEN, newest_opset() + 1):
        if all(
            not _problem(emission_of(n, graph, version), n, graph, version) for n in graph.nodes
        ):
            return version
    problems = _newest_problems(graph) or ["no single opset expresses all nodes"]
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    raise UnsupportedError("; ".join(problems[:3]) + more, next_step=OTHERWISE)


def _newest_problems(graph: Graph) -> Sequence[str]:
    newest = newest_opset()
    problems = ((n, _problem(emission_of(n, graph, newest), n, graph, newest)) for n in graph.nodes)
    return [f"{node.place}: {problem}" for node, problem in problems if problem]


def _problem(emission: OnnxEmission, node: Node, graph: Graph, version: int) -> str:
    """Why a node's emission is not valid in an operator set, or "" when it is."""
    if emission.problem:
        return emission.problem
    if len(emission.nodes) > 1:
        return ""  # made of operators that every version written here has
    types = {v: graph.types[v] for v in (*node.inputs, *node.outputs) if v is not None}
    types |= {name: TensorType.of(array) for name, array in emission.constants.items()}
    return fits(emission.nodes[0], types, version)
