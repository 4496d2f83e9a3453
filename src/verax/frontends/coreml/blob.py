"""The weight file of an ML program: arrays at offsets, views of the file's bytes.

A record is a header of 64 bytes (sentinel, element type, size, offset of the data) and the data
somewhere else in the file. Format: MILBlob/Blob/StorageFormat.hpp of apple/coremltools.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.base.storage.reading import companion, private_bytes
from verax.frontends.coreml.packing import bits_of, packed_size, small

PREFIX = "@model_path/"
"""How a program names the folder that its own file is in."""

SENTINEL = 0xDEADBEEF
TYPES = {
    1: np.dtype("<f2"),
    2: np.dtype("<f4"),
    3: np.dtype("u1"),
    4: np.dtype("i1"),
    5: np.dtype(ml_dtypes.bfloat16),
    6: np.dtype("<i2"),
    7: np.dtype("<u2"),
    14: np.dtype("<i4"),
    15: np.dtype("<u4"),
}
"""Element types by number."""

SMALL = {8: "int4", 9: "uint1", 10: "uint2", 11: "uint4", 12: "uint3", 13: "uint6"}
"""Element types of fewer than 8 bits, packed."""


class Blobs:
    """The weight files beside one program. folder: where it lies, None when it came as bytes."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: dict[str, memoryview] = {}

    def read(
        self, name: str, offset: int, shape: tuple[int, ...], kind: str, location: str
    ) -> np.ndarray:
        """The array at `offset` of file `name`, a view of the file's bytes.

        kind: its element type, as "float16"; one of fewer than 8 bits becomes int8 or uint8.
        Raises `ModelError` for a record that is none, or has another size or type.
        """
        data = self._file(name, location)
        if not 0 <= offset <= len(data) - 64:
            raise ModelError(f"the weights at {offset} lie beyond the file's end", place=location)
        sentinel, type_code, size, start, unused = struct.unpack_from("<IIQQQ", data, offset)
        if sentinel != SENTINEL:
            raise ModelError(f"there are no weights at {offset} of {name}", place=location)
        count, dtype = math.prod(shape), TYPES.get(type_code, np.dtype("u1"))
        recorded = SMALL.get(type_code) or (dtype.name if type_code in TYPES else "")
        if not recorded:
            raise UnsupportedError(f"weights of element type {type_code}", place=location)
        if recorded != kind:
            raise ModelError(f"{recorded} weights for the element type {kind}", place=location)
        expected_size = count * dtype.itemsize
        if type_code in SMALL:
            expected_size = packed_size(count, bits_of(kind))
            if unused != 8 * size - count * bits_of(kind):
                raise ModelError(f"{unused} bits that are not used in {size} bytes", place=location)
        if size != expected_size or start > len(data) or size > len(data) - start:
            raise ModelError(
                f"{size} bytes of weights at {start} are no {kind} array of shape {shape}",
                place=location,
            )
        if type_code in SMALL:
            return small(data[start : start + size], kind, shape)
        return np.frombuffer(data, dtype, count, start).reshape(shape)

    def _file(self, name: str, location: str) -> memoryview:
        if name in self.files:
            return self.files[name]
        self.files[name] = private_bytes(
            self._path(name, location),
            f"weight file {name}",
            place=location,
            next_step="a package is a folder; all of it must be there",
            error=ModelError,
        )
        return self.files[name]

    def _path(self, name: str, location: str) -> Path:
        """Where a named file lies. It must not leave the program's folder."""
        if self.folder is None:
            raise ModelError("weights in another file need the model's path", place=location)
        if not name.startswith(PREFIX):
            raise ModelError(
                f"the weight file {name!r} lies outside of the package", place=location
            )
        return companion(self.folder, name.removeprefix(PREFIX), "weight file", place=location)
