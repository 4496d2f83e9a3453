"""The variables of a SavedModel: `variables.index`, a sorted table, and raw `variables.data-*`.

The table is LevelDB's: a footer that points at an index block, whose entries point at blocks of
entries with shared key prefixes. Nothing is allocated that the file does not hold.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from verax.base.errors import ModelError, UnsupportedError
from verax.base.storage.reading import companion, private_bytes
from verax.frontends.tensorflow.large_tensors import varint
from verax.frontends.tensorflow.messages import CLASSES
from verax.frontends.tensorflow.tensors import DTYPES

MAGIC = 0xDB4775248B80FB57
FOOTER = 48
TRAILER = 5
"""Bytes after a block: how it is compressed, and a checksum."""
CHECKSUM = 4
"""Bytes of a checksum, which also lies between the lengths and the bytes of strings."""
OBJECTS, STRING = b"_CHECKPOINTABLE_OBJECT_GRAPH", 7
"""Key and element type of the table of objects."""


class Bundle:
    """Tensors by their checkpoint key. Raises `ModelError` when the files are damaged."""

    def __init__(self, prefix: Path) -> None:
        self.prefix, self.location = prefix, f"{prefix.name}.index"
        self.index = self._read(self.location).tobytes()
        self.shards: dict[int, Any] = {}
        try:
            entries = dict(self._entries())
            header = CLASSES["BundleHeader"].FromString(entries.pop(b"", b""))
            self.entries = {k: CLASSES["BundleEntry"].FromString(v) for k, v in entries.items()}
        except (IndexError, struct.error, DecodeError, ValueError) as error:
            raise ModelError(
                f"the index of variables is damaged ({error})", place=self.location
            ) from error
        if header.endianness:
            raise UnsupportedError("the variables are not little-endian", place=self.location)
        self.count = max(1, header.num_shards)

    def _read(self, name: str) -> memoryview:
        """The bytes of a file of variables."""
        description, folder = "file of variables", self.prefix.parent
        path = companion(folder.parent, f"{folder.name}/{name}", description)
        return private_bytes(path, description, place=str(folder / name), error=ModelError)

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        footer = self.index[-FOOTER:]
        if len(footer) < FOOTER or struct.unpack("<Q", footer[-8:])[0] != MAGIC:
            raise ValueError("it has no footer")
        _, at = varint(footer, 0)
        _, at = varint(footer, at)
        offset, at = varint(footer, at)
        size, _ = varint(footer, at)
        for _, handle in self._block(offset, size):
            start, at = varint(handle, 0)
            length, _ = varint(handle, at)
            yield from self._block(start, length)

    def _block(self, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
        if offset + size + TRAILER > len(self.index) or size < 4:
            raise ValueError("a block lies outside of the file")
        if self.index[offset + size]:
            raise UnsupportedError("the index of variables is compressed", place=self.location)
        checked, end = offset + size + 1, offset + size + TRAILER
        if masked_crc(self.index[offset:checked]) != self.index[checked:end]:
            raise ValueError("a block's checksum is wrong")
        block = self.index[offset : offset + size]
        (restarts,) = struct.unpack("<I", block[-4:])
        end = size - 4 - 4 * restarts
        at, key = 0, b""
        while at < end:
            shared, at = varint(block, at)
            own, at = varint(block, at)
            length, at = varint(block, at)
            if shared > len(key) or at + own + length > end:
                raise ValueError("an entry lies outside of its block")
            key = key[:shared] + block[at : at + own]
            yield key, block[at + own : at + own + length]
            at += own + length

    def _bytes(self, entry: Any) -> memoryview:
        if entry.shard_id not in range(self.count):
            raise ModelError(f"there is no shard {entry.shard_id}", place=self.location)
        if entry.shard_id not in self.shards:
            name = f"{self.prefix.name}.data-{entry.shard_id:05d}-of-{self.count:05d}"
            self.shards[entry.shard_id] = self._read(name)
        data = self.shards[entry.shard_id]
        if not 0 <= entry.offset <= entry.offset + entry.size <= len(data):
            raise ModelError("a variable lies outside of its file", place=self.location)
        return data[entry.offset : entry.offset + entry.size]

    def tensor(self, key: str) -> np.ndarray | None:
        """A variable, a view of its file's bytes; None when there is none of that key."""
        entry = self.entries.get(key.encode())
        if entry is None:
            return None
        if entry.slices:
            raise UnsupportedError(
                f"the variable {key!r} is stored in {len(entry.slices)} parts",
                place=self.location,
                next_step="freeze the graph, or save it without partitioned variables",
            )
        dtype = DTYPES.get(entry.dtype)
        if dtype is None:
            raise UnsupportedError(
                f"the element type {entry.dtype} of {key!r}", place=self.location
            )
        dims = [int(d.size) for d in entry.shape.dim]
        data = self._bytes(entry)
        if min(dims, default=0) < 0 or math.prod(dims) * dtype.numpy.itemsize != len(data):
            raise ModelError(f"{len(data)} bytes cannot be {dtype}{dims}", place=key)
        return np.frombuffer(data, dtype.numpy).reshape(dims)

    def keys_by_name(self) -> dict[str, str]:
        """Checkpoint keys by the names that variables had when they were saved; names that several
        bear are left out. The table lies in the checkpoint as a string tensor."""
        entry = self.entries.get(OBJECTS)
        if entry is None or entry.dtype != STRING:
            return {}
        data = bytes(self._bytes(entry))
        try:
            length, at = varint(data, 0)
            saved = CLASSES["SavedObjects"].FromString(data[at + CHECKSUM :][:length])
        except (IndexError, ValueError, DecodeError) as error:
            raise ModelError(
                f"the table of objects is damaged ({error})", place=self.location
            ) from error
        keys_of_name: dict[str, set[str]] = {}
        for attribute in (a for node in saved.nodes for a in node.attributes):
            keys_of_name.setdefault(attribute.full_name, set()).add(attribute.checkpoint_key)
        return {name: keys.pop() for name, keys in keys_of_name.items() if name and len(keys) == 1}


def _crc_table() -> tuple[int, ...]:
    """Remainders of the 256 bytes by Castagnoli's polynomial, bits reversed."""
    remainders = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        remainders.append(value)
    return tuple(remainders)


CRC_TABLE = _crc_table()


def masked_crc(data: bytes) -> bytes:
    """CRC-32C, rotated and moved by a constant as LevelDB stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)
