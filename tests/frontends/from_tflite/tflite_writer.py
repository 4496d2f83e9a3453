"""Writes small .tflite files for tests, by the slots in `schema.OPTIONS`.

LiteRT reads what this writes, so a slot or an enumeration that is wrong here or in the reader shows
as a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from verax.frontends.tflite.schema import CUSTOM, ENUMS, OPERATORS, OPTIONS, TENSOR_TYPES

flatbuffers = pytest.importorskip("flatbuffers")
Case = tuple[str, bytes]
"""A label, which begins with the operator, and a model."""
_CODES = {str(kind): code for code, kind in TENSOR_TYPES.items()}
_PREPEND = {"int8": "Int8", "uint8": "Uint8", "bool": "Bool", "int32": "Int32",
            "uint32": "Uint32", "uint64": "Uint64", "float32": "Float32"}  # fmt: skip


@dataclass
class Sparsity:
    """order, blocks: as in the schema. levels: a size for a dense level, (segments, indices) for a
    sparse one, in numbers of the type `index`."""

    order: Sequence[int]
    levels: Sequence[int | tuple[Sequence[int], Sequence[int]]]
    blocks: Sequence[int] = ()
    index: str = "int32"


@dataclass
class T:
    """A tensor: an array (a constant), or a shape and a type. scale, zero: when quantised.
    is_variable: it outlives a call. sparsity: how the array, then the values that are not left out,
    fills the shape."""

    shape: Sequence[int] = ()
    dtype: str = "float32"
    data: np.ndarray | None = None
    scale: Sequence[float] = ()
    zero: Sequence[int] = ()
    axis: int = 0
    signature: Sequence[int] = ()
    name: str | None = None
    is_variable: bool = False
    sparsity: Sparsity | None = None


def variable(shape: Sequence[int], dtype: str = "float32") -> T:
    """A variable tensor: state."""
    return T(shape, dtype, is_variable=True)


def const(array: Any, scale: Sequence[float] = (), zero: Sequence[int] = (), axis: int = 0) -> T:
    """A constant tensor."""
    array = np.asarray(array)
    return T(array.shape, array.dtype.name, array, scale, zero, axis)


@dataclass
class Op:
    """An operator on tensors by index (-1: omitted). inner: its intermediate tensors."""

    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    custom: bytes = b""
    inner: Sequence[int] = ()


Part = tuple[Sequence[T], Sequence[Op], Sequence[int], Sequence[int]]
"""A graph: its tensors, operators, and which tensors are its inputs and outputs."""


def one(
    kind: str, operands: Sequence[T | None], result: T, version: int = 1, **options: Any
) -> bytes:
    """A model of one operator; operands without data are the model's inputs x0, x1, ..."""
    result.name = result.name or "y"
    return several(kind, operands, [result], version, **options)


def several(
    kind: str,
    operands: Sequence[T | None],
    results: Sequence[T],
    version: int = 1,
    custom: bytes = b"",
    **options: Any,
) -> bytes:
    """As `one`, for results y0, y1, ... custom: packed options of a custom operator."""
    tensors = [t for t in operands if t is not None]
    where = iter(range(len(tensors)))
    indices = [-1 if t is None else next(where) for t in operands]
    inputs = [i for i, t in enumerate(tensors) if t.data is None and not t.is_variable]
    for i in inputs:
        tensors[i].name = tensors[i].name or f"x{i}"
    for i, t in enumerate(results):
        t.name = t.name or f"y{i}"
    outputs = range(len(tensors), len(tensors) + len(results))
    op = Op(kind, indices, outputs, options, version, custom)
    return model([*tensors, *results], [op], inputs, outputs)


PLACE = 0x7E57_7E57_0000_0000
"""Stands for the offset of a buffer behind the FlatBuffer until that is known."""


def model(
    tensors: Sequence[T],
    ops: Sequence[Op],
    inputs: Sequence[int],
    outputs: Sequence[int],
    behind: bool = False,
    entries: Mapping[str, bytes] | None = None,
    more: Sequence[Part] = (),
) -> bytes:
    """The bytes of a model. behind: constants lie after the FlatBuffer, as in files of more than
    2 GB. entries: metadata by name. more: graphs behind the first, which operators run."""
    b = flatbuffers.Builder(1024)
    moved: list[bytes] = []
    buffers = [_table(b, {})]
    parts = [(tensors, ops, inputs, outputs), *more]
    listed = []
    for own, *_ in parts:
        made = []
        for i, t in enumerate(own):
            buffer = 0
            if t.data is not None:
                buffer = len(buffers)
                raw = np.ascontiguousarray(t.data).tobytes()
                if behind:
                    fields = {1: ("uint64", PLACE + len(moved)), 2: ("uint64", len(raw))}
                    moved.append(raw)
                else:
                    fields = {0: ("offset", b.CreateByteVector(raw))}
                buffers.append(_table(b, fields))
            made.append(_tensor(b, t, t.name if t.name is not None else f"t{i}", buffer))
        listed.append(made)
    notes = []
    for name, content in (entries or {}).items():
        buffers.append(_table(b, {0: ("offset", b.CreateByteVector(content))}))
        fields = {0: ("offset", b.CreateString(name)), 1: ("uint32", len(buffers) - 1)}
        notes.append(_table(b, fields))
    kinds = sorted({(op.kind, op.version) for part in parts for op in part[1]})
    codes = [_code(b, *kind) for kind in kinds]
    graphs = []
    for made, (_, own_ops, ins, outs) in zip(listed, parts):
        operators = [_operator(b, op, kinds.index((op.kind, op.version))) for op in own_ops]
        fields = {
            0: ("offset", _vector(b, made)),
            1: ("offset", b.CreateNumpyVector(np.array(ins, np.int32))),
            2: ("offset", b.CreateNumpyVector(np.array(outs, np.int32))),
            3: ("offset", _vector(b, operators)),
        }
        graphs.append(_table(b, fields))
    root = _table(
        b,
        {
            0: ("uint32", 3),
            1: ("offset", _vector(b, codes)),
            2: ("offset", _vector(b, graphs)),
            4: ("offset", _vector(b, buffers)),
            **({6: ("offset", _vector(b, notes))} if notes else {}),
        },
    )
    b.Finish(root, file_identifier=b"TFL3")
    made_bytes = bytes(b.Output())
    for i, raw in enumerate(moved):
        made_bytes += b"\0" * (-len(made_bytes) % 16)
        place = (PLACE + i).to_bytes(8, "little")
        assert made_bytes.count(place) == 1
        made_bytes = made_bytes.replace(place, len(made_bytes).to_bytes(8, "little")) + raw
    return made_bytes


