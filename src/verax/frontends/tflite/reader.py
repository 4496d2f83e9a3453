"""TFLite bytes -> foreign nodes, by reading the FlatBuffer directly: no package is needed.

A path is memory-mapped and constants are views of the map, so weights cost nothing until they are
used. An operator's options become attributes under their names in the schema, defaults included;
the quantization of its operands becomes attributes `input0.scale`, `output0.zero_point`, ..., since
it decides what the operator computes. Variable tensors are the model's state (see `state`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import Branch, SubgraphCall, While
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue, Subgraph
from verax.frontends.tflite.complex_parts import in_parts
from verax.frontends.tflite.flatbuffer import FlatbufferTable, damaged, root
from verax.frontends.tflite.flexbuffer import read_map
from verax.frontends.tflite.pixels import ENTRY, read_pixels
from verax.frontends.tflite.resources import Resources
from verax.frontends.tflite.schema import (
    CUSTOM,
    ENUMS,
    IDENTIFIER,
    OPERATORS,
    OPTIONS,
    TENSOR_TYPES,
    Field,
    Options,
)
from verax.frontends.tflite.sparse import dense
from verax.frontends.tflite.state import VariableTensors
from verax.ir.types import DType
from verax.onnx_format.packing import stored_bytes, unpacked

MAX_ITEMS = 1_000_000
"""Tensors, and operands of all operators together, that a file may have."""
MAPS = ("TFLite_Detection_PostProcess",)
"""Custom operators whose options are a FlexBuffers map."""
PACKED = {"int4": DType.int8, "uint4": DType.uint8, "int2": DType.int8}
"""Constants of these types lie two or four to a byte, and are read as whole bytes."""
MAX_INNER = 16
"""Intermediate tensors that an operator may state; they say how its inner values are rounded."""
MAX_RANK = 16
MAX_NAME = 4096
KEPT = {"LSTM": 2}
"""How many outputs of an operator hold results; the rest is memory to work in."""
CONTROL = {
    "IF": ("then_subgraph_index", "else_subgraph_index"),
    "WHILE": ("cond_subgraph_index", "body_subgraph_index"),
    "CALL": ("subgraph",),
    "CALL_ONCE": ("init_subgraph_index",),
}
"""Operators that run other subgraphs, and the options that name these."""
MAX_DEPTH = 16
"""Subgraphs within subgraphs."""
TYPED_BY_OUTPUT = ("CAST", "QUANTIZE")
"""Operators whose output tensor's type says what they do: it becomes the attribute output_type."""


@dataclass(frozen=True)
class FileTensor:
    """A tensor of the file. scale, zero_point: None unless quantized. is_variable: it outlives a
    call."""

    name: str
    dtype: DType | None
    kind: str
    dims: tuple[int, ...]
    signature: tuple[int, ...]
    data: memoryview | None
    scale: np.ndarray | None
    zero_point: np.ndarray | None
    axis: int
    is_variable: bool = False
    sparsity: FlatbufferTable | None = None

    @property
    def value(self) -> ForeignValue:
        """As an input: -1 in the signature leaves a size open."""
        signature = self.signature or self.dims
        dims = tuple(None if s == -1 else d for d, s in zip(self.dims, signature))
        return ForeignValue(self.name, self.dtype, dims, self.kind)

    @property
    def recorded(self) -> ForeignValue:
        """As a record to hold inferred types against.

        Old converters wrote 1 for a size that they did not know and no signature, so a 1 says
        nothing there, and a scalar for a shape that they did not know at all; LiteRT infers such
        sizes anew as well.
        """
        dims = self.value.dims
        if not dims:
            return ForeignValue(self.name, self.dtype, None, self.kind)
        if not self.signature:
            dims = tuple(None if d == 1 else d for d in dims)
        return ForeignValue(self.name, self.dtype, dims, self.kind)


