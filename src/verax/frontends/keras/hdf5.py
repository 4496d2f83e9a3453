"""Reading the HDF5 files that Keras writes: groups, attributes and arrays.

HDF5's own library can loop for ever on a damaged file, so that it is of no use here. This reads the
classic layout (superblock 0 or 1, symbol tables), which is what h5py writes unless told otherwise,
and the newer one (`libver="latest"`), straight from the file's bytes. Every address and length is
checked, work is counted, arrays in one piece are views of the file.

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
from verax.frontends.keras.hdf5_bytes import UNDEFINED, Bytes, FractalHeap, Tree, little
from verax.frontends.keras.hdf5_chunks import Pieces, chunk_of, filters_of

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAX_RANK = 32

SPACE, LINK_INFO, TYPE, LINK, EXTERNAL, LAYOUT, FILTERS, ATTRIBUTE = 1, 2, 3, 6, 7, 8, 11, 12
CONTINUATION, SYMBOLS, ATTRIBUTE_INFO = 16, 17, 21
"""Kinds of messages in an object's header."""
SOFT_LINK = 2

Message = tuple[int, memoryview]


class File(Bytes):
    """An open file. `root` is its outermost group."""

    def __init__(self, data: memoryview) -> None:
        super().__init__(data)
        if bytes(data[:8]) != SIGNATURE:
            raise ModelError("the file is not HDF5")
        version = data[8]
        sizes, start = ((13, 14), 24 if version == 0 else 28) if version < 2 else ((9, 10), 12)
        if version > 3 or any(data[i] != 8 for i in sizes):
            raise UnsupportedError(
                f"HDF5 with superblock {version} or addresses of other sizes is not supported",
                next_step="save the model with h5py's default libver",
            )
        if self.unpack("<Q", start):
            raise UnsupportedError("an HDF5 file inside of another file is not supported")
        root = start + (40 if version < 2 else 24)
        self.root = Object(self, self.unpack("<Q", root), "/")