def _table(b: Any, fields: Mapping[int, tuple[str, Any]]) -> int:
    b.StartObject(max(fields, default=-1) + 1)
    for slot, (kind, value) in fields.items():
        if kind == "offset":
            b.PrependUOffsetTRelativeSlot(slot, value, 0)
        else:
            b.ForceDefaults(True)
            getattr(b, f"Prepend{_PREPEND[kind]}Slot")(slot, value, 0)
            b.ForceDefaults(False)
    return b.EndObject()


def _vector(b: Any, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()


def _tensor(b: Any, t: T, name: str, buffer: int) -> int:
    fields: dict[int, tuple[str, Any]] = {
        0: ("offset", b.CreateNumpyVector(np.array(t.shape, np.int32))),
        1: ("int8", _CODES[t.dtype]),
        2: ("uint32", buffer),
        3: ("offset", b.CreateString(name)),
    }
    if len(t.scale):
        quantisation = {
            2: ("offset", b.CreateNumpyVector(np.array(t.scale, np.float32))),
            3: ("offset", b.CreateNumpyVector(np.array(t.zero, np.int64))),
            6: ("int32", t.axis),
        }
        fields[4] = ("offset", _table(b, quantisation))
    if t.is_variable:
        fields[5] = ("bool", True)
    if t.sparsity is not None:
        fields[6] = ("offset", _sparsity(b, t.sparsity))
    if len(t.signature):
        fields[7] = ("offset", b.CreateNumpyVector(np.array(t.signature, np.int32)))
    return _table(b, fields)


def _sparsity(b: Any, sparsity: Sparsity) -> int:
    kind = {"int32": 1, "uint16": 2, "uint8": 3}[sparsity.index]
    levels = []
    for level in sparsity.levels:
        if isinstance(level, int):
            levels.append(_table(b, {0: ("int8", 0), 1: ("int32", level)}))
            continue
        lists = [b.CreateNumpyVector(np.array(part, sparsity.index)) for part in level]
        segments, indices = (_table(b, {0: ("offset", made)}) for made in lists)
        fields = {0: ("int8", 1), 2: ("uint8", kind), 3: ("offset", segments)}
        levels.append(_table(b, {**fields, 4: ("uint8", kind), 5: ("offset", indices)}))
    order, blocks = (
        b.CreateNumpyVector(np.array(part, np.int32)) for part in (sparsity.order, sparsity.blocks)
    )
    made = {0: ("offset", order), 1: ("offset", blocks), 2: ("offset", _vector(b, levels))}
    return _table(b, made)


def _code(b: Any, kind: str, version: int) -> int:
    number = OPERATORS.index(kind) if kind in OPERATORS else CUSTOM
    fields: dict[int, tuple[str, Any]] = {}
    if number == CUSTOM:
        fields[1] = ("offset", b.CreateString(kind))
    return _table(
        b, {**fields, 0: ("int8", min(number, 127)), 2: ("int32", version), 3: ("int32", number)}
    )


def _operator(b: Any, op: Op, code: int) -> int:
    fields: dict[int, tuple[str, Any]] = {
        0: ("uint32", code),
        1: ("offset", b.CreateNumpyVector(np.array(op.inputs, np.int32))),
        2: ("offset", b.CreateNumpyVector(np.array(op.outputs, np.int32))),
    }
    known = OPTIONS.get(op.kind)
    if op.inner:
        fields[8] = ("offset", b.CreateNumpyVector(np.array(op.inner, np.int32)))
    if op.custom:
        fields[5] = ("offset", b.CreateByteVector(op.custom))
    if known is not None:
        slots = {f.name: (i, f.kind) for i, f in enumerate(known.fields) if f is not None}
        body = {slots[k][0]: _value(b, slots[k][1], v) for k, v in op.options.items()}
        fields[3] = ("uint8", known.type_code)
        fields[4] = ("offset", _table(b, body))
    return _table(b, fields)


def _value(b: Any, kind: str, value: Any) -> tuple[str, Any]:
    if kind == "ints":
        return "offset", b.CreateNumpyVector(np.array(value, np.int32))
    if kind == "text":
        return "offset", b.CreateString(value)
    if kind in ENUMS:
        return "int8", next(code for code, name in ENUMS[kind].items() if name == value)
    return kind, value
