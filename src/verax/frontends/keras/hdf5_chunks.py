"""HDF5 arrays that lie in pieces: where the pieces are, and what undoes their filters.

Pieces are found by a version 1 B-tree (the classic layout), or lie as one piece, one after the
other, or by a fixed array (the newer layout). Filters: deflate, shuffle. Nothing is unpacked that
would be larger than the array's own shape says, and that is held against the file's size.

Source of the layouts: HDF5 File Format Specification, version 3.0, sections III.A.1, IV.A.2.i and
IV.A.2.l, and VII.C (fixed array).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.keras.hdf5_bytes import UNDEFINED, Bytes, little

MAX_RATIO = 200
"""How many times larger than the file all its arrays in pieces together may be."""
DEFLATE, SHUFFLE = 1, 2
FILTERS = {3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf", 32001: "blosc"}
"""Filters that are named when they are refused."""
SINGLE, IMPLICIT, FIXED = 1, 2, 3
GROWING = {4: "an extensible array", 5: "a tree of version 2"}
"""How the newer layout finds pieces."""

Piece = tuple[tuple[int, ...], int, int, int]
"""Position of its first element, address, bytes in the file, filters that are left out."""


@dataclass(frozen=True)
class Pieces:
    """An array in pieces. shape: of the array. chunk: of a piece. dtype: of both. filters: of the
    pieces, in the order in which they were applied."""

    file: Bytes
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: np.dtype
    filters: tuple[int, ...]

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunk) * self.dtype.itemsize

    def gather(self, pieces: Iterator[Piece]) -> np.ndarray:
        """The array. Raises `ModelError` when its pieces do not make it up."""
        size = math.prod(self.shape) * self.dtype.itemsize
        file_size = len(self.file.data)
        unpacked_size = math.prod(self._per_axis()) * self.chunk_bytes
        self.file.unpacked += max(size, unpacked_size)
        if self.file.unpacked > MAX_RATIO * file_size or (not self.filters and size > file_size):
            raise ModelError(f"the file is damaged: {size} bytes from a file of {file_size}")
        array, left = np.empty(self.shape, self.dtype), set(self._starts())
        for start, address, stored, omitted in pieces:
            self.file.step()
            if address == UNDEFINED:
                raise UnsupportedError("an array of which parts were never written")
            if start not in left:
                raise ModelError("the file is damaged: pieces overlap")
            left.remove(start)
            data = self._unfiltered(self.file.piece(address, stored), omitted)
            inside = tuple(slice(s, s + n) for s, n in zip(start, self.chunk))
            target = array[inside]
            piece = np.frombuffer(data, self.dtype).reshape(self.chunk)
            target[...] = piece[tuple(slice(n) for n in target.shape)]
        if left:
            raise UnsupportedError(f"an array of which {len(left)} pieces were never written")
        return array

    def _per_axis(self) -> tuple[int, ...]:
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk))

    def _unfiltered(self, data: memoryview, omitted: int) -> bytes | memoryview:
        """The bytes of a piece, as many as its shape says."""
        plain: bytes | memoryview = data
        for i, kind in reversed(list(enumerate(self.filters))):
            if omitted >> i & 1:
                continue
            if kind == DEFLATE:
                plain = self._inflated(plain)
            elif self.dtype.itemsize > 1:
                columns = np.frombuffer(plain, np.uint8).reshape(self.dtype.itemsize, -1)
                plain = columns.T.tobytes()
        if len(plain) != self.chunk_bytes:
            raise ModelError(f"the file is damaged: a piece of {len(plain)} bytes")
        return plain

    def _inflated(self, data: bytes | memoryview) -> bytes:
        """One byte more than a piece at most, which tells that there is too much."""
        try:
            return zlib.decompressobj().decompress(data, self.chunk_bytes + 1)
        except zlib.error as error:
            raise ModelError(f"the file is damaged: {error}") from error

    # Where the pieces are

    def listed(self, layout: memoryview) -> Iterator[Piece]:
        """The pieces of a layout message; see `chunk_of`."""
        if layout[0] == 3:
            return self._classic(struct.unpack_from("<Q", layout, 3)[0])
        flags, rank, width = layout[2], layout[3], layout[4]
        at = 5 + rank * width
        kind, at = layout[at], at + 1
        if kind == SINGLE:
            size, omitted = self.chunk_bytes, 0
            if flags & 2:
                size, omitted = struct.unpack_from("<QI", layout, at)
                at += 12
            address = struct.unpack_from("<Q", layout, at)[0]
            return iter([((0,) * len(self.shape), address, size, omitted)])
        if kind == IMPLICIT:
            return self._in_a_row(struct.unpack_from("<Q", layout, at)[0])
        if kind == FIXED:
            return self._fixed(struct.unpack_from("<Q", layout, at + 1)[0])
        raise UnsupportedError(f"an array in pieces found by {GROWING.get(kind, kind)}")

    def _classic(self, tree: int) -> Iterator[Piece]:
        """The leaves of a version 1 B-tree."""
        rank = len(self.shape)
        key, pending = 8 + 8 * (rank + 1), [tree] if tree != UNDEFINED else []
        while pending:
            at = pending.pop()
            self.file.tagged(at, b"TREE")
            level, count = struct.unpack("<BH", self.file.piece(at + 5, 3))
            for i in range(count):
                entry = self.file.piece(at + 24 + i * (key + 8), key + 8)
                stored, omitted = struct.unpack_from("<II", entry)
                address = struct.unpack_from("<Q", entry, key)[0]
                if level:
                    pending.append(address)
                else:
                    yield struct.unpack_from(f"<{rank}Q", entry, 8), address, stored, omitted

    def _starts(self) -> Iterator[tuple[int, ...]]:
        """Positions of the pieces, in the order of the newer layout."""
        for index in np.ndindex(*self._per_axis()):
            yield tuple(i * n for i, n in zip(index, self.chunk))

    def _in_a_row(self, address: int) -> Iterator[Piece]:
        for i, start in enumerate(self._starts()):
            yield start, address + i * self.chunk_bytes, self.chunk_bytes, 0

    def _fixed(self, header: int) -> Iterator[Piece]:
        """The entries of a fixed array, which may be cut into pages with a checksum each."""
        file = self.file
        file.tagged(header, b"FAHD")
        filtered, size, page_bits = struct.unpack("<BBB", file.piece(header + 5, 3))
        count, block = struct.unpack("<QQ", file.piece(header + 8, 16))
        file.tagged(block, b"FADB")
        if count != math.prod(self._per_axis()) or size < (8 if not filtered else 13):
            raise ModelError("the file is damaged: another number of pieces")
        at, per_page = block + 14, 1 << page_bits
        paged = count > per_page
        if paged:
            pages = -(-count // per_page)
            at += -(-pages // 8) + 4
        for i, start in enumerate(self._starts()):
            if paged and i and i % per_page == 0:
                at += 4
            entry = file.piece(at, size)
            at += size
            stored, omitted = self.chunk_bytes, 0
            if filtered:
                stored, omitted = little(entry[8 : size - 4]), little(entry[size - 4 : size])
            yield start, little(entry[:8]), stored, omitted


def chunk_of(layout: memoryview) -> tuple[int, ...]:
    """Shape of a piece, from a layout message of version 3 or 4 and class 2."""
    if layout[0] == 3:
        sizes: tuple[int, ...] = struct.unpack_from(f"<{layout[2]}I", layout, 11)
        return sizes[:-1]
    rank, width = layout[3], layout[4]
    return tuple(little(layout[5 + i * width : 5 + (i + 1) * width]) for i in range(rank - 1))


def filters_of(message: memoryview | None) -> tuple[int, ...]:
    """Kinds of a filter pipeline. Raises `UnsupportedError` naming what cannot be undone."""
    if message is None:
        return ()
    version, count = message[0], message[1]
    at, kinds = 8 if version == 1 else 2, []
    for _ in range(count):
        kind, name = struct.unpack_from("<HH", message, at)
        at += 4
        if version == 2 and kind < 256:
            name, at = 0, at - 2
        _, values = struct.unpack_from("<HH", message, at)
        name = -(-name // 8) * 8 if version == 1 else name
        at += 4 + name + 4 * values + (4 * (values % 2) if version == 1 else 0)
        if kind not in (DEFLATE, SHUFFLE):
            raise UnsupportedError(f"arrays compressed with {FILTERS.get(kind, f'filter {kind}')}")
        kinds.append(kind)
    return tuple(kinds)
