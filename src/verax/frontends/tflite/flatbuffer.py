"""Reading FlatBuffers without trusting them: every offset and every length is held against the
buffer before anything is read, so that a damaged file can only end in a `ModelError`.

The wire format: a table starts with a signed offset back to its vtable; the vtable lists, per
field slot, where in the table the field lies (0: absent). Strings, vectors and sub-tables are
reached by unsigned 32-bit offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verax.base.errors import ModelError

SCALARS = {
    "int8": struct.Struct("<b"),
    "uint8": struct.Struct("<B"),
    "bool": struct.Struct("<?"),
    "int32": struct.Struct("<i"),
    "uint32": struct.Struct("<I"),
    "uint64": struct.Struct("<Q"),
    "float32": struct.Struct("<f"),
}
_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")


def damaged(description: str) -> ModelError:
    """The error for a buffer that contradicts itself."""
    return ModelError(
        f"the file is damaged: {description}", next_step="copy or export the file again"
    )


@dataclass(frozen=True)
class FlatbufferTable:
    """One table: `at` is its position in `data`."""

    data: memoryview
    at: int

    def slots(self) -> tuple[int, ...]:
        """Byte offset of each field, relative to the table; 0 for an absent one."""
        vtable = self.at - self._unpack(_I32, self.at)
        size = self._unpack(_U16, vtable)
        table_size = self._unpack(_U16, vtable + 2)
        if size < 4 or size % 2 or vtable + size > len(self.data):
            raise damaged(f"the vtable at byte {vtable} is {size} bytes long")
        offsets = struct.unpack_from(f"<{size // 2 - 2}H", self.data, vtable + 4)
        if any(slot and not 4 <= slot < table_size for slot in offsets):
            raise damaged(f"a field of the table at byte {self.at} lies outside of it")
        return offsets

    def has(self, slot: int) -> bool:
        """Whether the field is stored."""
        return self._field(slot) is not None

    def scalar(self, slot: int, kind: str, default: int | float | bool) -> int | float | bool:
        """A number, or its default when the file leaves it out."""
        at = self._field(slot)
        if at is None:
            return default
        value: int | float | bool = self._unpack(SCALARS[kind], at)
        return value

    def integer(self, slot: int, kind: str = "int32", default: int = 0) -> int:
        """As `scalar`, for integers."""
        return int(self.scalar(slot, kind, default))

    def text(self, slot: int) -> str:
        """A string; "" when absent."""
        array = self.array(slot, "uint8")
        try:
            return array.tobytes().decode()
        except UnicodeDecodeError as error:
            raise damaged("a name is not UTF-8") from error

    def array(self, slot: int, dtype: str) -> np.ndarray:
        """A vector of numbers as a view of the buffer; empty when absent."""
        start, count = self._vector(slot)
        kind = np.dtype(dtype).newbyteorder("<")
        if start + count * kind.itemsize > len(self.data):
            raise damaged(f"{count} numbers at byte {start} reach beyond the end of the file")
        return np.frombuffer(self.data, kind, count, start)

    def table(self, slot: int) -> FlatbufferTable | None:
        """A sub-table, None when absent."""
        at = self._field(slot)
        return None if at is None else FlatbufferTable(self.data, self._follow(at))

    def tables(self, slot: int) -> Iterator[FlatbufferTable]:
        """A vector of sub-tables."""
        start, count = self._vector(slot)
        if start + 4 * count > len(self.data):
            raise damaged(f"{count} tables at byte {start} reach beyond the end of the file")
        for i in range(count):
            yield FlatbufferTable(self.data, self._follow(start + 4 * i))

    def _field(self, slot: int) -> int | None:
        """Position of a stored field."""
        slots = self.slots()
        return self.at + slots[slot] if slot < len(slots) and slots[slot] else None

    def _vector(self, slot: int) -> tuple[int, int]:
        """Position of the first element, and how many there are."""
        at = self._field(slot)
        if at is None:
            return 0, 0
        start = self._follow(at)
        return start + 4, self._unpack(_U32, start)

    def _follow(self, at: int) -> int:
        return at + int(self._unpack(_U32, at))

    def _unpack(self, kind: struct.Struct, at: int) -> int:
        if at < 0 or at + kind.size > len(self.data):
            raise damaged(f"byte {at} is referred to, the file has {len(self.data)}")
        value: int = kind.unpack_from(self.data, at)[0]
        return value


def root(data: memoryview, identifier: bytes) -> FlatbufferTable:
    """The root table of a buffer whose bytes 4 to 8 must be `identifier`."""
    if len(data) < 8 or bytes(data[4:8]) != identifier:
        raise ModelError(
            f"the file does not start as a {identifier.decode()} FlatBuffer",
            next_step="check that this is the model and not, say, a page that links to it",
        )
    return FlatbufferTable(data, int(_U32.unpack_from(data, 0)[0]))
