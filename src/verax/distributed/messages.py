"""Plain data as bytes: JSON, with bytes and references to contents beside what JSON has.

    8 bytes: length of the text | the text (JSON) | bytes objects, one behind the other

Tuples become lists. Floats come back bit by bit, not-a-numbers and infinities as such.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from verax.base.errors import UsageError
from verax.distributed.contents import Reference

_BYTES, _CONTENT = "$bytes", "$content"
_LENGTH = struct.Struct("<Q")
PLAIN = "None, numbers, texts, bytes, references to contents, and lists and dicts by text of these"


def pack(value: Any) -> bytes:
    """Plain data as bytes. Raises `UsageError` for what is none."""
    pieces: list[bytes] = []
    sizes: list[int] = []

    def replaced(item: Any) -> Any:
        if isinstance(item, bytes | bytearray | memoryview):
            pieces.append(bytes(item))
            sizes.append(len(pieces[-1]))
            return {_BYTES: len(pieces) - 1}
        if isinstance(item, Reference):
            return {_CONTENT: item.to_plain()}
        if isinstance(item, list | tuple):
            return [replaced(v) for v in item]
        if isinstance(item, dict):
            if any(not isinstance(k, str) for k in item) or _BYTES in item or _CONTENT in item:
                raise UsageError("a task has keys that are no texts", next_step=f"give {PLAIN}")
            return {k: replaced(v) for k, v in item.items()}
        if item is None or isinstance(item, bool | int | float | str):
            return item
        raise UsageError(
            f"a {type(item).__name__} is no plain data and cannot be sent to a worker",
            next_step=f"give {PLAIN}",
        )

    text = json.dumps([replaced(value), sizes], separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *pieces])


def unpack(message: bytes | memoryview) -> Any:
    """The data of `pack`. Raises ValueError, KeyError, IndexError, TypeError or struct.error for
    bytes that are none."""
    view = memoryview(message)
    (length,) = _LENGTH.unpack_from(view)
    start = _LENGTH.size + length
    pieces: list[bytes] = []

    def restored(item: dict[str, Any]) -> Any:
        if _BYTES in item:
            return _Index(item[_BYTES])
        return Reference.of_plain(item[_CONTENT]) if _CONTENT in item else item

    value, sizes = json.loads(bytes(view[_LENGTH.size : start]), object_hook=restored)
    for size in sizes:
        pieces.append(bytes(view[start : start + size]))
        start += size
    return _filled(value, pieces)


def digests_in(message: bytes) -> set[str]:
    """SHA-256 of the contents that packed data refer to."""
    digests: set[str] = set()

    def noted(item: dict[str, Any]) -> None:
        if _CONTENT in item:
            digests.update(f.digest for f in Reference.of_plain(item[_CONTENT]).files)

    (length,) = _LENGTH.unpack_from(message)
    text = message[_LENGTH.size : _LENGTH.size + length]
    if _CONTENT.encode() in text:
        json.loads(text, object_hook=noted)
    return digests


class _Index(int):
    """Stands for the bytes of that number."""


def _filled(item: Any, pieces: list[bytes]) -> Any:
    if isinstance(item, _Index):
        return pieces[item]
    if isinstance(item, list):
        return [_filled(v, pieces) for v in item]
    if isinstance(item, dict):
        return {k: _filled(v, pieces) for k, v in item.items()}
    return item
