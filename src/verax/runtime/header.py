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

from verax.runtime.image import (
    ELEMENT_TYPES,
    CountedStep,
    Image,
    PythonStep,
    Scheduled,
    Segment,
    Signature,
    State,
    Tensor,
)
from verax.runtime.python_steps import numpy_dtype

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
class Header:
    """What the header says; the image still lacks its code, its weights and its initial state.

    entry: the name that the file has in a cache; "" for files that users save.
    """

    sections: dict[str, Section]
    notes: dict[str, Any]
    fields: dict[str, Any]
    entry: str = ""

    def image(self, code: bytes, weights: np.ndarray, initial: memoryview) -> Image:
        """The image. Raises `HeaderError` when `initial` is not what its state begins with."""
        image = Image(object_code=code, weights=weights, **{**self.fields, "state": ()})
        return dataclasses.replace(image, state=_states(image, self.fields["state"], initial))


def _states(image: Image, pairs: Sequence[tuple[str, str]], data: memoryview) -> tuple[State, ...]:
    """The state with its initial values."""
    inputs, outputs = {s.name: s for s in image.inputs}, {s.name: s for s in image.outputs}
    found, end = [], 0
    for name, new in pairs:
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
        found.append(State(name, new, array.copy()))
    if end != len(data):
        raise HeaderError("the section 'state' is too long")
    return tuple(found)