def read_model(data: memoryview) -> ForeignModel:
    """The first subgraph of a model. Raises `ModelError` for a damaged file, `UnsupportedError`
    for what no table could express."""
    model = root(data, IDENTIFIER)
    version = model.integer(0, "uint32")
    if version != 3:
        raise UnsupportedError(f"the file has schema version {version}, only 3 is supported")
    codes = [_operator_name(code) for code in _limited(model.tables(1), "operator codes")]
    graphs = list(_limited(model.tables(2), "subgraphs"))
    buffers = [_buffer(b, data) for b in _limited(model.tables(4), "buffers")]
    if not graphs:
        raise damaged("it holds no graph")
    graph = graphs[0]
    tensors = _tensors(graph, buffers)
    variables = [t for t in tensors if t.is_variable]
    zeros = {
        t.name: int(t.zero_point[0])
        for t in variables
        if t.kind == "int8" and t.zero_point is not None
    }
    state = VariableTensors([t.value for t in variables], {t.name for t in tensors}, zeros)
    bodies = SubgraphReader(graphs, codes, buffers)
    resources = Resources(state.named)
    placed = (bodies.placed(n) for n in state.threaded(_nodes(graph, codes, tensors)))
    nodes = tuple(in_parts(resources.threaded(placed), state.named))
    inputs = [_operand(i, tensors) for i in graph.array(1, "int32")]
    outputs = [_operand(i, tensors) for i in graph.array(2, "int32")]
    _check_names(inputs, outputs, nodes)
    # Converters record results of custom operators as scalars, not knowing any better.
    custom = {o for node in nodes if node.domain for o in node.outputs}
    unknown = {t.name for t in tensors if t.name in custom and not t.dims}
    used = {name for node in nodes for name in node.inputs} | {t.name for t in outputs}
    computed = {t.name for t in inputs} | {name for node in nodes for name in node.outputs}
    constants = {
        t.name: _constant(t) for t in tensors if t.name in used and _is_constant(t, computed)
    }
    return ForeignModel(
        name=_name(graph, 4) or "graph",
        inputs=(*(t.value for t in inputs), *state.inputs, *resources.inputs),
        outputs=(*(t.value for t in outputs), *state.outputs, *resources.outputs),
        nodes=nodes,
        constants={**constants, **state.untouched, **resources.untouched},
        declared={t.name: t.recorded for t in tensors if not t.data and t.name not in unknown},
        versions={"schema": version},
        metadata={
            **_metadata(model, len(graphs), tensors),
            **_image_lines(model, buffers, [t.name for t in inputs]),
        },
        updates={**state.updates, **resources.updates},
        initial={**state.initial, **resources.initial},
    )


class SubgraphReader:
    """The further subgraphs of a file, which branches and loops run."""

    def __init__(
        self,
        graphs: list[FlatbufferTable],
        codes: list[tuple[str, str, int]],
        buffers: list[memoryview],
        depth: int = 0,
    ) -> None:
        self.graphs, self.codes, self.buffers, self.depth = graphs, codes, buffers, depth

    def placed(self, node: ForeignNode) -> ForeignNode:
        """A node with the subgraphs that it runs, if it runs any."""
        if node.domain or node.op_type not in CONTROL:
            return node
        first, *more = (self._body(node, node.attributes[name]) for name in CONTROL[node.op_type])
        ends = node.inputs, node.outputs
        if node.op_type == "CALL_ONCE":
            return _made_once(node, first)
        if node.op_type == "CALL":
            return SubgraphCall("CALL", *ends, {}, node.name, "", node.version, body=first)
        if node.op_type == "IF":
            return Branch(
                "IF", *ends, {}, node.name, "", node.version, then=first, otherwise=more[0]
            )
        return While("WHILE", *ends, {}, node.name, "", node.version, test=first, body=more[0])

    def _body(self, node: ForeignNode, index: int) -> Subgraph:
        if not 0 < index < len(self.graphs) or self.depth > MAX_DEPTH:
            raise damaged(f"{node.op_type} runs the subgraph {index}")
        graph = self.graphs[index]
        tensors = _tensors(graph, self.buffers)
        if any(t.is_variable for t in tensors):
            raise UnsupportedError("a branch or loop has variable tensors", place=node.place)
        inside = SubgraphReader(self.graphs, self.codes, self.buffers, self.depth + 1)
        nodes = tuple(inside.placed(n) for n in _nodes(graph, self.codes, tensors))
        inputs, outputs = (
            tuple(_operand(i, tensors).name for i in graph.array(slot, "int32")) for slot in (1, 2)
        )
        read = {v for n in nodes for v in n.inputs} | set(outputs)
        computed = {*inputs, *(v for n in nodes for v in n.outputs)}
        constants = {
            t.name: _constant(t) for t in tensors if t.name in read and _is_constant(t, computed)
        }
        return Subgraph(inputs, outputs, constants, nodes)


def _made_once(node: ForeignNode, graph: Subgraph) -> ForeignNode:
    """A graph that runs before the first call, for what it writes to (see `resources`)."""
    if node.inputs or node.outputs:
        raise damaged("CALL_ONCE has operands")
    return SubgraphCall("CALL_ONCE", (), (), {}, node.name, "", node.version, body=graph)


