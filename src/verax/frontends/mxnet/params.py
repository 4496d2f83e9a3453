"""MXNet's .params files: a list of arrays, then a list of their names, little-endian.

Three layouts of an array occur: the oldest begins with the rank and has 32-bit sizes; later ones
begin with a magic number and have 64-bit sizes. The arrays returned are views of the file's bytes.

Format as written by `NDArray::Save` of apache/mxnet, src/ndarray/ndarray.cc.
"""

from __future__ import annotations

import math
import os
import struct
import sys

import ml_dtypes
import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.base.storage.reading import private_bytes

LIST_MAGIC = 0x112
MAGIC_V1, MAGIC_V2, MAGIC_V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
"""Since version 3 a rank of -1, not 0, says that an array has no content."""

MAX_RANK = 32
TYPES = {
    0: np.dtype("<f4"),
    1: np.dtype("<f8"),
    2: np.dtype("<f2"),
    3: np.dtype("u1"),
    4: np.dtype("<i4"),
    5: np.dtype("i1"),
    6: np.dtype("<i8"),
    7: np.dtype("?"),
    12: np.dtype(ml_dtypes.bfloat16),
}
"""Element types by MXNet's type flag."""


def read_params(source: str | os.PathLike[str] | bytes) -> dict[str, np.ndarray]:
    """Arrays by name ("arg:conv_weight", "aux:bn_moving_mean", or without a prefix).

    Raises `UsageError` when the file cannot be read, `ModelError` when it is damaged,
    `UnsupportedError` for sparse arrays.
    """
    if isinstance(source, bytes):
        return _ParamsReader(memoryview(source), "params").read()
    location = os.fspath(source)
    data = private_bytes(source, "params file")
    if not data:
        raise ModelError("the params file is empty", place=location)
    return _ParamsReader(data, location).read()


class _ParamsReader:
    def __init__(self, data: memoryview, location: str) -> None:
        self.data, self.location, self.at = data, location, 0

    def read(self) -> dict[str, np.ndarray]:
        if self.unpack("<QQ") != (LIST_MAGIC, 0):
            raise self.damaged("it does not begin as an MXNet params file")
        arrays = [self.array() for _ in range(self.count(4))]
        names = [self.name() for _ in range(self.count(8))]
        if len(names) != len(arrays):
            raise self.damaged(f"it holds {len(arrays)} arrays and {len(names)} names")
        if len(set(names)) != len(names):
            raise self.damaged("two arrays have the same name")
        return {n: a for n, a in zip(names, arrays) if a is not None}

    def damaged(self, cause: str) -> ModelError:
        return ModelError(
            f"the params file is damaged: {cause}",
            place=f"{self.location}, byte {self.at}",
            next_step="copy the file again; it must belong to an MXNet checkpoint",
        )

    def unpack(self, form: str) -> tuple[int, ...]:
        size = struct.calcsize(form)
        return struct.unpack(form, self.take(size))

    def take(self, size: int) -> memoryview:
        if size < 0 or size > len(self.data) - self.at:
            raise self.damaged(f"{size} more bytes are announced, {len(self.data) - self.at} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self, min_size: int) -> int:
        """A count of entries of at least `min_size` bytes each, which must fit into the file."""
        (count,) = self.unpack("<Q")
        if count > (len(self.data) - self.at) // min_size:
            raise self.damaged(f"{count} entries do not fit into the file")
        return count

    def name(self) -> str:
        (length,) = self.unpack("<Q")
        try:
            return bytes(self.take(length)).decode()
        except UnicodeDecodeError as error:
            raise self.damaged("a name is not UTF-8") from error

    def array(self) -> np.ndarray | None:
        """One array, None for one without content."""
        (first,) = self.unpack("<I")
        if first not in (MAGIC_V1, MAGIC_V2, MAGIC_V3):
            rank, form = first, "I"
        else:
            if first != MAGIC_V1:
                self.dense_only()
            (rank,), form = self.unpack("<i"), "q"
        if rank == (-1 if first == MAGIC_V3 else 0):
            return None
        if not 0 <= rank <= MAX_RANK:
            raise self.damaged(f"an array of rank {rank}")
        shape = self.unpack(f"<{rank}{form}")
        _device, _device_id, flag = self.unpack("<iii")
        if flag not in TYPES:
            raise self.damaged(f"an element type numbered {flag}")
        extent = math.prod(max(d, 1) for d in shape)  # of none, too, NumPy takes no more
        if any(d < 0 for d in shape) or extent * TYPES[flag].itemsize > sys.maxsize:
            raise self.damaged(f"an array of shape {shape}")
        dtype = TYPES[flag]
        data = self.take(math.prod(shape) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape)

    def dense_only(self) -> None:
        (storage,) = self.unpack("<i")
        if storage != 0:
            raise UnsupportedError(
                f"the params file holds a sparse array (storage type {storage})",
                place=f"{self.location}, byte {self.at}",
                next_step="convert it with NDArray.tostype('default') and save it again",
            )