def read_header(said: bytes, sections: Sequence[str]) -> Header:
    """The header of a file with these sections. Raises `HeaderError`."""
    try:
        content = json.loads(said.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise HeaderError("its header is nested without end") from None
    except ValueError as error:
        raise HeaderError(f"its header is unreadable ({error})") from error
    names = {"sections", "image", "notes", "entry"}
    whole = members(content, "header", names, frozenset({"entry"}))
    table = members(whole["sections"], "sections", set(sections))
    return Header(
        {name: _section(table[name], f"sections.{name}") for name in sections},
        notes=_notes(whole["notes"]),
        fields=_image(whole["image"]),
        entry=text(whole.get("entry", ""), "entry", 64),
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise HeaderError("an entry is given twice")
    return found


def _no_number(text: str) -> None:
    raise HeaderError(f"{text} is no number of JSON")


# Values of one type each; `place` names the entry in errors.


def members(
    value: object, place: str, names: set[str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """An object with exactly these members."""
    if not isinstance(value, dict):
        raise HeaderError(f"{place} is no object")
    for name in sorted(names - optional - value.keys()):
        raise HeaderError(f"{place} lacks {name!r}")
    for name in sorted(value.keys() - names):
        raise HeaderError(f"{place} has {name[:80]!a}, which is not known")
    return value


def integer(value: object, place: str, least: int = 0, most: int = MAX_BYTES) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise HeaderError(f"{place} is no whole number from {least} to {most}")
    return value


def text(value: object, place: str, limit: int = MAX_NAME) -> str:
    if not isinstance(value, str) or len(value) > limit:
        raise HeaderError(f"{place} is no text of at most {limit} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HeaderError(f"{place} is no valid text") from None
    return value


def flag(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise HeaderError(f"{place} is neither true nor false")
    return value


def items(value: object, place: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    """What `read` makes of every item of a list."""
    if not isinstance(value, list):
        raise HeaderError(f"{place} is no list")
    return tuple(read(item, f"{place}[{i}]") for i, item in enumerate(value))


def one_of(value: object, place: str, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise HeaderError(f"{place} is none of {', '.join(known)}")
    return value


def shape(value: object, place: str, itemsize: int) -> tuple[int, ...]:
    found = items(value, place, integer)
    if len(found) > MAX_RANK:
        raise HeaderError(f"{place} has {len(found)} dimensions")
    if prod(max(d, 1) for d in found) * itemsize > MAX_BYTES:
        raise HeaderError(f"{place} is absurdly large")
    return found


# Parts of the header


def _section(value: object, place: str) -> Section:
    found = members(value, place, {"offset", "size", "sha256"})
    digest = text(found["sha256"], f"{place}.sha256", 64)
    if not DIGEST.fullmatch(digest):
        raise HeaderError(f"{place}.sha256 is no digest")
    offset = integer(found["offset"], f"{place}.offset")
    return Section(offset, integer(found["size"], f"{place}.size"), digest)


def _signature(value: object, place: str) -> Signature:
    found = members(value, place, {"name", "dtype", "shape"})
    dtype = one_of(found["dtype"], f"{place}.dtype", tuple(ELEMENT_TYPES))
    dims = shape(found["shape"], f"{place}.shape", ELEMENT_TYPES[dtype])
    return Signature(text(found["name"], f"{place}.name"), dtype, dims)


def _tensor(value: object, place: str) -> Tensor:
    found = members(value, place, {"name", "region", "offset", "dtype", "shape"})
    dtype = one_of(found["dtype"], f"{place}.dtype", tuple(ELEMENT_TYPES))
    return Tensor(
        text(found["name"], f"{place}.name"),
        one_of(found["region"], f"{place}.region", REGIONS),
        integer(found["offset"], f"{place}.offset"),
        dtype,
        shape(found["shape"], f"{place}.shape", ELEMENT_TYPES[dtype]),
    )


def _perhaps_tensor(value: object, place: str) -> Tensor | None:
    return None if value is None else _tensor(value, place)


def _segment(value: object, place: str) -> Segment:
    function = text(members(value, place, {"kind", "function"})["function"], f"{place}.function")
    if not SEGMENT.fullmatch(function):
        raise HeaderError(f"{place}.function is no name of a segment")
    return Segment(function)


def _python_step(value: object, place: str) -> PythonStep:
    found = members(value, place, {"kind", "node", "inputs", "outputs"})
    return PythonStep(
        integer(found["node"], f"{place}.node", most=1 << 31),
        items(found["inputs"], f"{place}.inputs", _perhaps_tensor),
        items(found["outputs"], f"{place}.outputs", _tensor),
    )


def _counted_step(value: object, place: str) -> CountedStep:
    found = members(value, place, {"kind", "rows", "count", "output", "axis"})
    rows, count, output = (_tensor(found[v], f"{place}.{v}") for v in ("rows", "count", "output"))
    return CountedStep(rows, count, output, integer(found["axis"], f"{place}.axis"))


def _state(value: object, place: str) -> tuple[str, str]:
    found = members(value, place, {"input", "output"})
    return text(found["input"], f"{place}.input"), text(found["output"], f"{place}.output")


STEPS: Mapping[str, Callable[[object, str], Scheduled]] = {
    "Segment": _segment,
    "PythonStep": _python_step,
    "CountedStep": _counted_step,
}


def _step(value: object, place: str) -> Scheduled:
    kind = value.get("kind") if isinstance(value, dict) else None
    return STEPS[one_of(kind, f"{place}.kind", tuple(STEPS))](value, place)


def _image(value: object) -> dict[str, Any]:
    """The fields of `Image` that the header holds."""
    names = {f.name for f in dataclasses.fields(Image)} - {"object_code", "weights"}
    found = members(value, "image", names)
    return {
        "target": text(found["target"], "image.target", 64),
        "arena_bytes": integer(found["arena_bytes"], "image.arena_bytes"),
        "inputs": items(found["inputs"], "image.inputs", _signature),
        "outputs": items(found["outputs"], "image.outputs", _signature),
        "schedule": items(found["schedule"], "image.schedule", _step),
        "python_outputs": items(found["python_outputs"], "image.python_outputs", text),
        "checks": items(found["checks"], "image.checks", text),
        "pool": flag(found["pool"], "image.pool"),
        "kept_bytes": integer(found["kept_bytes"], "image.kept_bytes"),
        "state": items(found["state"], "image.state", _state),
    }


# Notes: what people want to know, and the nodes that run in Python

_NOTES = {
    *("verax", "graph", "plan", "on_reference", "tuning", "opt_level", "nodes", "recipe"),
    *("refused", "certificate", "options"),
}
_NODE = {"op", "name", "inputs", "outputs", "input_types", "output_types"}


def _perhaps_text(value: object, place: str) -> str | None:
    return None if value is None else text(value, place)


def _node(value: object, place: str) -> dict[str, Any]:
    found = members(value, place, _NODE)
    return {
        "op": text(found["op"], f"{place}.op", MAX_OPERATOR),
        "name": text(found["name"], f"{place}.name"),
        "inputs": items(found["inputs"], f"{place}.inputs", _perhaps_text),
        "outputs": items(found["outputs"], f"{place}.outputs", text),
        "input_types": items(found["input_types"], f"{place}.input_types", _perhaps_text),
        "output_types": items(found["output_types"], f"{place}.output_types", text),
    }


def _notes(value: object) -> dict[str, Any]:
    """All notes are optional: a program needs none of them, its Python steps need their nodes."""
    found = members(value, "notes", _NOTES, frozenset(_NOTES))
    read: dict[str, Callable[[Any, str], Any]] = {
        "verax": text,
        "graph": lambda v, p: text(v, p, MAX_TEXT),
        "plan": lambda v, p: items(v, p, text),
        "on_reference": lambda v, p: items(v, p, text),
        "tuning": text,
        "refused": lambda v, p: items(v, p, text),
        "opt_level": lambda v, p: integer(v, p, most=9),
        "nodes": _nodes,
        "recipe": lambda v, p: text(v, p, MAX_TEXT),
        "certificate": lambda v, p: text(v, p, MAX_TEXT),
        "options": text,
    }
    return {name: read[name](value, f"notes.{name}") for name, value in found.items()}


def _nodes(value: object, place: str) -> dict[int, dict[str, Any]]:
    if not isinstance(value, dict):
        raise HeaderError(f"{place} is no object")
    found = {}
    for key, node in value.items():
        if not re.fullmatch(r"0|[1-9]\d{0,9}", key, re.ASCII):
            raise HeaderError(f"{place} has a node that is no number: {key[:80]!a}")
        found[int(key)] = _node(node, f"{place}.{key}")
    return found
