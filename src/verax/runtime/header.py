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
from typing import Any, TypeVar

import numpy as np

from verax.ir.assumptions import RELATIONS
from verax.runtime.open_sizes import ArenaBuffer, CountedSize, OpenSizes
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

T = TypeVar("T")

MAX_RANK = 64
MAX_BYTES = 1 << 46
"""Most bytes of one tensor, and of the arena; more is on no machine."""
MAX_NAME = 1 << 16
MAX_OPERATOR, MAX_TEXT = 1 << 20, 1 << 26
SEGMENT = re.compile(r"segment_\d{1,9}")
"""Names of native functions that a schedule may call."""
DIGEST = re.compile(r"[0-9a-f]{64}")
REGIONS = ("arena", "weights", "io", "python")


class HeaderError(ValueError):
    """What is wrong, in a clause."""


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


def read_header(data: bytes, sections: Sequence[str]) -> Header:
    """The header of a file with these sections. Raises `HeaderError`."""
    try:
        content = json.loads(
            data.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise HeaderError("its header is nested without end") from None
    except ValueError as error:
        raise HeaderError(f"its header is unreadable ({error})") from error
    names = {"sections", "image", "notes", "entry", "keys"}
    fields = members(content, "header", names, frozenset({"entry", "keys"}))
    table = members(fields["sections"], "sections", set(sections))
    image = _image(fields["image"])
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


# Values of one type each; `place` names the entry in errors.


def members(
    value: object, location: str, names: set[str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """An object with exactly these members."""
    if not isinstance(value, dict):
        raise HeaderError(f"{location} is no object")
    for name in sorted(names - optional - value.keys()):
        raise HeaderError(f"{location} lacks {name!r}")
    for name in sorted(value.keys() - names):
        raise HeaderError(f"{location} has {name[:80]!a}, which is not known")
    return value


def integer(value: object, location: str, minimum: int = 0, maximum: int = MAX_BYTES) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise HeaderError(f"{location} is no whole number from {minimum} to {maximum}")
    return value


def text(value: object, location: str, limit: int = MAX_NAME) -> str:
    if not isinstance(value, str) or len(value) > limit:
        raise HeaderError(f"{location} is no text of at most {limit} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HeaderError(f"{location} is no valid text") from None
    return value


def flag(value: object, location: str) -> bool:
    if not isinstance(value, bool):
        raise HeaderError(f"{location} is neither true nor false")
    return value


def items(value: object, location: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    """What `read` makes of every item of a list."""
    if not isinstance(value, list):
        raise HeaderError(f"{location} is no list")
    return tuple(read(item, f"{location}[{i}]") for i, item in enumerate(value))


def one_of(value: object, location: str, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise HeaderError(f"{location} is none of {', '.join(choices)}")
    return value


def shape(value: object, location: str, itemsize: int) -> tuple[int, ...]:
    dims = items(value, location, integer)
    if len(dims) > MAX_RANK:
        raise HeaderError(f"{location} has {len(dims)} dimensions")
    if prod(max(d, 1) for d in dims) * itemsize > MAX_BYTES:
        raise HeaderError(f"{location} is absurdly large")
    return dims


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


def _open_sizes(
    value: object, location: str, inputs: Sequence[Signature], outputs: Sequence[Signature]
) -> OpenSizes | None:
    """Those of a program for many sizes, which has as many dimensions as its arrays."""
    if value is None:
        return None
    names = {f.name for f in dataclasses.fields(OpenSizes)}
    fields = members(value, location, names)

    def shapes(name: str, arrays: Sequence[Signature]) -> tuple[tuple[str, ...], ...]:
        dims = items(fields[name], f"{location}.{name}", lambda v, p: items(v, p, text))
        if list(map(len, dims)) != [len(a.shape) for a in arrays]:
            raise HeaderError(f"{location}.{name} are other shapes than those of the arrays")
        return dims

    sizes = OpenSizes(
        symbols=items(fields["symbols"], f"{location}.symbols", text),
        conditions=items(fields["conditions"], f"{location}.conditions", _condition),
        entries=items(fields["entries"], f"{location}.entries", text),
        buffers=items(fields["buffers"], f"{location}.buffers", _arena_buffer),
        start=integer(fields["start"], f"{location}.start"),
        inputs=shapes("inputs", inputs),
        outputs=shapes("outputs", outputs),
        unknown=integer(fields["unknown"], f"{location}.unknown", maximum=1 << 16),
        counted=items(fields["counted"], f"{location}.counted", _counted_size),
        count_conditions=items(
            fields["count_conditions"], f"{location}.count_conditions", _count_condition
        ),
    )
    for i, buffer in enumerate(sizes.buffers):
        if any(j >= i for j in buffer.conflicts):
            raise HeaderError(f"{location}.buffers[{i}] conflicts with one that follows it")
    try:
        sizes.require_readable()
    except ValueError as error:
        raise HeaderError(f"{location}: {error}") from error
    return sizes


def _condition(value: object, location: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise HeaderError(f"{location} is no pair")
    return text(value[0], location), one_of(value[1], location, tuple(RELATIONS))


def _count_condition(value: object, location: str) -> tuple[str, str, str]:
    if not isinstance(value, list) or len(value) != 3:
        raise HeaderError(f"{location} is not three of them")
    return (*_condition(value[:2], location), text(value[2], location))


def _counted_size(value: object, location: str) -> CountedSize:
    fields = members(value, location, {f.name for f in dataclasses.fields(CountedSize)})
    return CountedSize(
        integer(fields["symbol"], f"{location}.symbol"),
        text(fields["name"], f"{location}.name"),
        text(fields["limit"], f"{location}.limit"),
        integer(fields["entry"], f"{location}.entry"),
    )


def _arena_buffer(value: object, location: str) -> ArenaBuffer:
    fields = members(value, location, {f.name for f in dataclasses.fields(ArenaBuffer)})
    return ArenaBuffer(
        text(fields["nbytes"], f"{location}.nbytes"),
        items(fields["conflicts"], f"{location}.conflicts", integer),
        flag(fields["keeps_zeros"], f"{location}.keeps_zeros"),
    )


def _image(value: object) -> dict[str, Any]:
    """The fields of `ProgramBinary` that the header holds; of blocks their sizes and digests."""
    own_sections = {"object_code", "weights"}
    names = {f.name for f in dataclasses.fields(ProgramBinary)} - own_sections
    fields = members(value, "image", names)
    inputs, outputs = (items(fields[v], f"image.{v}", _signature) for v in ("inputs", "outputs"))
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
        "open_sizes": _open_sizes(fields["open_sizes"], "image.open_sizes", inputs, outputs),
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
