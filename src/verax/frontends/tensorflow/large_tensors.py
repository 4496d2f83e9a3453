"""Large tensors lifted out of a serialized graph, so that parsing does not copy the weights.

Protobuf copies every byte that it parses, twice once a field is read. The bytes are walked here
along the one path that leads to tensors; contents stay views of the (mapped) file, and the message
that remains to be parsed is small. Source of the encoding: protobuf's public wire format.
"""

from __future__ import annotations

SMALL = 4096
"""Messages and contents up to this many bytes stay where they are."""
CONTENT, PLACE = 4, 1000
"""Field numbers of a Tensor: its content, and which lifted content is meant, counted from 1."""
CHILDREN: dict[str, dict[int, str]] = {
    "SavedModel": {2: "MetaGraph"},
    "MetaGraph": {2: "Graph"},
    "Graph": {1: "Node", 2: "Library"},
    "Library": {1: "Function"},
    "Function": {3: "Node"},
    "Node": {5: "Entry"},
    "Entry": {2: "Attribute"},
    "Attribute": {8: "Tensor"},
    "Tensor": {},
}
"""Messages on the way to tensors: which fields hold which message."""
ONCE = ("Entry", "Attribute", "Tensor")
"""Messages in which a field that is followed may occur once: a second one would be merged."""


def lifted(data: memoryview, kind: str) -> tuple[bytes, list[memoryview]]:
    """The message without its large contents, and these in the order of their places.

    kind: of the message, "Graph" or "SavedModel". What cannot be walked stays as it is, for
    protobuf to judge.
    """
    contents: list[memoryview] = []
    try:
        return _walked(data, kind, contents), contents
    except (IndexError, ValueError):
        return bytes(data), []


def _walked(data: memoryview, kind: str, contents: list[memoryview]) -> bytes:
    pieces: list[bytes | memoryview] = []
    children, at, copied_to = CHILDREN[kind], 0, 0
    followed: set[int] = set()
    while at < len(data):
        start = at
        key, at = varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == 2:
            size, at = varint(data, at)
            end = at + size
        elif wire == 0:
            size, end = 0, varint(data, at)[1]
        elif wire in (1, 5):
            size, end = 0, at + (8 if wire == 1 else 4)
        else:
            raise ValueError("a group")
        if end > len(data):
            raise ValueError("a field goes beyond its message")
        is_content = kind == "Tensor" and field == CONTENT
        if is_content or field in children:
            if kind in ONCE and field in followed:
                raise ValueError("a field that occurs twice")
            followed.add(field)
        if kind == "Tensor" and field == PLACE:
            raise ValueError("a field that only this module writes")
        if wire == 2 and size > SMALL and (is_content or field in children):
            pieces.append(data[copied_to:start])
            if is_content:
                contents.append(data[at:end])
                pieces += [_encoded(PLACE << 3), _encoded(len(contents))]
            else:
                inner = _walked(data[at:end], children[field], contents)
                pieces += [_encoded(key), _encoded(len(inner)), inner]
            copied_to = end
        at = end
    pieces.append(data[copied_to:])
    return b"".join(pieces)


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, lowest first; and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number has no end")


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
