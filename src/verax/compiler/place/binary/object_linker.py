"""Several relocatable ELF objects into one, as `ld -r` does it.

Sections of one name and kind follow one another; a function that one object needs and another has
is found there. Layout: System V ABI, chapter 4. What comes out depends on the objects and their
order alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from verax.runtime.elf import (
    EMPTY,
    FILE,
    HEADER,
    MARKS,
    RELOCATION,
    RELOCATIONS,
    SECTION,
    STRINGS,
    SYMBOL,
    SYMBOLS,
    ObjectError,
)

_TABLES = (0, SYMBOLS, STRINGS, RELOCATIONS)
_OF_SECTION, _GLOBAL = 3, 1
_TABLE_ALIGN = 8


@dataclass
class _Section:
    """A section of the result. number: its own; relocations: arrays of them, adjusted."""

    name: bytes
    index: int
    header: np.void
    align: int = 1
    size: int = 0
    content: list[bytes] = field(default_factory=list)
    relocations: list[np.ndarray] = field(default_factory=list)

    def add(self, content: bytes, size: int, align: int) -> int:
        """Append one object's part. -> where it begins."""
        gap = -self.size % max(align, 1)
        start = self.size + gap
        if self.header["type"] != EMPTY:
            self.content += [bytes(gap), content]
        self.size, self.align = start + size, max(self.align, align)
        return start


class _Names:
    """A table of names. Each is there once for every symbol; marks of what is code share theirs."""

    def __init__(self) -> None:
        self.data = bytearray(1)
        self._marks: dict[bytes, int] = {}

    def add(self, name: bytes) -> int:
        if name in self._marks:
            return self._marks[name]
        offset = len(self.data)
        self.data += name + b"\0"
        if name.partition(b".")[0] in MARKS:
            self._marks[name] = offset
        return offset


class _LinkedObject:
    """One of the objects, its tables read."""

    def __init__(self, data: bytes, renamed: Mapping[str, str]) -> None:
        self.data, self.header = data, np.frombuffer(data, HEADER, 1)[0]
        self.sections = np.frombuffer(
            data, SECTION, int(self.header["sections"]), int(self.header["sections_at"])
        )
        self._section_names = self.content(self.sections[int(self.header["names"])])
        (table,) = self.sections[self.sections["type"] == SYMBOLS]
        self.symbols = self.table(table, SYMBOL)
        self._names = self.content(self.sections[int(table["link"])])
        self._renamed = {a.encode(): b.encode() for a, b in renamed.items()}

    def content(self, section: np.void) -> bytes:
        if section["type"] == EMPTY:
            return b""
        start = int(section["offset"])
        return self.data[start : start + int(section["size"])]

    def table(self, section: np.void, kind: np.dtype) -> np.ndarray:
        return np.frombuffer(self.content(section), kind)

    def section_name(self, section: np.void) -> bytes:
        return _name_at(self._section_names, int(section["name"]))

    def symbol_name(self, symbol: np.void) -> bytes:
        name = _name_at(self._names, int(symbol["name"]))
        return self._renamed.get(name, name)


def _name_at(names: bytes, offset: int) -> bytes:
    return names[offset : names.index(b"\0", offset)]


def link_objects(objects: Sequence[tuple[bytes, Mapping[str, str]]]) -> bytes:
    """One object file out of `objects`, each with new names for some of its functions.

    Raises `ObjectError` when two define the same name or are for different processors.
    """
    inputs = [_LinkedObject(data, renamed) for data, renamed in objects]
    if len({(int(p.header["machine"]), int(p.header["flags"])) for p in inputs}) != 1:
        raise ObjectError("objects for different processors cannot be joined")
    sections: dict[tuple[object, ...], _Section] = {}
    section_maps = [_placed(obj, sections) for obj in inputs]
    symbols, symbol_maps, names, first_global = _symbols(inputs, section_maps, sections)
    for obj, section_map, (numbers, addends) in zip(inputs, section_maps, symbol_maps, strict=True):
        for section in obj.sections[obj.sections["type"] == RELOCATIONS]:
            relocations = obj.table(section, RELOCATION).copy()
            target = int(section["info"])
            if target not in section_map or not len(relocations):
                continue
            into, start = section_map[target]
            relocations["addend"] += addends[relocations["symbol"]]
            relocations["symbol"] = numbers[relocations["symbol"]]
            relocations["offset"] += start
            into.relocations.append(relocations)
    return _written(inputs[0].header, list(sections.values()), symbols, names, first_global)


def _placed(
    obj: _LinkedObject, sections: dict[tuple[object, ...], _Section]
) -> dict[int, tuple[_Section, int]]:
    """By index of a section of `obj`, the section of the result and where its content begins."""
    section_map: dict[int, tuple[_Section, int]] = {}
    for index, header in enumerate(obj.sections):
        if header["type"] in _TABLES:
            continue
        name = obj.section_name(header)
        key = (name, *(int(header[k]) for k in ("type", "flags", "entry_size")))
        section = sections.setdefault(key, _Section(name, len(sections) + 1, header))
        start = section.add(obj.content(header), int(header["size"]), int(header["align"]))
        section_map[index] = section, start
    return section_map


