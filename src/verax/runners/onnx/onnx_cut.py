"""The part of an ONNX file that answers to a part of the network under test.

A subject that runs a file of its own is handed parts of OUR graph; what it has to run is the same
part of ITS file, mistakes included. Values are matched by name.
"""

from __future__ import annotations

from verax.base.errors import UsageError
from verax.ir.graph import Graph
from verax.onnx_format.dtypes import CODES
from verax.onnx_format.package import helper, message, numpy_helper, onnx


def part_of(model: str | bytes, graph: Graph) -> str | bytes:
    """`model` itself when it takes and gives what `graph` does, else the part of it that does.

    model: a path or bytes; the part comes as bytes with its weights inside. What the file computes
    and `graph` holds as constants (shapes) becomes constant. A model that has none of the graph's
    outputs, or lacks one of its inputs, is another network and is returned as it is, as a damaged
    file is: running it says what is wrong. Raises `UsageError` when the file has no such part.
    """
    try:
        proto = _load(model, weights=False)
    except (message.DecodeError, OSError):
        return model
    own = {v.name for v in proto.graph.output}
    computed = {v for n in proto.graph.node for v in n.output if v}
    if own >= set(graph.outputs) and _inputs(proto) == set(graph.inputs):
        return model
    if not computed & set(graph.outputs) or not set(graph.inputs) <= computed | _inputs(proto):
        return model
    return _extract(_load(model, weights=True), graph).SerializeToString()


def _load(model: str | bytes, *, weights: bool) -> onnx.ModelProto:
    if isinstance(model, bytes):
        return onnx.load_model_from_string(model)
    return onnx.load_model(model, load_external_data=weights)


def _inputs(proto: onnx.ModelProto) -> set[str]:
    weights = {t.name for t in proto.graph.initializer}
    return {v.name for v in proto.graph.input} - weights


def _extract(proto: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """Nodes from `graph.inputs` (or constants of `graph`) to `graph.outputs`."""
    producers = {v: i for i, n in enumerate(proto.graph.node) for v in n.output if v}
    stored = {t.name: t for t in proto.graph.initializer}
    stored_sparse = {t.values.name for t in proto.graph.sparse_initializer}
    node_indices: set[int] = set()
    weights: dict[str, onnx.TensorProto] = {}
    seen: set[str] = set()
    waiting = list(graph.outputs)
    while waiting:
        value = waiting.pop()
        if value in seen or not value:
            continue
        seen.add(value)
        if value in graph.inputs:
            continue
        if value in stored:
            weights[value] = stored[value]
        elif value in producers and value not in graph.constants:
            node_indices.add(producers[value])
            waiting += _reads(proto.graph.node[producers[value]])
        elif value in graph.constants:
            weights[value] = numpy_helper.from_array(graph.constants[value], value)
        elif value not in stored_sparse:
            raise UsageError(
                f"the subject's file computes {value!r} from other values than the network does",
                place=value,
                next_step="judge the subject as a whole, or give a file with the same value names",
            )
    extracted = onnx.ModelProto(ir_version=proto.ir_version, producer_name=proto.producer_name)
    extracted.opset_import.extend(proto.opset_import)
    extracted.functions.extend(proto.functions)
    extracted.graph.name = proto.graph.name
    extracted.graph.value_info.extend(v for v in proto.graph.value_info if v.name in seen)
    extracted.graph.sparse_initializer.extend(proto.graph.sparse_initializer)
    extracted.graph.node.extend(proto.graph.node[i] for i in sorted(node_indices))
    extracted.graph.initializer.extend(weights.values())
    extracted.graph.input.extend(_typed(graph, v) for v in graph.inputs)
    extracted.graph.output.extend(onnx.ValueInfoProto(name=v) for v in graph.outputs)
    return extracted


def _reads(node: onnx.NodeProto) -> list[str]:
    """Values that a node reads, those that its inner graphs take from outside included."""
    names = list(node.input)
    for attribute in node.attribute:
        for inner in [attribute.g, *attribute.graphs]:
            own = {v.name for v in inner.input} | {t.name for t in inner.initializer}
            for child in inner.node:
                names += [v for v in _reads(child) if v not in own]
                own.update(child.output)
    return names


def _typed(graph: Graph, value: str) -> onnx.ValueInfoProto:
    """A declaration with the sizes that are known."""
    type_ = graph.types[value]
    sizes = [d if isinstance(d, int) else None for d in type_.dims]
    return helper.make_tensor_value_info(value, CODES[type_.dtype], sizes)
