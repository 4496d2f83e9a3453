"""An ONNX file as a short message and the large tensors beside it, each read to where it stays.

Parsing the whole file would copy every weight three times: out of the file, into the message, and
out of that. So its fields are walked here while it is read (protobuf's "Encoding" page), and what
is large among the raw data of initializers is left out of the bytes that protobuf gets. A file that
is not written as all writers do it is read whole, and protobuf says what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import onnx

from verax.base.storage.reading import LARGE, ForwardReader, forward_reader, plain_bytes

_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT = 10
GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number


class _UnusualError(Exception):
    """The file is damaged, or states a field twice that is there once."""


def file_content(path: str | os.PathLike[str]) -> tuple[bytes, Mapping[int, memoryview]]:
    """The bytes of an ONNX file without large raw data of initializers, for protobuf, and these by
    index of the initializer. Raises `UsageError` where it cannot be read."""
    next_step = "check the path"
    try:
        with forward_reader(path, next_step=next_step) as file:
            fields = _FieldReader(file)
            return fields.model(), fields.apart
    except _UnusualError:
        return plain_bytes(path, next_step=next_step), {}


class _FieldReader:
    """Takes one file apart."""

    def __init__(self, file: ForwardReader) -> None:
        self.file = file
        self.apart: dict[int, memoryview] = {}
        self._initializers = 0

    def model(self) -> bytes:
        """The whole message."""
        pieces, has_graph = [], False
        while self.file.at < self.file.size:
            field, kind, tag = self._tag(self.file.size)
            if field == GRAPH and kind == _SIZED:
                if has_graph:  # protobuf joins them
                    raise _UnusualError
                has_graph = True
                pieces += [tag, _sized(self._graph(self._length(self.file.size)[0]))]
            else:
                pieces += [tag, self._value(kind, self.file.size)]
        return b"".join(pieces)

    def _graph(self, nbytes: int) -> bytes:
        pieces, end = [], self.file.at + nbytes
        while self.file.at < end:
            field, kind, tag = self._tag(end)
            if field != INITIALIZER or kind != _SIZED:
                pieces += [tag, self._value(kind, end)]
                continue
            length, encoded = self._length(end)
            if length < LARGE:
                pieces += [tag, encoded, self.file.short(length)]
            else:
                pieces += [tag, _sized(self._initializer(length))]
            self._initializers += 1
        return b"".join(pieces)

    def _initializer(self, nbytes: int) -> bytes:
        pieces, end = [], self.file.at + nbytes
        has_data = False
        while self.file.at < end:
            field, kind, tag = self._tag(end)
            if field != RAW_DATA:
                pieces += [tag, self._value(kind, end)]
                continue
            if kind != _SIZED or has_data:
                raise _UnusualError
            has_data = True
            length, encoded = self._length(end)
            if length < LARGE:
                pieces += [tag, encoded, self.file.short(length)]
            else:
                pieces += [tag, _sized(b"")]
                self.apart[self._initializers] = self.file.apart(length)
        return b"".join(pieces)

    def _tag(self, end: int) -> tuple[int, int, bytes]:
        """Number and kind of the next field, and the bytes that say so."""
        value, encoded = self._varint(end)
        return value >> 3, value & 7, encoded

    def _value(self, kind: int, end: int) -> bytes:
        """The bytes of a field behind its tag."""
        if kind == _VARINT:
            return self._varint(end)[1]
        if kind == _SIZED:
            length, encoded = self._length(end)
            return encoded + self.file.short(length)
        if kind not in _FIXED_BYTES or self.file.at + _FIXED_BYTES[kind] > end:
            raise _UnusualError
        return self.file.short(_FIXED_BYTES[kind])

    def _length(self, end: int) -> tuple[int, bytes]:
        """How many bytes follow, and the bytes that say so."""
        length, encoded = self._varint(end)
        if self.file.at + length > end:
            raise _UnusualError
        return length, encoded

    def _varint(self, end: int) -> tuple[int, bytes]:
        value, encoded = 0, b""
        while len(encoded) < _LONGEST_VARINT and self.file.at < end:
            byte = self.file.short(1)
            encoded += byte
            value |= (byte[0] & 0x7F) << 7 * (len(encoded) - 1)
            if byte[0] < 0x80:
                return value, encoded
        raise _UnusualError


def _sized(content: bytes) -> bytes:
    """`content` behind its length."""
    length, encoded = len(content), bytearray()
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + content