def _limited(tables: Iterable[FlatbufferTable], description: str) -> Iterator[FlatbufferTable]:
    for i, table in enumerate(tables):
        if i >= MAX_ITEMS:
            raise ModelError(f"the file has more than {MAX_ITEMS} {description}")
        yield table


def _name(table: FlatbufferTable, slot: int) -> str:
    if len(table.array(slot, "uint8")) > MAX_NAME:
        raise damaged(f"a name is longer than {MAX_NAME} bytes")
    return table.text(slot)


def _operator_name(code: FlatbufferTable) -> tuple[str, str, int]:
    """(domain, operator, version): the larger of the old and the new code field counts."""
    index = max(code.integer(0, "int8"), code.integer(3))
    version = code.integer(2, default=1)
    if index == CUSTOM:
        return "custom", _name(code, 1) or "unnamed", version
    return "", OPERATORS[index] if 0 <= index < len(OPERATORS) else f"{index}", version


def _buffer(table: FlatbufferTable, data: memoryview) -> memoryview:
    """A buffer's bytes; those of large files lie behind the FlatBuffer, at an offset."""
    offset, size = table.integer(1, "uint64"), table.integer(2, "uint64")
    if offset > 1:
        if offset + size > len(data):
            raise damaged(f"a buffer of {size} bytes at byte {offset} reaches beyond the file")
        return data[offset : offset + size]
    return memoryview(table.array(0, "uint8"))  # type: ignore[arg-type]


def _tensors(graph: FlatbufferTable, buffers: list[memoryview]) -> list[FileTensor]:
    tables = list(_limited(graph.tables(0), "tensors"))
    names = [_name(table, 3) for table in tables]
    counts, used_names = Counter(names), set(names)
    tensors = []
    for i, (table, name) in enumerate(zip(tables, names)):
        if not name or counts[name] > 1:
            name = f"{name or 'tensor'}:{i}"
            while name in used_names:
                name += "'"
            used_names.add(name)
        tensors.append(_tensor(table, name, buffers))
    return tensors


def _tensor(table: FlatbufferTable, name: str, buffers: list[memoryview]) -> FileTensor:
    location = f"tensor {name!r}"
    code, buffer = table.integer(1, "int8"), table.integer(2, "uint32")
    dims, signature = table.array(0, "int32"), table.array(7, "int32")
    if buffer >= len(buffers):
        raise ModelError(f"its buffer {buffer} does not exist", place=location)
    if max(len(dims), len(signature)) > MAX_RANK or (dims < 0).any():
        raise ModelError(f"its shape is {dims[:MAX_RANK].tolist()}", place=location)
    if len(signature) not in (0, len(dims)) or (signature < -1).any():
        raise ModelError("its shape and its shape_signature contradict each other", place=location)
    if table.has(9):
        raise UnsupportedError("variant tensors are not supported", place=location)
    kind = TENSOR_TYPES.get(code, f"type {code}")
    data = buffers[buffer] if len(buffers[buffer]) else None
    is_variable = bool(table.scalar(5, "bool", False))
    if is_variable and data is not None:
        raise UnsupportedError(
            "a variable tensor begins with zeros; this has content", place=location
        )
    dtype = kind if isinstance(kind, DType) else None
    if data is not None and kind in PACKED:
        dtype = PACKED[str(kind)]
    scale, zero, axis = _quantization(table.table(4), location)
    return FileTensor(
        name, dtype, str(kind), tuple(dims.tolist()), tuple(signature.tolist()), data,
        scale, zero, axis, is_variable, table.table(6),
    )  # fmt: skip


def _quantization(
    table: FlatbufferTable | None, location: str
) -> tuple[np.ndarray | None, np.ndarray | None, int]:
    """Scales, zero points, and the axis that they run along.

    Without scales a tensor is not quantized; `min` and `max` are notes from calibration.
    """
    if table is None:
        return None, None, 0
    if table.integer(4, "uint8"):
        raise UnsupportedError("custom quantization is not supported", place=location)
    scale, zero = table.array(2, "float32"), table.array(3, "int64")
    if not len(scale):
        return None, None, 0
    if not len(zero):
        zero = np.zeros(len(scale), np.int64)
    if len(zero) not in (1, len(scale)):
        raise ModelError(f"it has {len(scale)} scales and {len(zero)} zero points", place=location)
    return scale, np.broadcast_to(zero, scale.shape), table.integer(6)