Moved = tuple[np.ndarray, np.ndarray]
"""Of one object, by number of the symbol: its number in the result, and what to add to addends."""


def _symbols(
    inputs: Sequence[_LinkedObject],
    section_maps: Sequence[Mapping[int, tuple[_Section, int]]],
    sections: Mapping[tuple[object, ...], _Section],
) -> tuple[np.ndarray, list[Moved], _Names, int]:
    """The table of symbols, local ones first; each object's numbers in it; the names; and the
    number of the first that is not local."""
    names = _Names()
    table: list[tuple[int, int, int, int, int, int]] = [(0, 0, 0, 0, 0, 0)]
    table += [(0, _OF_SECTION, 0, s.index, 0, 0) for s in sections.values()]
    symbol_maps = [
        (np.zeros(len(p.symbols), np.uint32), np.zeros(len(p.symbols), np.int64)) for p in inputs
    ]
    later: list[tuple[int, int, bytes]] = []
    for i, (obj, section_map, (numbers, addends)) in enumerate(
        zip(inputs, section_maps, symbol_maps, strict=True)
    ):
        for k, symbol in enumerate(obj.symbols[1:], 1):
            kind, section = int(symbol["info"]) & 15, int(symbol["section"])
            if kind == FILE:
                continue
            if kind == _OF_SECTION:
                into, start = section_map[section]
                numbers[k], addends[k] = into.index, start
            elif int(symbol["info"]) >> 4 < _GLOBAL:
                numbers[k] = len(table)
                name_offset = names.add(obj.symbol_name(symbol))
                table.append(_entry(symbol, name_offset, section_map))
            else:
                later.append((i, k, obj.symbol_name(symbol)))
    first = len(table)
    globals_by_name: dict[bytes, int] = {}
    for defined in (True, False):
        for i, k, name in later:
            symbol = inputs[i].symbols[k]
            if (symbol["section"] > 0) != defined:
                continue
            if defined and name in globals_by_name:
                raise ObjectError(f"two objects define {name.decode('latin-1')!r}")
            if name not in globals_by_name:
                globals_by_name[name] = len(table)
                table.append(_entry(symbol, names.add(name), section_maps[i]))
            symbol_maps[i][0][k] = globals_by_name[name]
    return np.array(table, SYMBOL), symbol_maps, names, first


def _entry(
    symbol: np.void, name: int, section_map: Mapping[int, tuple[_Section, int]]
) -> tuple[int, int, int, int, int, int]:
    info, visibility, size = (int(symbol[k]) for k in ("info", "other", "size"))
    if not symbol["section"]:
        return name, info, visibility, 0, 0, size
    into, start = section_map[int(symbol["section"])]
    return name, info, visibility, into.index, int(symbol["value"]) + start, size


def _written(
    like: np.void,
    sections: Sequence[_Section],
    symbols: np.ndarray,
    names: _Names,
    first_global: int,
) -> bytes:
    """The file: header, contents, relocations, symbols, names, table of sections."""
    data = bytearray(HEADER.itemsize)
    section_names = _Names()
    table = [np.zeros(1, SECTION)]

    def append(
        name: bytes, content: bytes, align: int, like: np.void | None, **fields: int
    ) -> None:
        data.extend(bytes(-len(data) % max(align, 1)))
        row = np.zeros(1, SECTION)
        if like is not None:
            row[0] = like
        row["name"], row["offset"], row["align"] = section_names.add(name), len(data), align
        for key, value in {"size": len(content), **fields}.items():
            row[key] = value
        table.append(row)
        data.extend(content)

    for s in sections:
        append(s.name, b"".join(s.content), s.align, s.header, size=s.size)
    referring = [s for s in sections if s.relocations]
    at = len(sections) + len(referring) + 1
    for s in referring:
        relocations = np.concatenate(s.relocations)
        fields = {
            "type": RELOCATIONS,
            "link": at,
            "info": s.index,
            "entry_size": relocations.itemsize,
        }
        append(b".rela" + s.name, relocations.tobytes(), _TABLE_ALIGN, None, **fields)
    fields = {"type": SYMBOLS, "link": at + 1, "info": first_global, "entry_size": SYMBOL.itemsize}
    append(b".symtab", symbols.tobytes(), _TABLE_ALIGN, None, **fields)
    append(b".strtab", bytes(names.data), 1, None, type=STRINGS)
    append(b".shstrtab", b"", 1, None, type=STRINGS)
    table[-1]["size"] = len(section_names.data)
    data.extend(section_names.data)
    data.extend(bytes(-len(data) % _TABLE_ALIGN))
    header = np.zeros(1, HEADER)
    header[0] = like
    header["sections_at"], header["sections"] = len(data), len(table)
    header["names"] = len(table) - 1
    data[: HEADER.itemsize] = header.tobytes()
    return bytes(data) + np.concatenate(table).tobytes()
