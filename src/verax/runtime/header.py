"""The header of a .vx file: JSON whose every entry has a known name, type and range.

Nothing is believed: an entry that is missing, unknown, given twice or of another type, a number out
of range and a name that is no text are a `HeaderError` that says which one. What the entries mean
together is checked in `runtime.soundness`. A further part of the format is a function here and a
line in `_image`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from verax.runtime.header_sizes import open_sizes_of
from verax.runtime.header_values import (
    HeaderError,
    flag,
    integer,
    items,
    members,
    one_of,
    shape,
    text,
)
from verax.runtime.program_binary import (
    ELEMENT_TYPES,
    CountedStep,
    ProgramBinary,
    PythonStep,
    Scheduled,
    Segment,
    Signature,
    SizeStep,
    State,
    Tensor,
)
from verax.runtime.python_steps import numpy_dtype
from verax.runtime.weight_blocks import WeightBlock

MAX_OPERATOR, MAX_TEXT = 1 << 20, 1 << 26
SEGMENT = re.compile(r"segment_\d{1,9}")
"""Names of native functions that a schedule may call."""
DIGEST = re.compile(r"[0-9a-f]{64}")
REGIONS = ("arena", "weights", "io", "python")


@dataclasses.dataclass(frozen=True)
class Section:
    """Where a section lies, counted from the first one, and the SHA-256 of its content."""

    offset: int
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class BlockRecord:
    """Bytes and SHA-256 of a block of weights."""

    size: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Header:
    """What the header says; the binary still lacks its code, its weights and its initial state.

    entry: the name that the file has in a cache; "" for files that users save. blocks: of weights,
    which follow the sections, or are files beside an entry; keys: those that an entry has for them.
    """

    sections: dict[str, Section]
    notes: dict[str, Any]
    fields: dict[str, Any]
    blocks: tuple[BlockRecord, ...] = ()
    entry: str = ""
    keys: tuple[str, ...] = ()

    def binary(
        self,
        code: bytes,
        weights: np.ndarray,
        initial: memoryview,
        blocks: Sequence[WeightBlock] = (),
    ) -> ProgramBinary:
        """The binary. Raises `HeaderError` when `initial` is not what its state begins with."""
        binary = ProgramBinary(
            object_code=code, weights=weights, blocks=tuple(blocks), **{**self.fields, "state": ()}
        )
        return dataclasses.replace(binary, state=_states(binary, self.fields["state"], initial))


def _states(
    binary: ProgramBinary, state_names: Sequence[tuple[str, str, bool]], data: memoryview
) -> tuple[State, ...]:
    """The state with its initial values."""
    inputs, outputs = {s.name: s for s in binary.inputs}, {s.name: s for s in binary.outputs}
    states, end = [], 0
    for name, new, in_place in state_names:
        if name not in inputs or new not in outputs:
            raise HeaderError(f"the state {name[:80]!a} is no input with an output of its own")
        old, later = inputs[name], outputs[new]
        if (old.dtype, old.shape) != (later.dtype, later.shape):
            raise HeaderError(f"the state {name[:80]!a} changes its type")
        size = prod(old.shape) * ELEMENT_TYPES[old.dtype]
        begin, end = end, end + size
        if end > len(data):
            raise HeaderError("the section 'state' is too short")
        array = np.frombuffer(data[begin:end], numpy_dtype(old.dtype)).reshape(old.shape)
        states.append(State(name, new, array.copy(), in_place))
    if end != len(data):
        raise HeaderError("the section 'state' is too long")
    return tuple(states)


def read_header(data: bytes, sections: Sequence[str], entry: str = "") -> Header:
    """The header of a file with these sections. entry: the name of the entry of a cache that the
    file is. Raises `HeaderError`."""
    try:
        content = json.loads(
            data.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise HeaderError("its header is nested without end") from None
    except ValueError as error:
        raise HeaderError(f"its header is unreadable ({error})") from error
    of_entries = frozenset({"entry", "keys", "size_code"})
    fields = members(content, "header", {"sections", "image", "notes", *of_entries}, of_entries)
    if entry and fields.get("entry") != entry:
        raise HeaderError("it is another entry of the cache")
    table = members(fields["sections"], "sections", set(sections))
    size_code = fields.get("size_code")
    if size_code is not None and not entry:
        raise HeaderError("only an entry of a cache has code for its open sizes")
    image = _image(fields["image"], size_code)
    blocks = image.pop("blocks")
    keys = items(fields.get("keys", []), "keys", _sha256)
    if len(keys) != ("entry" in fields) * len(blocks):
        raise HeaderError("an entry of a cache has a key for every block, other files have none")
    return Header(
        {name: _section(table[name], f"sections.{name}") for name in sections},
        notes=_notes(fields["notes"]),
        fields=image,
        blocks=blocks,
        entry=text(fields.get("entry", ""), "entry", 64),
        keys=keys,
    )


def _block(value: object, location: str) -> BlockRecord:
    fields = members(value, location, {"size", "sha256"})
    return BlockRecord(
        integer(fields["size"], f"{location}.size"), _sha256(fields["sha256"], f"{location}.sha256")
    )


def _without_duplicates(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(entries)
    if len(content) != len(entries):
        raise HeaderError("an entry is given twice")
    return content


def _refuse_constant(text: str) -> None:
    raise HeaderError(f"{text} is no number of JSON")


# Parts of the header


def _section(value: object, location: str) -> Section:
    fields = members(value, location, {"offset", "size", "sha256"})
    offset = integer(fields["offset"], f"{location}.offset")
    size = integer(fields["size"], f"{location}.size")
    return Section(offset, size, _sha256(fields["sha256"], f"{location}.sha256"))


def _sha256(value: object, location: str) -> str:
    digest = text(value, location, 64)
    if not DIGEST.fullmatch(digest):
        raise HeaderError(f"{location} is no digest")
    return digest


def _signature(value: object, location: str) -> Signature:
    fields = members(value, location, {"name", "dtype", "shape"})
    dtype = one_of(fields["dtype"], f"{location}.dtype", tuple(ELEMENT_TYPES))
    dims = shape(fields["shape"], f"{location}.shape", ELEMENT_TYPES[dtype])
    return Signature(text(fields["name"], f"{location}.name"), dtype, dims)


def _tensor(value: object, location: str) -> Tensor:
    fields = members(value, location, {"name", "region", "offset", "dtype", "shape"})
    dtype = one_of(fields["dtype"], f"{location}.dtype", tuple(ELEMENT_TYPES))
    return Tensor(
        text(fields["name"], f"{location}.name"),
        one_of(fields["region"], f"{location}.region", REGIONS),
        integer(fields["offset"], f"{location}.offset"),
        dtype,
        shape(fields["shape"], f"{location}.shape", ELEMENT_TYPES[dtype]),
    )


def _tensor_or_none(value: object, location: str) -> Tensor | None:
    return None if value is None else _tensor(value, location)


def _segment(value: object, location: str) -> Segment:
    function = text(
        members(value, location, {"kind", "function"})["function"], f"{location}.function"
    )
    if not SEGMENT.fullmatch(function):
        raise HeaderError(f"{location}.function is no name of a segment")
    return Segment(function)


def _python_step(value: object, location: str) -> PythonStep:
    fields = members(value, location, {"kind", "node", "inputs", "outputs"})
    return PythonStep(
        integer(fields["node"], f"{location}.node", maximum=1 << 31),
        items(fields["inputs"], f"{location}.inputs", _tensor_or_none),
        items(fields["outputs"], f"{location}.outputs", _tensor),
    )


def _counted_step(value: object, location: str) -> CountedStep:
    fields = members(value, location, {"kind", "rows", "count", "output", "axis"})
    rows, count, output = (
        _tensor(fields[v], f"{location}.{v}") for v in ("rows", "count", "output")
    )
    return CountedStep(rows, count, output, integer(fields["axis"], f"{location}.axis"))


def _state(value: object, location: str) -> tuple[str, str, bool]:
    fields = members(value, location, {"input", "output", "in_place"})
    return (
        text(fields["input"], f"{location}.input"),
        text(fields["output"], f"{location}.output"),
        flag(fields["in_place"], f"{location}.in_place"),
    )


def _size_step(value: object, location: str) -> SizeStep:
    fields = members(value, location, {"kind", "counted"})
    return SizeStep(integer(fields["counted"], f"{location}.counted"))


STEPS: Mapping[str, Callable[[object, str], Scheduled]] = {
    "Segment": _segment,
    "PythonStep": _python_step,
    "CountedStep": _counted_step,
    "SizeStep": _size_step,
}


def _step(value: object, location: str) -> Scheduled:
    kind = value.get("kind") if isinstance(value, dict) else None
    return STEPS[one_of(kind, f"{location}.kind", tuple(STEPS))](value, location)


def _image(value: object, size_code: Any) -> dict[str, Any]:
    """The fields of `ProgramBinary` that the header holds; of blocks their sizes and digests."""
    own_sections = {"object_code", "weights"}
    names = {f.name for f in dataclasses.fields(ProgramBinary)} - own_sections
    fields = members(value, "image", names)
    inputs, outputs = (items(fields[v], f"image.{v}", _signature) for v in ("inputs", "outputs"))
    open_sizes = fields["open_sizes"]
    return {
        "target": text(fields["target"], "image.target", 64),
        "arena_bytes": integer(fields["arena_bytes"], "image.arena_bytes"),
        "inputs": inputs,
        "outputs": outputs,
        "schedule": items(fields["schedule"], "image.schedule", _step),
        "python_outputs": items(fields["python_outputs"], "image.python_outputs", text),
        "checks": items(fields["checks"], "image.checks", text),
        "pool": flag(fields["pool"], "image.pool"),
        "kept_bytes": integer(fields["kept_bytes"], "image.kept_bytes"),
        "state": items(fields["state"], "image.state", _state),
        "blocks": items(fields["blocks"], "image.blocks", _block),
        "open_sizes": open_sizes_of(open_sizes, "image.open_sizes", inputs, outputs, size_code),
    }


# Notes: what people want to know, and the nodes that run in Python

_NOTES = {
    *("verax", "graph", "plan", "on_reference", "tuning", "opt_level", "nodes", "recipe"),
    *("refused", "certificate", "options", "choices", "largest", "largest_at"),
    "open_names",
}
_NODE = {"op", "name", "inputs", "outputs", "input_types", "output_types"}


def _text_or_none(value: object, location: str) -> str | None:
    return None if value is None else text(value, location)


def _node(value: object, location: str) -> dict[str, Any]:
    fields = members(value, location, _NODE)
    return {
        "op": text(fields["op"], f"{location}.op", MAX_OPERATOR),
        "name": text(fields["name"], f"{location}.name"),
        "inputs": items(fields["inputs"], f"{location}.inputs", _text_or_none),
        "outputs": items(fields["outputs"], f"{location}.outputs", text),
        "input_types": items(fields["input_types"], f"{location}.input_types", _text_or_none),
        "output_types": items(fields["output_types"], f"{location}.output_types", text),
    }


def _notes(value: object) -> dict[str, Any]:
    """All notes are optional: a program needs none of them, its Python steps need their nodes."""
    notes = members(value, "notes", _NOTES, frozenset(_NOTES))
    read: dict[str, Callable[[Any, str], Any]] = {
        "verax": text,
        "graph": lambda v, p: text(v, p, MAX_TEXT),
        "plan": lambda v, p: items(v, p, text),
        "on_reference": lambda v, p: items(v, p, text),
        "tuning": text,
        "refused": lambda v, p: items(v, p, text),
        "choices": lambda v, p: items(v, p, text),
        "opt_level": lambda v, p: integer(v, p, maximum=9),
        "nodes": _nodes,
        "recipe": lambda v, p: text(v, p, MAX_TEXT),
        "certificate": lambda v, p: text(v, p, MAX_TEXT),
        "options": text,
        "largest": integer,
        "largest_at": text,
        "open_names": lambda v, p: items(v, p, text),
    }
    return {name: read[name](value, f"notes.{name}") for name, value in notes.items()}


def _nodes(value: object, location: str) -> dict[int, dict[str, Any]]:
    if not isinstance(value, dict):
        raise HeaderError(f"{location} is no object")
    nodes = {}
    for key, node in value.items():
        if not re.fullmatch(r"0|[1-9]\d{0,9}", key, re.ASCII):
            raise HeaderError(f"{location} has a node that is no number: {key[:80]!a}")
        nodes[int(key)] = _node(node, f"{location}.{key}")
    return nodes
