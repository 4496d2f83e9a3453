"""Whether bytes are a sound ELF object file: all that it says of itself lies inside of it.

`linker` believes what this has looked at: no section, symbol or relocation leads out of the file,
and every function is known. What the instructions do is not looked at: they are trusted.

Layout: System V ABI, chapters 4 (object files) and its supplements for x86-64 and AArch64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

HEADER = np.dtype(
    [("magic", "S4"), ("kind", "u1"), ("order", "u1"), ("_", "V10"), ("type", "<u2"),
     ("machine", "<u2"), ("version", "<u4"), ("_entry", "V16"), ("sections_at", "<u8"),
     ("flags", "<u4"), ("size", "<u2"), ("_program", "V4"), ("section_size", "<u2"),
     ("sections", "<u2"), ("names", "<u2")]
)  # fmt: skip
SECTION = np.dtype(
    [("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"),
     ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry_size", "<u8")]
)  # fmt: skip
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip
RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

RELOCATABLE, LITTLE, WIDE = 1, 1, 2
CONTENT, SYMBOLS, STRINGS, RELOCATIONS, EMPTY, IN_MEMORY = 1, 2, 3, 4, 8, 2
PLAIN_SECTIONS = (0, CONTENT, SYMBOLS, STRINGS, RELOCATIONS, 7, EMPTY, 0x70000001)
"""Types of sections that LLVM writes: nothing, content, ..., notes, zeros, unwinding."""
PLAIN_FLAGS = 0x100000FF
"""Flags of sections: to write, load, run, merge; not thread-local, compressed or grouped."""
SYMBOL_TYPES, SYMBOL_BINDINGS = (0, 1, 2, 3, 4), (0, 1, 2)
"""No type, object, function, section, file; local, global, weak."""
FILE, FOREIGN = 4, (0x10, 0x12, 0x20)
"""What names the source; kinds of symbols that another library defines."""
ABSOLUTE, FIRST_SPECIAL = 0xFFF1, 0xFF00
MARKS = (b"$x", b"$d")
"""Names of symbols that say where code or data begins (AArch64's ELF supplement): many have one
name, and nothing refers to them."""
MOST_SECTIONS, MOST_ALIGN = 1 << 15, 1 << 16
PATCHED = {
    62: {1: 8, 2: 4, 4: 4, 9: 4, 24: 8, 41: 4, 42: 4},
    183: {
        **{257: 8, 260: 8},
        **{n: 4 for n in (261, 275, 277, 278, 282, 283, 284, 285, 286, 299, 311, 312)},
    },
}
"""By processor: bytes that a relocation of each known type changes."""
FAR = {62: (1, 4, 9, 41, 42), 183: (257, 282, 283, 311, 312)}
"""By processor: the types that reach functions of other libraries, however far away."""
SLACK = 1 << 12
"""Bytes by which a relocation may point beside its symbol's section: offsets of instructions."""


class ObjectError(ValueError):
    """What is wrong with the object file, in a clause."""


def one_of(values: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """For each value whether it is among a few; `np.isin` would import masked arrays."""
    mask: np.ndarray = (values[..., None] == np.array(choices, values.dtype)).any(-1)
    return mask


def check_object(data: bytes, is_known: Callable[[str], bool]) -> None:
    """Raise `ObjectError` when the file is not sound.

    is_known: whether this process has a function of a name that the file needs.
    """
    if len(data) < HEADER.itemsize:
        raise ObjectError("it ends within its header")
    header = np.frombuffer(data, HEADER, 1)[0]
    sound = header["magic"] == b"\x7fELF" and header["type"] == RELOCATABLE
    if not sound or header["kind"] != WIDE or header["order"] != LITTLE:
        raise ObjectError("it is no 64-bit little-endian relocatable object")
    patched = PATCHED.get(int(header["machine"]))
    if patched is None or header["version"] != 1 or header["size"] != HEADER.itemsize:
        raise ObjectError("its header is of an unknown kind")
    if header["section_size"] != SECTION.itemsize or not 0 < header["sections"] <= MOST_SECTIONS:
        raise ObjectError("it has no table of sections")
    at, count = int(header["sections_at"]), int(header["sections"])
    if at % 8 or at + count * SECTION.itemsize > len(data):
        raise ObjectError("its table of sections lies outside of it")
    sections, far = np.frombuffer(data, SECTION, count, at), FAR[int(header["machine"])]
    _Object(data, sections, patched, far).check(int(header["names"]), is_known)


class _Object:
    def __init__(
        self, data: bytes, sections: np.ndarray, patched: dict[int, int], far: tuple[int, ...]
    ) -> None:
        self.data, self.sections, self.patched, self.far = data, sections, patched, far
        self.adds_what_is_there = far == FAR[62]
        self.has_marks = far == FAR[183]
        self.marks = np.zeros(0, bool)

    def check(self, names: int, is_known: Callable[[str], bool]) -> None:
        if self.sections[0].tobytes().strip(b"\0"):
            raise ObjectError("its first section is not empty")
        total = 0
        for section in self.sections[1:]:
            kind, offset, size = (int(section[k]) for k in ("type", "offset", "size"))
            if kind not in PLAIN_SECTIONS or int(section["flags"]) & ~PLAIN_FLAGS:
                raise ObjectError(f"it has a section of type {kind:#x} or flags that are not known")
            if section["address"] or section["entry_size"] > MOST_ALIGN:
                raise ObjectError("a section has an address or entries of an unknown size")
            if kind in (CONTENT, EMPTY) and size and not int(section["flags"]) & IN_MEMORY:
                raise ObjectError("a section's content is not loaded")
            total += size if kind == EMPTY else 0
            if kind != EMPTY and offset + size > len(self.data):
                raise ObjectError("a section lies outside of it")
            align = int(section["align"])
            if align > MOST_ALIGN or align & (align - 1):
                raise ObjectError(f"a section is aligned to {align}")
            if kind != EMPTY and size and offset % max(align, 1):
                raise ObjectError(f"a section that is aligned to {align} begins at {offset}")
        self.lie_apart()
        if total > len(self.data):
            raise ObjectError(f"it asks for {total} bytes of zeros")
        strings = self.strings(names)
        self.names_lie_in(self.sections["name"], strings)
        tables = np.flatnonzero(self.sections["type"] == SYMBOLS)
        if len(tables) != 1:
            raise ObjectError(f"it has {len(tables)} tables of symbols")
        symbols = self.symbols(int(tables[0]), is_known)
        for section in self.sections[self.sections["type"] == RELOCATIONS]:
            self.relocations(section, int(tables[0]), symbols)

    def lie_apart(self) -> None:
        """No byte of the file belongs to two sections, or to one and the header."""
        stored = self.sections[1:][self.sections["type"][1:] != EMPTY]
        stored = stored[np.argsort(stored["offset"], kind="stable")]
        stored = stored[stored["size"] > 0]
        ends = np.append(np.uint64(HEADER.itemsize), stored["offset"] + stored["size"])
        if (ends[:-1] > stored["offset"]).any():
            raise ObjectError("two sections overlap")

    def section(self, index: int, kind: int) -> np.void:
        if not 0 < index < len(self.sections) or self.sections[index]["type"] != kind:
            raise ObjectError(f"section {index} is not what is said of it")
        header: np.void = self.sections[index]
        return header

    def strings(self, index: int) -> bytes:
        section = self.section(index, STRINGS)
        start, size = int(section["offset"]), int(section["size"])
        content = self.data[start : start + size]
        if not content or content[0] or content[-1]:
            raise ObjectError("a table of names has no ends")
        return content

    @staticmethod
    def names_lie_in(offsets: np.ndarray, strings: bytes) -> None:
        if len(offsets) and int(offsets.max()) >= len(strings):
            raise ObjectError("a name lies outside of its table")

    def table(self, section: np.void, kind: np.dtype) -> np.ndarray:
        size, offset = int(section["size"]), int(section["offset"])
        if section["entry_size"] != kind.itemsize or size % kind.itemsize or offset % 8:
            raise ObjectError("a table's entries are of another size")
        return np.frombuffer(self.data, kind, size // kind.itemsize, offset)

    def symbols(self, index: int, is_known: Callable[[str], bool]) -> np.ndarray:
        section = self.sections[index]
        records, strings = self.table(section, SYMBOL), self.strings(int(section["link"]))
        self.names_lie_in(records["name"], strings)
        if not len(records) or int(section["info"]) > len(records):
            raise ObjectError("its table of symbols has no such local ones")
        kinds, bindings = records["info"] & 15, records["info"] >> 4
        has_known_kind = one_of(kinds, SYMBOL_TYPES) & one_of(bindings, SYMBOL_BINDINGS)
        if not (has_known_kind & (records["other"] <= 3)).all():
            raise ObjectError("it has a symbol of an unknown kind")
        special = records["section"] >= FIRST_SPECIAL
        if (special & (records["section"] != ABSOLUTE)).any():
            raise ObjectError("a symbol is in no section")
        here = records[(records["section"] > 0) & ~special]
        if len(here) and int(here["section"].max()) >= len(self.sections):
            raise ObjectError("a symbol's section does not exist")
        room = self.sections["size"][here["section"]]
        if ((here["value"] > room) | (here["size"] > room - here["value"])).any():
            raise ObjectError("a symbol lies outside of its section")
        self.marks = self.marks_among(records, strings)
        named = records[1:][one_of(kinds[1:], (0, 1, 2)) & ~self.marks[1:]]
        if ((kinds == FILE) != (records["section"] == ABSOLUTE)).any() or len(named) > len(
            set(named["name"].tolist())
        ):
            raise ObjectError("its symbols are not told apart")
        for symbol in named:
            offset = int(symbol["name"])
            name = strings[offset : strings.index(b"\0", offset)].decode("latin-1")
            if not name:
                raise ObjectError(f"{name[:80]!a} is no name of a symbol")
            if symbol["section"] == 0 and (symbol["info"] not in FOREIGN or not is_known(name)):
                raise ObjectError(f"it needs {name[:80]!a}, which is not there")
        absent = records["section"][1:] == 0
        if absent.sum() > (named["section"] == 0).sum() or (
            records["value"][1:][absent].any() or records["size"][1:][absent].any()
        ):
            raise ObjectError("a symbol is in no section")
        return records

    def marks_among(self, symbols: np.ndarray, strings: bytes) -> np.ndarray:
        """For each symbol whether it is a mark: local, of no type, called `$x`, `$d` or `$d.1`."""
        is_mark = (symbols["info"] == 0) & (symbols["section"] > 0) & self.has_marks
        for i in np.flatnonzero(is_mark):
            offset = int(symbols["name"][i])
            name = strings[offset : strings.index(b"\0", offset)]
            is_mark[i] = name.partition(b".")[0] in MARKS
        return is_mark

    def relocations(self, section: np.void, table: int, symbols: np.ndarray) -> None:
        target = int(section["info"])
        if int(section["link"]) != table or not 0 < target < len(self.sections):
            raise ObjectError("relocations are for a section that does not exist")
        if self.sections[target]["type"] == EMPTY:
            raise ObjectError("relocations are for a section without content")
        records = self.table(section, RELOCATION)
        if not len(records):
            return
        if int(records["symbol"].max()) >= len(symbols):
            raise ObjectError("a relocation's symbol does not exist")
        if self.marks[records["symbol"]].any():
            raise ObjectError("a relocation is for a mark")
        self.reaches(records, symbols[records["symbol"]])
        for kind in sorted(set(records["type"].tolist())):
            if int(kind) not in self.patched:
                raise ObjectError(f"it has relocations of type {kind}")
            size, width = int(self.sections[target]["size"]), self.patched[int(kind)]
            offsets = records["offset"][records["type"] == kind]
            if size < width or int(offsets.max()) > size - width:
                raise ObjectError("a relocation lies outside of its section")
            if self.adds_what_is_there:
                begin = offsets.astype(np.int64) + int(self.sections[target]["offset"])
                stored = np.frombuffer(self.data, np.uint8)[begin[:, None] + np.arange(width)]
                if stored.any():
                    raise ObjectError("there is something where a relocation goes")

    def reaches(self, records: np.ndarray, symbols: np.ndarray) -> None:
        """Relocations of 32 bits must not point further than 2 GiB."""
        foreign, special = symbols["section"] == 0, symbols["section"] >= FIRST_SPECIAL
        if special.any() or not one_of(records["type"][foreign], self.far).all():
            raise ObjectError("a relocation is for a symbol that cannot be reached")
        room = self.sections["size"][np.where(special, 0, symbols["section"])].astype(np.int64)
        first = -symbols["value"].astype(np.int64) - SLACK
        last = np.where(foreign, 0, room - symbols["value"].astype(np.int64)) + SLACK
        if ((records["addend"] < first) | (records["addend"] > last)).any():
            raise ObjectError("a relocation points beside its symbol's section")