def _is_constant(tensor: FileTensor, computed: set[str]) -> bool:
    """True if the file holds the tensor's content: bytes, or none for a tensor without stored
    elements that is in no operator's outputs, `computed`."""
    empty = 0 in tensor.dims or tensor.sparsity is not None
    return bool(tensor.data) or (empty and not tensor.is_variable and tensor.name not in computed)


def _constant(tensor: FileTensor) -> np.ndarray:
    """The array of a constant, as a view of the file."""
    location = f"tensor {tensor.name!r}"
    if tensor.dtype is None:
        raise UnsupportedError(f"a constant is {tensor.kind}", place=location)
    data = b"" if tensor.data is None else tensor.data
    count, packed = math.prod(tensor.dims), tensor.kind in PACKED
    if tensor.sparsity is not None:
        if packed or len(data) % tensor.dtype.itemsize:
            raise UnsupportedError(
                f"sparse tensors of {tensor.kind} are not supported", place=location
            )
        values = np.frombuffer(data, tensor.dtype.numpy)
        return dense(values, tensor.dims, tensor.sparsity, location)
    declared = DType(tensor.kind) if packed else tensor.dtype
    size = stored_bytes(declared, count)
    if size != len(data):
        raise ModelError(
            f"its shape {list(tensor.dims)} needs {size} bytes, the file has {len(data)}",
            place=location,
        )
    if packed:
        sub_byte_values = unpacked(np.frombuffer(data, np.uint8), declared, count)
        return sub_byte_values.astype(tensor.dtype.numpy).reshape(tensor.dims)
    array = np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.dims)
    return array if array.flags.aligned else array.copy()


def _operand(index: int, tensors: list[FileTensor]) -> FileTensor:
    if not 0 <= index < len(tensors):
        raise damaged(f"the tensor {index} does not exist")
    return tensors[index]


def _nodes(
    graph: FlatbufferTable, codes: list[tuple[str, str, int]], tensors: list[FileTensor]
) -> Iterator[ForeignNode]:
    operands = 0
    for table in _limited(graph.tables(3), "operators"):
        index = table.integer(0, "uint32")
        if index >= len(codes):
            raise damaged(f"the operator code {index} does not exist")
        domain, op_type, version = codes[index]
        inputs, outputs = table.array(1, "int32"), table.array(2, "int32")
        operands += len(inputs) + len(outputs)
        if operands > MAX_ITEMS:
            raise ModelError(f"the operators have more than {MAX_ITEMS} operands")
        sources = [None if i == -1 else _operand(i, tensors) for i in inputs]
        targets = [_operand(i, tensors) for i in outputs][: KEPT.get(op_type)]
        attributes = _custom_options(table, op_type) if domain else _options(table, op_type)
        if op_type in TYPED_BY_OUTPUT and targets:
            attributes["output_type"] = targets[0].kind
        if op_type == "EMBEDDING_LOOKUP" and len(sources) > 1 and sources[1] is not None:
            _must_fill_bytes(sources[1])
        inner = [_operand(i, tensors) for i in table.array(8, "int32")[:MAX_INNER]]
        for side, side_tensors in (("input", sources), ("output", targets), ("inner", inner)):
            for i, tensor in enumerate(side_tensors):
                if tensor is not None and tensor.scale is not None:
                    attributes[f"{side}{i}.scale"] = tensor.scale
                    attributes[f"{side}{i}.zero_point"] = tensor.zero_point
                    if tensor.scale.size > 1:
                        attributes[f"{side}{i}.quantized_dimension"] = tensor.axis
        yield ForeignNode(
            op_type,
            tuple("" if t is None else t.name for t in sources),
            tuple(t.name for t in targets),
            attributes,
            "",
            domain,
            version,
        )


def _must_fill_bytes(table: FileTensor) -> None:
    """Refuse a packed table whose rows end within a byte: LiteRT reads other numbers there."""
    size = math.prod(table.dims[1:])
    if table.kind in PACKED and size * int(table.kind[-1]) % 8:
        raise UnsupportedError(
            f"LiteRT misreads rows of {size} {table.kind} that end within a byte",
            place=f"tensor {table.name!r} (EMBEDDING_LOOKUP)",
        )