@dataclass(frozen=True)
class ElementType:
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
    def messages(self) -> list[Message]:
        """(kind, content) of all messages of the header."""
        if bytes(self.file.piece(self.at, 4)) == b"OHDR":
            return list(self._newer_messages())
        return list(self._classic_messages())

    def _classic_messages(self) -> Iterator[Message]:
        file = self.file
        if file.unpack("<B", self.at) != 1:
            raise ModelError("the file is damaged: no object here", place=self.name)
        left = file.unpack("<H", self.at + 2)
        blocks = [(self.at + 16, file.unpack("<I", self.at + 8))]
        while blocks and left > 0:
            at, size = blocks.pop(0)
            end = at + size
            file.piece(at, size)
            while at + 8 <= end and left > 0:
                file.step()
                left -= 1
                kind, length, flags = struct.unpack("<HHB", file.piece(at, 5))
                content = file.piece(at + 8, length)
                self._not_shared(flags)
                if kind == CONTINUATION:
                    blocks.append(struct.unpack_from("<QQ", content))
                yield kind, content
                at += 8 + length

    def _newer_messages(self) -> Iterator[Message]:
        """Blocks with a checksum at their ends; further ones start with a tag."""
        file, flags = self.file, self.file.unpack("<B", self.at + 5)
        start = self.at + 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        width, head = 1 << (flags & 3), 6 if flags & 4 else 4
        blocks = [(start + width, little(file.piece(start, width)))]
        while blocks:
            at, size = blocks.pop(0)
            end = at + size
            file.piece(at, size)
            while at + head <= end:
                file.step()
                kind, length, message_flags = struct.unpack("<BHB", file.piece(at, 4))
                content = file.piece(at + head, length)
                self._not_shared(message_flags)
                if kind == CONTINUATION:
                    address, room = struct.unpack_from("<QQ", content)
                    file.tagged(address, b"OCHK")
                    blocks.append((address + 4, room - 8))
                yield kind, content
                at += head + length

    def _not_shared(self, flags: int) -> None:
        if flags & 2:
            raise UnsupportedError("shared HDF5 messages are not supported", place=self.name)

    def message(self, kind: int) -> memoryview | None:
        """The first message of a kind."""
        return next((content for k, content in self.messages if k == kind), None)

    # Groups

    @cached_property
    def members(self) -> dict[str, Object]:
        """What a group holds; nothing for an array. Links to elsewhere are refused."""
        table = self.message(SYMBOLS)
        if table is None:
            links = [content for kind, content in self.messages if kind == LINK]
            info = self.message(LINK_INFO)
            stored = () if info is None else self._stored(info, 8 if info[1] & 1 else 0, 4)
            return dict(self._link(content) for content in (*links, *stored))
        tree, heap = struct.unpack_from("<QQ", table)
        self.file.tagged(heap, b"HEAP")
        size, _, start = struct.unpack("<QQQ", self.file.piece(heap + 8, 24))
        return dict(self._entries(tree, self.file.piece(start, size)))

    def _stored(self, info: memoryview, skipped: int, key: int) -> Iterator[memoryview]:
        """Messages that a heap holds, in the order of a tree whose records have `key` bytes before
        the heap's identifier. skipped: bytes of `info` before the addresses of both."""
        heap, tree = struct.unpack_from("<QQ", info, 2 + skipped)
        if heap == UNDEFINED:
            return
        objects = FractalHeap(self.file, heap)
        for record in Tree(self.file, tree).records():
            yield objects.object(record[key : key + objects.id_length])

    def _link(self, message: memoryview) -> tuple[str, Object]:
        flags, at = message[1], 2
        kind = message[at] if flags & 8 else 0
        at += (1 if flags & 8 else 0) + (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
        width = 1 << (flags & 3)
        size, at = little(message[at : at + width]), at + width
        name = bytes(message[at : at + size]).decode()
        if kind:
            raise UnsupportedError("links are not followed", place=f"{self.name}{name}")
        (header,) = struct.unpack_from("<Q", message, at + size)
        return name, Object(self.file, header, f"{self.name}{name}/")

    def _entries(self, tree: int, names: memoryview) -> Iterator[tuple[str, Object]]:
        file, pending = self.file, [tree]
        while pending:
            at = pending.pop()
            if bytes(file.piece(at, 4)) == b"TREE":
                file.step()
                count = file.unpack("<H", at + 6)
                children = struct.unpack(f"<{2 * count}Q", file.piece(at + 32 - 8, 16 * count))
                pending.extend(children[1::2])
                continue
            file.tagged(at, b"SNOD")
            for i in range(file.unpack("<H", at + 6)):
                file.step()
                entry = file.piece(at + 8 + 40 * i, 40)
                offset, header, cache = struct.unpack_from("<QQI", entry)
                name = bytes(names[offset:]).partition(b"\0")[0].decode()
                if cache == SOFT_LINK or header == UNDEFINED:
                    raise UnsupportedError("links are not followed", place=f"{self.name}{name}")
                yield name, Object(file, header, f"{self.name}{name}/")

    def child(self, path: str) -> Object | None:
        """A member by path, None when there is none."""
        group: Object = self
        for name in path.split("/"):
            if name not in group.members:
                return None
            group = group.members[name]
        return group

    # Attributes

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes: arrays, or lists of bytes for strings (one of them for a scalar)."""
        info, inside = self.message(ATTRIBUTE_INFO), [m for k, m in self.messages if k == ATTRIBUTE]
        stored = () if info is None else self._stored(info, 2 if info[1] & 1 else 0, 0)
        return dict(self._attribute(m) for m in (*inside, *stored))

    def _attribute(self, message: memoryview) -> tuple[str, Any]:
        version, flags, *sizes = struct.unpack_from("<BBHHH", message)
        if version > 1:
            self._not_shared(2 if flags & 3 else 0)
        if version not in (1, 2, 3):
            raise UnsupportedError(f"attributes of version {version}", place=self.name)
        at, sections = 9 if version == 3 else 8, []
        for size in sizes:
            sections.append(message[at : at + size])
            at += -(-size // 8) * 8 if version == 1 else size
        name = bytes(sections[0]).partition(b"\0")[0].decode()
        kind, dims = element_type(sections[1]), dimensions(sections[2])
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
        """The array, as a view of the file when it lies there in one piece. Raises
        `UnsupportedError` naming the compression or element type that Verax lacks."""
        space, kind, layout = (self.message(k) for k in (SPACE, TYPE, LAYOUT))
        if space is None or kind is None or layout is None:
            raise ModelError("the file stores no array here", place=self.name)
        if self.message(EXTERNAL) is not None:
            raise UnsupportedError("an array in another file", place=self.name)
        dims, dtype = dimensions(space), element_type(kind).numpy
        if dtype is None or dtype.kind not in "fiu":
            raise UnsupportedError("an array of other things than numbers", place=self.name)
        version, storage = layout[0], layout[1]
        if version not in (3, 4, 5) or storage > 2:
            raise UnsupportedError(f"arrays laid out in way {version}.{storage}", place=self.name)
        if storage == 2:
            return self._in_pieces(dims, dtype, layout)
        size = math.prod(dims) * dtype.itemsize
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
        return np.frombuffer(content, dtype).reshape(dims)

    def _in_pieces(self, dims: tuple[int, ...], dtype: np.dtype, layout: memoryview) -> np.ndarray:
        try:
            chunk, filters = chunk_of(layout), filters_of(self.message(FILTERS))
            if len(chunk) != len(dims) or 0 in chunk:
                raise ModelError(f"the file is damaged: pieces {chunk} of {list(dims)}")
            pieces = Pieces(self.file, dims, chunk, dtype, filters)
            return pieces.gather(pieces.listed(layout))
        except (ModelError, UnsupportedError) as error:
            raise type(error)(error.cause, place=self.name, next_step=error.next_step) from error


def dimensions(message: memoryview) -> tuple[int, ...]:
    """Sizes of a dataspace."""
    version, rank = message[0], message[1]
    if version not in (1, 2) or rank > MAX_RANK:
        raise UnsupportedError(f"a dataspace of version {version} and rank {rank}")
    sizes: tuple[int, ...] = struct.unpack_from(f"<{rank}Q", message, 8 if version == 1 else 4)
    return sizes


FLOATS = {2: (15, 10, 5, 0, 10, 15), 4: (31, 23, 8, 0, 23, 127), 8: (63, 52, 11, 0, 52, 1023)}
"""IEEE floats by size: position of the sign; position and size of the exponent, of the mantissa;
exponent bias."""


def element_type(message: memoryview) -> ElementType:
    """Integers, IEEE floats, strings of fixed or any length."""
    kind, bits = message[0] & 15, message[1]
    size = struct.unpack_from("<I", message, 4)[0]
    order = ">" if bits & 1 else "<"
    if kind == 0 and size in (1, 2, 4, 8):
        return ElementType(np.dtype(f"{order}{'i' if bits & 8 else 'u'}{size}"), size)
    if kind == 1 and size in FLOATS and not bits & 64:
        *bit_fields, bias = struct.unpack_from("<4BI", message, 12)
        if (message[2], *bit_fields, bias) == FLOATS[size]:
            return ElementType(np.dtype(f"{order}f{size}"), size)
        raise UnsupportedError(f"a float of {size} bytes that is none of IEEE's, such as bfloat16")
    if kind == 3 and size:
        return ElementType(np.dtype(f"S{size}"), size)
    if kind == 9 and bits & 15 == 1 and size == 16:
        return ElementType(None, 16)
    raise UnsupportedError(f"the HDF5 type {kind} of {size} bytes is not supported")
