"""Reading the options of custom operators: a FlexBuffers map of numbers and flags.

A value is found backwards from the end: its width, its type, itself. A map is a vector of values
whose types follow them and whose keys are listed in a vector of their own. Every position is held
against the buffer.
"""

from __future__ import annotations

import struct

from verax.base.errors import UnsupportedError
from verax.frontends.tflite.flatbuffer import damaged

Number = int | float | bool
INT, UINT, FLOAT, INDIRECT_INT, INDIRECT_FLOAT, MAP, BOOL = 1, 2, 3, 6, 8, 9, 26
MAX_ENTRIES = 1000
_FORMATS = {
    INT: {1: "<b", 2: "<h", 4: "<i", 8: "<q"},
    UINT: {1: "<B", 2: "<H", 4: "<I", 8: "<Q"},
    FLOAT: {2: "<e", 4: "<f", 8: "<d"},
}


def read_map(data: bytes) -> dict[str, Number]:
    """The entries of the root map. Raises `ModelError` for damage, `UnsupportedError` for entries
    that are neither numbers nor flags."""
    if len(data) < 3:
        raise damaged("the options of a custom operator are empty")
    width, packed = data[-1], data[-2]
    if packed >> 2 != MAP or width not in (1, 2, 4, 8):
        raise UnsupportedError("the options of a custom operator are no map")
    start = _follow(data, len(data) - 2 - width, width)
    unit = 1 << (packed & 3)
    size = int(_unpacked(data, start - unit, unit, UINT))
    keys = _follow(data, start - 3 * unit, unit)
    key_unit = int(_unpacked(data, start - 2 * unit, unit, UINT))
    if size > MAX_ENTRIES or key_unit not in (1, 2, 4, 8):
        raise damaged(f"the options of a custom operator have {size} entries")
    entries = {}
    for i in range(size):
        at = _follow(data, keys + i * key_unit, key_unit)
        name = data[at:].partition(b"\0")[0].decode(errors="replace")
        kind = int(_unpacked(data, start + size * unit + i, 1, UINT))
        entries[name] = _value(data, start + i * unit, unit, kind, name)
    return entries


def _value(data: bytes, at: int, unit: int, packed: int, name: str) -> Number:
    kind = packed >> 2
    if kind == BOOL:
        return bool(_unpacked(data, at, unit, UINT))
    if kind in _FORMATS:
        return _unpacked(data, at, unit, kind)
    if INDIRECT_INT <= kind <= INDIRECT_FLOAT:
        return _unpacked(
            data, _follow(data, at, unit), 1 << (packed & 3), kind - INDIRECT_INT + INT
        )
    raise UnsupportedError(f"the option {name!r} of a custom operator is no number")


def _follow(data: bytes, at: int, width: int) -> int:
    """Where an offset leads: backwards from itself."""
    return at - int(_unpacked(data, at, width, UINT))


def _unpacked(data: bytes, at: int, width: int, kind: int) -> Number:
    form = _FORMATS[kind].get(width)
    if form is None or at < 0 or at + width > len(data):
        raise damaged(f"the options of a custom operator refer to byte {at} of {len(data)}")
    value: Number = struct.unpack_from(form, data, at)[0]
    return value