def _custom_options(table: FlatbufferTable, op_type: str) -> dict[str, Any]:
    """Entries of a map where that is known to be the form, else the bytes."""
    if table.integer(9, "uint64") > 1:
        return {"options behind the FlatBuffer": table.integer(10, "uint64")}
    options = table.array(5, "uint8")
    return dict(read_map(options.tobytes())) if op_type in MAPS else {"custom_options": options}


def _options(table: FlatbufferTable, op_type: str) -> dict[str, Any]:
    """The operator's options, with defaults; a field that the schema lacks keeps its slot."""
    type_code, body = table.integer(3, "uint8"), table.table(4)
    expected = OPTIONS.get(op_type, Options(0, ()))
    if table.integer(11, "uint8"):  # no operator with a row has such
        return {"options of the second kind": table.integer(11, "uint8")}
    if type_code not in (0, expected.type_code):
        if op_type not in OPTIONS:  # no options are needed: the table has no row, or reads none
            return {"options": type_code}
        raise ModelError(f"{op_type} has options of another operator ({type_code})")
    if type_code == 0 or body is None:
        return {f.name: _default(f) for f in expected.fields if f is not None}
    options: dict[str, Any] = {}
    for slot, field in enumerate(expected.fields):
        if field is not None:
            options[field.name] = _field(body, slot, field)
        elif body.has(slot):
            options[f"slot{slot}"] = "set"
    for slot in range(len(expected.fields), len(body.slots())):
        if body.has(slot):
            options[f"slot{slot}"] = "set"
    return options


def _default(field: Field) -> Any:
    if field.kind in ("ints", "text"):
        return () if field.kind == "ints" else ""
    if field.kind in ENUMS:
        return ENUMS[field.kind][field.default]
    return float(field.default) if field.kind == "float32" else field.default


def _field(body: FlatbufferTable, slot: int, field: Field) -> Any:
    if field.kind == "ints":
        values = body.array(slot, "int32")
        if len(values) > MAX_RANK:
            raise damaged(f"{field.name} has {len(values)} numbers")
        return tuple(values.tolist())
    if field.kind == "text":
        return _name(body, slot)
    if field.kind in ENUMS:
        enum_value = body.integer(slot, "int8", field.default)
        return ENUMS[field.kind].get(enum_value, f"{enum_value}")
    value = body.scalar(slot, field.kind, field.default)
    return float(value) if field.kind == "float32" else int(value)


def _check_names(
    inputs: list[FileTensor], outputs: list[FileTensor], nodes: tuple[ForeignNode, ...]
) -> None:
    """No tensor is written twice: by the caller, by the file, or by two operators."""
    writers = Counter(t.name for t in inputs)
    writers.update(o for node in nodes for o in node.outputs)
    twice = [name for name, count in writers.items() if count > 1]
    if twice or len({t.name for t in outputs}) != len(outputs):
        raise ModelError(f"the tensor {(twice or ['of an output'])[0]!r} is defined twice")
    if not outputs:
        raise damaged("the graph has no output")
    if any(t.data for t in inputs):
        raise damaged("an input is a constant")
    if any(t.is_variable for t in (*inputs, *outputs)):
        raise UnsupportedError("a variable tensor is an input or output of the graph")


def _image_lines(
    model: FlatbufferTable, buffers: list[memoryview], inputs: list[str]
) -> dict[str, str]:
    """Lines on image inputs from the buffer with TFLite's metadata, where there is one."""
    for entry in _limited(model.tables(6), "metadata entries"):
        buffer = entry.integer(1, "uint32")
        if _name(entry, 0) == ENTRY and buffer < len(buffers):
            return read_pixels(buffers[buffer], inputs)
    return {}


def _metadata(model: FlatbufferTable, graphs: int, tensors: list[FileTensor]) -> dict[str, str]:
    """The file's description and metadata entries, and its signatures: further names of tensors."""
    entries = {"description": _name(model, 3), "subgraphs": str(graphs)}
    for entry in _limited(model.tables(7), "signatures"):
        if entry.integer(4, "uint32") == 0:
            sides = (_limited(entry.tables(slot), "names of a signature") for slot in (0, 1))
            ins, outs = (
                [f"{_name(t, 0)} = {_operand(t.integer(1, 'uint32'), tensors).name}" for t in side]
                for side in sides
            )
            entries[f"signature {_name(entry, 2)}"] = f"{', '.join(ins)} -> {', '.join(outs)}"
    names = [_name(entry, 0) for entry in _limited(model.tables(6), "metadata entries")]
    return {**{k: v for k, v in entries.items() if v}, "metadata": ", ".join(names)}
