"""Reading the HDF5 files that Keras writes: groups, attributes and plain arrays.

HDF5's own library can loop for ever on a damaged file, so that it is of no use here. This reads the
classic layout (superblock 0 or 1, symbol tables, arrays in one piece), which is what h5py writes
unless told otherwise, straight from the file's bytes. Every address and length is checked, work is
counted, arrays are views of the file.

Source of the layout: HDF5 File Format Specification, version 3.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
UNDEFINED = 2**64 - 1
"""The address of what was never written."""
MAX_STEPS = 1_000_000
"""Headers, messages, nodes and heap objects that reading one file may look at."""
MAX_RANK = 32

SPACE, LINK_INFO, TYPE, LINK, EXTERNAL, LAYOUT, FILTERS, ATTRIBUTE = 1, 2, 3, 6, 7, 8, 11, 12
CONTINUATION, SYMBOLS, ATTRIBUTE_INFO = 16, 17, 21
"""Kinds of messages in an object's header."""
SOFT_LINK = 2


class File:
    """An open file. `root` is its outermost group."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.steps = data, 0
        self.heaps: dict[int, dict[int, memoryview]] = {}
        if bytes(data[:8]) != SIGNATURE:
            raise ModelError("the file is not HDF5")
        version, offsets, lengths = data[8], data[13], data[14]
        if version > 1 or (offsets, lengths) != (8, 8):
            raise UnsupportedError(
                f"HDF5 of the newer layout (superblock {version}) is not supported",
                next_step="save the model with h5py's default libver",
            )
        start = 24 if version == 0 else 28
        if self.number("<Q", start):
            raise UnsupportedError("an HDF5 file inside of another file is not supported")
        self.root = Object(self, self.number("<Q", start + 40), "/")

    def piece(self, start: int, size: int) -> memoryview:
        """Bytes of the file; raises `ModelError` when it does not have them."""
        if start < 0 or size < 0 or start + size > len(self.data):
            raise ModelError(
                f"the file is damaged: {size} bytes at {start} of {len(self.data)}",
                next_step="copy or save the file again",
            )
        return self.data[start : start + size]

    def number(self, kind: str, at: int) -> int:
        found: int = struct.unpack(kind, self.piece(at, struct.calcsize(kind)))[0]
        return found

    def step(self) -> None:
        """Count a piece of work, so that circles end."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise ModelError("the file is damaged: it leads around in circles")

    def tagged(self, at: int, tag: bytes) -> None:
        """Count and check a block that starts with `tag`."""
        self.step()
        if bytes(self.piece(at, 4)) != tag:
            raise ModelError(f"the file is damaged: no {tag.decode()} at byte {at}")

    def heap_object(self, address: int, index: int) -> memoryview:
        """An object of a global heap: where strings of any length lie."""
        if address not in self.heaps:
            self.tagged(address, b"GCOL")
            end = address + self.number("<Q", address + 8)
            self.piece(address, end - address)
            found, at = {}, address + 16
            while at + 16 <= end:
                self.step()
                key, size = self.number("<H", at), self.number("<Q", at + 8)
                if key == 0:
                    break
                found[key] = self.piece(at + 16, size)
                at += 16 + -(-size // 8) * 8
            self.heaps[address] = found
        if index not in self.heaps[address]:
            raise ModelError(f"the file is damaged: no object {index} in the heap at {address}")
        return self.heaps[address][index]


@dataclass(frozen=True)
class Type:
    """An element type: NumPy's, or None for strings of any length."""

    numpy: np.dtype | None
    size: int


@dataclass(frozen=True)
class Object:
    """A group or an array: `at` is its header's position."""

    file: File
    at: int
    name: str

    @cached_property
    def messages(self) -> list[tuple[int, memoryview]]:
        """(kind, content) of all messages of the header."""
        file = self.file
        if file.number("<B", self.at) != 1:
            raise UnsupportedError("HDF5 of the newer layout is not supported", place=self.name)
        left = file.number("<H", self.at + 2)
        blocks = [(self.at + 16, file.number("<I", self.at + 8))]
        found: list[tuple[int, memoryview]] = []
        while blocks and left > 0:
            at, size = blocks.pop(0)
            end = at + size
            file.piece(at, size)
            while at + 8 <= end and left > 0:
                file.step()
                left -= 1
                kind, length, flags = struct.unpack("<HHB", file.piece(at, 5))
                content = file.piece(at + 8, length)
                if flags & 2:
                    raise UnsupportedError(
                        "shared HDF5 messages are not supported", place=self.name
                    )
                if kind == CONTINUATION:
                    blocks.append(struct.unpack_from("<QQ", content))
                found.append((kind, content))
                at += 8 + length
        return found

    def message(self, kind: int) -> memoryview | None:
        """The first message of a kind."""
        return next((content for k, content in self.messages if k == kind), None)

    # Groups

    @cached_property
    def members(self) -> dict[str, Object]:
        """What a group holds; nothing for an array. Links to elsewhere are refused."""
        table = self.message(SYMBOLS)
        if table is None:
            if self.message(LINK_INFO) is not None or self.message(LINK) is not None:
                raise UnsupportedError(
                    "groups of the newer HDF5 layout, or links out of the file, are not supported",
                    place=self.name,
                )
            return {}
        tree, heap = struct.unpack_from("<QQ", table)
        self.file.tagged(heap, b"HEAP")
        size, _, start = struct.unpack("<QQQ", self.file.piece(heap + 8, 24))
        return dict(self._entries(tree, self.file.piece(start, size)))

    def _entries(self, tree: int, names: memoryview) -> Iterator[tuple[str, Object]]:
        file, pending = self.file, [tree]
        while pending:
            at = pending.pop()
            if bytes(file.piece(at, 4)) == b"TREE":
                file.step()
                count = file.number("<H", at + 6)
                children = struct.unpack(f"<{2 * count}Q", file.piece(at + 32 - 8, 16 * count))
                pending.extend(children[1::2])
                continue
            file.tagged(at, b"SNOD")
            for i in range(file.number("<H", at + 6)):
                file.step()
                entry = file.piece(at + 8 + 40 * i, 40)
                offset, header, cache = struct.unpack_from("<QQI", entry)
                name = bytes(names[offset:]).partition(b"\0")[0].decode()
                if cache == SOFT_LINK or header == UNDEFINED:
                    raise UnsupportedError("links are not followed", place=f"{self.name}{name}")
                yield name, Object(file, header, f"{self.name}{name}/")

    def child(self, path: str) -> Object | None:
        """A member by path, None when there is none."""
        found: Object = self
        for part in path.split("/"):
            if part not in found.members:
                return None
            found = found.members[part]
        return found

    # Attributes

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes: arrays, or lists of bytes for strings (one of them for a scalar)."""
        if self.message(ATTRIBUTE_INFO) is not None:
            raise UnsupportedError("attributes of the newer HDF5 layout", place=self.name)
        return dict(self._attribute(m) for k, m in self.messages if k == ATTRIBUTE)

    def _attribute(self, message: memoryview) -> tuple[str, Any]:
        version, _, *sizes = struct.unpack_from("<BBHHH", message)
        if version not in (1, 2, 3):
            raise UnsupportedError(f"attributes of version {version}", place=self.name)
        at, parts = 9 if version == 3 else 8, []
        for size in sizes:
            parts.append(message[at : at + size])
            at += -(-size // 8) * 8 if version == 1 else size
        name = bytes(parts[0]).partition(b"\0")[0].decode()
        kind, dims = element_type(parts[1]), dimensions(parts[2])
        count = math.prod(dims)
        content = message[at : at + count * kind.size]
        if len(content) != count * kind.size:
            raise ModelError(f"the attribute {name!r} is cut off", place=self.name)
        if kind.numpy is not None:
            return name, np.frombuffer(content, kind.numpy).reshape(dims)
        return name, [self._string(content[i : i + 16]) for i in range(0, len(content), 16)]

    def _string(self, reference: memoryview) -> bytes:
        length, address, index = struct.unpack("<IQI", reference)
        return bytes(self.file.heap_object(address, index)[:length]) if length else b""

    # Arrays

    def array(self) -> np.ndarray:
        """The array, as a view of the file. Raises `UnsupportedError` for compressed ones."""
        space, kind, layout = (self.message(k) for k in (SPACE, TYPE, LAYOUT))
        if space is None or kind is None or layout is None:
            raise ModelError("the file stores no array here", place=self.name)
        if self.message(FILTERS) is not None or self.message(EXTERNAL) is not None:
            raise UnsupportedError("compressed or external arrays", place=self.name)
        dims, dtype = dimensions(space), element_type(kind).numpy
        if dtype is None or dtype.kind not in "fiu":
            raise UnsupportedError("an array of other things than numbers", place=self.name)
        size = math.prod(dims) * dtype.itemsize
        version, storage = layout[0], layout[1]
        if version not in (3, 4) or storage > 1:
            raise UnsupportedError("arrays in pieces are not supported", place=self.name)
        if storage == 0:
            content = layout[4 : 4 + struct.unpack_from("<H", layout, 2)[0]]
        else:
            address, stored = struct.unpack_from("<QQ", layout, 2)
            content = self.file.piece(address, stored) if size else layout[:0]
        if len(content) != size:
            raise ModelError(
                f"the shape {list(dims)} needs {size} bytes, the file has {len(content)}",
                place=self.name,
            )
        found = np.frombuffer(content, dtype).reshape(dims)
        return found if found.flags.aligned else found.copy()


def dimensions(message: memoryview) -> tuple[int, ...]:
    """Sizes of a dataspace."""
    version, rank = message[0], message[1]
    if version not in (1, 2) or rank > MAX_RANK:
        raise UnsupportedError(f"a dataspace of version {version} and rank {rank}")
    found: tuple[int, ...] = struct.unpack_from(f"<{rank}Q", message, 8 if version == 1 else 4)
    return found


def element_type(message: memoryview) -> Type:
    """Integers, IEEE floats, strings of fixed or any length."""
    kind, bits = message[0] & 15, message[1]
    size = struct.unpack_from("<I", message, 4)[0]
    order = ">" if bits & 1 else "<"
    if kind == 0 and size in (1, 2, 4, 8):
        return Type(np.dtype(f"{order}{'i' if bits & 8 else 'u'}{size}"), size)
    if kind == 1 and size in (2, 4, 8):
        return Type(np.dtype(f"{order}f{size}"), size)
    if kind == 3 and size:
        return Type(np.dtype(f"S{size}"), size)
    if kind == 9 and bits & 15 == 1 and size == 16:
        return Type(None, 16)
    raise UnsupportedError(f"the HDF5 type {kind} of {size} bytes is not supported")
