"""Maps the content of a sound ELF object file into this process and makes its references point.

One mapping holds everything: code and jumps to other libraries' functions, then constants and a
table of addresses, then what may be written. So whatever refers to something by 32 bits reaches it,
however crowded the address space is and whatever other threads map meanwhile; and a network starts
without LLVM, which an object file no longer needs. `elf.check_object` has looked at the file.

Relocations: System V ABI, supplement for x86-64 (section 4.4.1); ELF for the Arm 64-bit
Architecture (section 5.7). Only what position independent code of the small model has.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verax.runtime.elf import (
    EMPTY,
    HEADER,
    IN_MEMORY,
    RELOCATION,
    RELOCATIONS,
    SECTION,
    SYMBOL,
    SYMBOLS,
    ObjectError,
    one_of,
)

X86_64, AARCH64 = 62, 183
RUNNABLE, WRITABLE = 4, 1
JUMP_BYTES = 16
JUMPS = {
    # jmp *[rip + 0]; the address follows
    X86_64: bytes.fromhex("ff2500000000"),
    # ldr x16, #8; br x16; the address follows
    AARCH64: bytes.fromhex("5000005800021fd6"),
}
PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class _Plan:
    """Where everything lies, counted from the mapping's first byte.

    places: of each section, -1 when it is not mapped; jumps, slots: of the jump to a symbol and of
    the word with its address; code_end, constants_end, size: whole pages.
    """

    section_offsets: np.ndarray
    jumps: dict[int, int]
    slots: dict[int, int]
    code_end: int
    constants_end: int
    size: int


class LinkedObject:
    """The object's sections in memory. `close` unmaps them."""

    def __init__(self, data: bytes, address_of: Callable[[str], int]) -> None:
        """Map and link `data`. address_of: where a function of another library is.

        Raises `ObjectError` when something cannot be reached, OSError when there is no memory.
        """
        header = np.frombuffer(data, HEADER, 1)[0]
        self._data, self._machine = data, int(header["machine"])
        self._sections = np.frombuffer(
            data, SECTION, int(header["sections"]), int(header["sections_at"])
        )
        table = self._sections[self._sections["type"] == SYMBOLS][0]
        self._symbols = self._table(table, SYMBOL)
        strings = self._sections[int(table["link"])]
        self._names = self._content(strings)
        plan = self._planned()
        self._memory = mmap.mmap(-1, plan.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = np.frombuffer(self._memory, np.uint8)
        base = int(view.ctypes.data)
        try:
            self._fill(view, plan, base, address_of)
            _protect(base, plan)
        finally:
            del view
        here = self._symbols["section"]
        self._addresses = {
            self._name(int(i)): base
            + int(plan.section_offsets[here[i]])
            + int(self._symbols["value"][i])
            for i in np.flatnonzero((here > 0) & (self._symbols["info"] >> 4 == 1))
        }

    def address(self, name: str) -> int | None:
        """Where the function or constant of that name is; None if there is none."""
        return self._addresses.get(name)

    def close(self) -> None:
        """Unmap everything; nothing may run in it any more."""
        self._memory.close()

    def _table(self, section: np.void, kind: np.dtype) -> np.ndarray:
        return np.frombuffer(
            self._data, kind, int(section["size"]) // kind.itemsize, int(section["offset"])
        )

    def _content(self, section: np.void) -> bytes:
        start = int(section["offset"])
        return self._data[start : start + int(section["size"])]

    def _name(self, symbol: int) -> str:
        offset = int(self._symbols["name"][symbol])
        return self._names[offset : self._names.index(b"\0", offset)].decode("latin-1")

    def _relocations(self) -> list[tuple[int, np.ndarray]]:
        """(section, its relocations) for every section that is mapped."""
        tables = [s for s in self._sections if s["type"] == RELOCATIONS and s["size"]]
        mapped = self._sections["flags"] & IN_MEMORY
        return [
            (int(s["info"]), self._table(s, RELOCATION)) for s in tables if mapped[int(s["info"])]
        ]

    def _planned(self) -> _Plan:
        offsets = np.full(len(self._sections), -1, np.int64)
        foreign: set[int] = set()
        in_table: set[int] = set()
        for _, records in self._relocations():
            through = one_of(records["type"], THROUGH_TABLE[self._machine])
            in_table |= set(records["symbol"][through].tolist())
            beyond = self._symbols["section"][records["symbol"]] == 0
            foreign |= set(records["symbol"][~through & beyond].tolist())
        kinds = self._sections["flags"] & (RUNNABLE | WRITABLE)
        end, ends = 0, []
        jumps: dict[int, int] = {}
        slots: dict[int, int] = {}
        for access in (RUNNABLE, 0, WRITABLE):
            kind = np.where(kinds & WRITABLE, WRITABLE, kinds & RUNNABLE)
            mapped = (self._sections["flags"] & IN_MEMORY > 0) & (kind == access)
            for i in np.flatnonzero(mapped):
                end = -(-end // max(1, int(self._sections["align"][i])))
                end *= max(1, int(self._sections["align"][i]))
                offsets[i] = end
                end += int(self._sections["size"][i])
            extra, size, symbols = {
                RUNNABLE: (jumps, JUMP_BYTES, foreign), 0: (slots, 8, in_table)
            }.get(access, ({}, 0, set()))  # fmt: skip
            end = -(-end // JUMP_BYTES) * JUMP_BYTES
            for symbol in sorted(symbols):
                extra[symbol] = end
                end += size
            end = -(-end // PAGE) * PAGE
            ends.append(end)
        return _Plan(offsets, jumps, slots, ends[0], ends[1], max(end, PAGE))

    def _fill(
        self, view: np.ndarray, plan: _Plan, base: int, address_of: Callable[[str], int]
    ) -> None:
        for section, offset in zip(self._sections, plan.section_offsets):
            if offset >= 0 and section["type"] != EMPTY:
                content = np.frombuffer(self._content(section), np.uint8)
                view[offset : offset + len(content)] = content
        values = self._symbols["value"].astype(np.int64)
        values += (
            base
            + plan.section_offsets[
                np.minimum(self._symbols["section"], len(plan.section_offsets) - 1)
            ]
        )
        for symbol in {*plan.jumps, *plan.slots}:
            if self._symbols["section"][symbol] == 0:
                values[symbol] = address_of(self._name(symbol))
        for symbol, offset in plan.slots.items():
            view[offset : offset + 8] = _bytes_of(values[symbol], 8)
        for symbol, offset in plan.jumps.items():
            jump = np.frombuffer(JUMPS[self._machine], np.uint8)
            view[offset : offset + len(jump)] = jump
            view[offset + len(jump) : offset + len(jump) + 8] = _bytes_of(values[symbol], 8)
        for section_index, records in self._relocations():
            symbols = records["symbol"].astype(np.int64)
            through = one_of(records["type"], THROUGH_TABLE[self._machine])
            targets = values[symbols]
            for i in np.flatnonzero(through):
                targets[i] = base + plan.slots[int(symbols[i])]
            for i in np.flatnonzero(~through & one_of(symbols, list(plan.jumps))):
                if records["type"][i] not in WHOLE[self._machine]:
                    targets[i] = base + plan.jumps[int(symbols[i])]
            targets += records["addend"]
            offsets = records["offset"].astype(np.int64) + plan.section_offsets[section_index]
            for kind in sorted(set(records["type"].tolist())):
                is_kind = records["type"] == kind
                patch = PATCHES[self._machine].get(kind)
                if patch is None:
                    raise ObjectError(f"it has relocations of type {kind}")
                patch(view, offsets[is_kind], targets[is_kind], base)


def _protect(base: int, plan: _Plan) -> None:
    """Let the code run and keep it and the constants from being written.

    Making fresh pages runnable is also what makes a processor whose caches of instructions and
    data are separate see what was written: Linux does that then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    ranges = (
        (0, plan.code_end, mmap.PROT_READ | mmap.PROT_EXEC),
        (plan.code_end, plan.constants_end, mmap.PROT_READ),
    )
    for start, end, rights in ranges:
        if end > start and libc.mprotect(base + start, end - start, rights):
            code = ctypes.get_errno()
            raise OSError(code, "the system does not let memory be made runnable")


def _bytes_of(value: int, count: int) -> np.ndarray:
    return np.frombuffer(int(value).to_bytes(count, "little"), np.uint8)


Patch = Callable[[np.ndarray, np.ndarray, np.ndarray, int], None]


def _words(view: np.ndarray, offsets: np.ndarray, values: np.ndarray, size: int) -> None:
    """Write the low `size` bytes of each of `values` into `view` at its offset."""
    stored = np.ascontiguousarray(values, "<i8").view(np.uint8).reshape(-1, 8)[:, :size]
    view[offsets[:, None] + np.arange(size)] = stored


def _in_range(values: np.ndarray, bits: int) -> None:
    if len(values) and (values.min() < -(1 << bits - 1) or values.max() >= 1 << bits - 1):
        raise ObjectError(f"something lies further away than {bits} bits say")


def _absolute(view: np.ndarray, offsets: np.ndarray, targets: np.ndarray, base: int) -> None:
    _words(view, offsets, targets, 8)


def _relative(size: int) -> Patch:
    def patch(view: np.ndarray, offsets: np.ndarray, targets: np.ndarray, base: int) -> None:
        distance = targets - (offsets + base)
        _in_range(distance, 8 * size)
        _words(view, offsets, distance, size)

    return patch


def _or_into(view: np.ndarray, offsets: np.ndarray, fields: np.ndarray) -> None:
    """Fill a field of instructions of 4 bytes; LLVM leaves zeros in it."""
    at = offsets[:, None] + np.arange(4)
    instructions = np.ascontiguousarray(view[at]).view("<u4").ravel()
    view[at] = (instructions | fields.astype("<u4")).astype("<u4").view(np.uint8).reshape(-1, 4)


def _branch(view: np.ndarray, offsets: np.ndarray, targets: np.ndarray, base: int) -> None:
    distance = targets - (offsets + base)
    _in_range(distance, 28)
    _or_into(view, offsets, distance >> 2 & 0x3FFFFFF)


def _page(view: np.ndarray, offsets: np.ndarray, targets: np.ndarray, base: int) -> None:
    pages = (targets >> 12) - (offsets + base >> 12)
    _in_range(pages, 21)
    _or_into(view, offsets, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _within_page(shift: int) -> Patch:
    """Patches an instruction that adds, loads or stores 2**shift bytes with the target's offset
    within its page."""

    def patch(view: np.ndarray, offsets: np.ndarray, targets: np.ndarray, base: int) -> None:
        if (targets & (1 << shift) - 1).any():
            raise ObjectError("something is loaded from where it is not aligned")
        _or_into(view, offsets, (targets & 0xFFF) >> shift << 10)

    return patch


PATCHES: dict[int, dict[int, Patch]] = {
    X86_64: {
        1: _absolute, 2: _relative(4), 4: _relative(4), 24: _relative(8),
        9: _relative(4), 41: _relative(4), 42: _relative(4),
    },
    AARCH64: {
        257: _absolute, 260: _relative(8), 261: _relative(4), 282: _branch, 283: _branch,
        275: _page, 277: _within_page(0), 278: _within_page(0), 284: _within_page(1),
        285: _within_page(2), 286: _within_page(3), 299: _within_page(4),
        311: _page, 312: _within_page(3),
    },
}  # fmt: skip
"""By processor: how a relocation of each type changes what is at its place."""
THROUGH_TABLE = {X86_64: (9, 41, 42), AARCH64: (311, 312)}
"""The types that lead to the word in which a symbol's address is."""
WHOLE = {X86_64: (1,), AARCH64: (257,)}
"""The types that hold a whole address: they need no jump in between."""
