"""The bytes of an HDF5 file, every access checked and counted, and the trees and heaps in which its
newer layout keeps the links and attributes of large groups.

Source of the layouts: HDF5 File Format Specification, version 3.0, sections III.A.2 (version 2
B-trees), III.E (global heap) and III.G (fractal heap).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from verax.base.errors import ModelError, UnsupportedError

MAX_STEPS = 1_000_000
"""Headers, messages, nodes and heap objects that reading one file may look at."""
MAX_DEPTH = 16
"""Levels of a tree."""
UNDEFINED = 2**64 - 1
"""The address of what was never written."""


class Bytes:
    """A file's bytes. Work is counted, so that circles end; unpacked: bytes of arrays in pieces."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.steps, self.unpacked = data, 0, 0
        self.heaps: dict[int, dict[int, memoryview]] = {}

    def piece(self, start: int, size: int) -> memoryview:
        """Bytes of the file; raises `ModelError` when it does not have them."""
        if start < 0 or size < 0 or start + size > len(self.data):
            raise ModelError(
                f"the file is damaged: {size} bytes at {start} of {len(self.data)}",
                next_step="copy or save the file again",
            )
        return self.data[start : start + size]

    def unpack(self, kind: str, at: int) -> int:
        value: int = struct.unpack(kind, self.piece(at, struct.calcsize(kind)))[0]
        return value

    def step(self, count: int = 1) -> None:
        """Count pieces of work."""
        self.steps += count
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
            end = address + self.unpack("<Q", address + 8)
            self.piece(address, end - address)
            objects, at = {}, address + 16
            while at + 16 <= end:
                self.step()
                key, size = self.unpack("<H", at), self.unpack("<Q", at + 8)
                if key == 0:
                    break
                objects[key] = self.piece(at + 16, size)
                at += 16 + -(-size // 8) * 8
            self.heaps[address] = objects
        if index not in self.heaps[address]:
            raise ModelError(f"the file is damaged: no object {index} in the heap at {address}")
        return self.heaps[address][index]


def little(data: memoryview) -> int:
    """An unsigned number of any width."""
    return int.from_bytes(data, "little")


def width_of(limit: int) -> int:
    """Bytes that a number up to `limit` takes."""
    return max(limit.bit_length() - 1, 0) // 8 + 1


class Tree:
    """A version 2 B-tree: its records, as bytes."""

    def __init__(self, file: Bytes, at: int) -> None:
        file.tagged(at, b"BTHD")
        header = file.piece(at + 4, 34)
        self.file, self.kind = file, header[1]
        self.node_size, self.record_size, self.depth = struct.unpack_from("<IHH", header, 2)
        self.root, self.count = struct.unpack_from("<QH", header, 12)
        if not 1 <= self.record_size <= self.node_size or self.depth > MAX_DEPTH:
            raise ModelError("the file is damaged: a tree of no records, or of no end")
        # most records of a node, and of all below it, by level
        self.max_records = [(self.node_size - 10) // self.record_size]
        self.total = list(self.max_records)
        self.step_sizes: list[tuple[int, int]] = [(0, 0)]
        for level in range(1, self.depth + 1):
            file.step()
            sizes = (width_of(self.max_records[0]), width_of(self.total[-1]) if level > 1 else 0)
            pointer = 8 + sum(sizes)
            self.step_sizes.append(sizes)
            self.max_records.append((self.node_size - 10 - pointer) // (self.record_size + pointer))
            self.total.append((self.max_records[-1] + 1) * self.total[-1] + self.max_records[-1])

    def records(self) -> Iterator[memoryview]:
        """All records, in no promised order."""
        pending = [(self.root, self.count, self.depth)] if self.root != UNDEFINED else []
        while pending:
            at, count, level = pending.pop()
            self.file.tagged(at, b"BTIN" if level else b"BTLF")
            self.file.step(count)
            start = at + 6
            for i in range(count):
                yield self.file.piece(start + i * self.record_size, self.record_size)
            start += count * self.record_size
            count_width, many = self.step_sizes[level]
            for _ in range(count + 1 if level else 0):
                child = self.file.unpack("<Q", start)
                pending.append((child, little(self.file.piece(start + 8, count_width)), level - 1))
                start += 8 + count_width + many


class FractalHeap:
    """Objects of any size in blocks that double: `object` finds one by its identifier."""

    def __init__(self, file: Bytes, at: int) -> None:
        file.tagged(at, b"FRHP")
        (self.id_length, filters) = struct.unpack("<HH", file.piece(at + 5, 4))
        if filters:
            raise UnsupportedError("compressed HDF5 groups are not supported")
        largest = file.unpack("<I", at + 10)
        self.file, self.huge = file, file.unpack("<Q", at + 22)
        table = file.piece(at + 110, 32)
        self.width, self.first, self.largest, bits, _, self.root, self.rows = struct.unpack(
            "<HQQHHQH", table
        )
        if not self.width or not self.first or self.first > self.largest or bits > 64:
            raise ModelError("the file is damaged: a heap without blocks")
        self.offset_size = -(-bits // 8)
        longest = -(-(self.largest.bit_length() - 1) // 8)
        self.length_size = min(longest, width_of(largest))

    def object(self, identifier: memoryview) -> memoryview:
        """The bytes of an object."""
        kind, content = identifier[0] >> 4 & 3, identifier[1 : self.id_length]
        if identifier[0] >> 6 or kind > 2:
            raise ModelError("the file is damaged: an unknown kind of heap object")
        if kind == 2:
            return content[: (identifier[0] & 15) + 1]
        if kind == 1:
            return self._huge(content)
        offset = little(content[: self.offset_size])
        size = little(content[self.offset_size : self.offset_size + self.length_size])
        return self.file.piece(self._address(offset), size)

    def _huge(self, key: memoryview) -> memoryview:
        """An object of its own place, which a tree or the identifier itself gives."""
        if self.id_length >= 17:
            return self.file.piece(*struct.unpack_from("<QQ", key))
        for record in Tree(self.file, self.huge).records():
            address, size, object_id = struct.unpack_from("<QQQ", record)
            if object_id == little(key):
                return self.file.piece(address, size)
        raise ModelError("the file is damaged: a heap object is missing")

    def _size(self, row: int) -> int:
        """Bytes of a block in a row."""
        return self.first << max(row - 1, 0)

    def _address(self, offset: int) -> int:
        """Where a byte of the heap lies in the file."""
        at, rows, start = self.root, self.rows, 0
        while rows:
            self.file.tagged(at, b"FHIB")
            row, before = 0, start
            while row < rows and offset >= before + self.width * self._size(row):
                before += self.width * self._size(row)
                row += 1
            if row == rows:
                raise ModelError("the file is damaged: a heap object outside of its heap")
            column = (offset - before) // self._size(row)
            entry = at + 13 + self.offset_size + 8 * (row * self.width + column)
            at, start = self.file.unpack("<Q", entry), before + column * self._size(row)
            size = self._size(row)
            rows = 0
            if size > self.largest:
                rows = (size // (self.first * self.width)).bit_length()
        self.file.tagged(at, b"FHDB")
        return at + offset - start
