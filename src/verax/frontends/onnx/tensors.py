"""ONNX TensorProto -> NumPy, believing nothing that the file claims about sizes and places.

Data in other files is read once, and only files inside the model's own folder are opened.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from verax.base.errors import ModelError, UnsupportedError
from verax.base.storage.reading import companion, in_own_pages, private_bytes
from verax.ir.types import DType
from verax.onnx_format.dtypes import CODES, DTYPES, dtype_name
from verax.onnx_format.packing import stored_bits, stored_bytes, unpacked

MAX_ELEMENTS = 1 << 40
"""More elements than any tensor that fits a machine; guards arithmetic on absurd dimensions."""

_INT32_STORED = (
    DType.int32, DType.int16, DType.int8, DType.uint16, DType.uint8, DType.bool_,
    DType.float16, DType.bfloat16,
)  # fmt: skip


def dtype_of(code: int, source: str) -> DType:
    """The element type; raises `UnsupportedError` for those that Verax lacks."""
    if code not in TensorProto.DataType.values() or code == TensorProto.UNDEFINED:
        raise ModelError(f"{code} is not an element type", place=source)
    if code not in DTYPES:
        raise UnsupportedError(
            f"the element type {dtype_name(code)} is not supported",
            place=source,
            next_step=f"convert to one of {', '.join(CODES)}",
        )
    return DTYPES[code]


class TensorReader:
    """Reads the tensors of one model; `folder` is where external data may lie, None for nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: dict[Path, memoryview] = {}

    def read(
        self, proto: onnx.TensorProto, source: str, apart: memoryview | None = None
    ) -> np.ndarray:
        """The array. apart: its raw data, if the message holds none of them. Raises `ModelError`
        when the data do not fit the declared type and dims."""
        dtype = dtype_of(proto.data_type, source)
        shape = tuple(int(d) for d in proto.dims)
        if any(d < 0 for d in shape):
            raise ModelError(f"the dimensions {shape} are negative", place=source)
        if len(shape) > 64:
            raise ModelError(f"the tensor has {len(shape)} dimensions", place=source)
        count = math.prod(shape)
        if count > MAX_ELEMENTS:
            raise ModelError(f"the dimensions {shape} are absurdly large", place=source)
        if proto.HasField("segment"):
            raise UnsupportedError("the tensor is stored in segments", place=source)
        if proto.data_location == TensorProto.EXTERNAL:
            return self._external(proto, dtype, shape, source)
        if proto.HasField("raw_data"):
            raw = in_own_pages(proto.raw_data) if apart is None else apart
            if len(raw) != stored_bytes(dtype, count):
                raise self._size_error(len(raw), "bytes", dtype, shape, source)
            return _typed(raw, 0, dtype, shape)
        return self._fields(proto, dtype, count, source).reshape(shape)

    def _fields(self, proto: onnx.TensorProto, dtype: DType, count: int, source: str) -> np.ndarray:
        stored: Any
        wide: type[np.generic]
        if dtype is DType.float32:
            stored, wide = proto.float_data, np.float32
        elif dtype is DType.float64:
            stored, wide = proto.double_data, np.float64
        elif dtype is DType.int64:
            stored, wide = proto.int64_data, np.int64
        elif dtype in (DType.uint32, DType.uint64):
            stored, wide = proto.uint64_data, np.uint64
        elif dtype.is_narrow:
            return self._codes(proto, dtype, count, source)
        else:
            assert dtype in _INT32_STORED
            stored, wide = proto.int32_data, np.int32
        if len(stored) != count:
            raise self._size_error(len(stored), "elements", dtype, tuple(proto.dims), source)
        array = np.array(stored, wide)
        if array.dtype == dtype.numpy:
            return array
        if dtype in (DType.float16, DType.bfloat16):
            return array.astype(np.uint16).view(dtype.numpy)
        result = array.astype(dtype.numpy)
        if not np.array_equal(result.astype(wide), array):
            raise ModelError(f"stored values do not fit {dtype}", place=source)
        return result

    def _codes(self, proto: onnx.TensorProto, dtype: DType, count: int, source: str) -> np.ndarray:
        """Elements of up to 8 bits out of numbers that are a byte each."""
        codes = np.array(proto.int32_data, np.int32)
        if codes.size != stored_bytes(dtype, count):
            raise self._size_error(codes.size, "bytes", dtype, tuple(proto.dims), source)
        if ((codes < -128) | (codes > 255)).any():
            raise ModelError(f"stored values do not fit {dtype}", place=source)
        return _elements(codes.astype(np.uint8), dtype, count)

    def _external(
        self, proto: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], source: str
    ) -> np.ndarray:
        if proto.raw_data or proto.float_data or proto.int32_data or proto.int64_data:
            raise ModelError("the tensor has both its own and external data", place=source)
        entries = {entry.key: entry.value for entry in proto.external_data}
        data = self._open(entries.get("location", ""), source)
        size = stored_bytes(dtype, math.prod(shape))
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries["length"]) if "length" in entries else size
        except ValueError:
            raise ModelError("offset or length is not a number", place=source) from None
        if offset < 0 or length != size:
            raise self._size_error(length, "bytes", dtype, shape, source)
        if offset + size > len(data):
            raise ModelError(
                f"external data end at byte {offset + size} of a file of {len(data)}",
                place=source,
                next_step="the data file is truncated or belongs to another model",
            )
        if size == 0:
            return np.zeros(shape, dtype.numpy)
        return _typed(data, offset, dtype, shape)

    def _open(self, location: str, source: str) -> memoryview:
        if self.folder is None:
            raise ModelError(
                f"the data lie in the file {location!r}, and no folder is known",
                place=source,
                next_step="load the model by its path, not from bytes",
            )
        path = companion(self.folder, location, "data file", place=source)
        if path not in self.files:
            description = f"data file {location!r}"
            self.files[path] = private_bytes(path, description, place=source, error=ModelError)
        return self.files[path]

    @staticmethod
    def _size_error(
        stored: int, unit: str, dtype: DType, shape: tuple[int, ...], source: str
    ) -> ModelError:
        return ModelError(
            f"{stored} {unit} are stored for {dtype}{list(shape)}",
            place=source,
            next_step="the file is damaged",
        )


def _typed(
    data: bytes | memoryview, offset: int, dtype: DType, shape: tuple[int, ...]
) -> np.ndarray:
    count = math.prod(shape)
    if dtype.is_narrow:
        codes = np.frombuffer(data, np.uint8, stored_bytes(dtype, count), offset)
        return _elements(codes, dtype, count).reshape(shape)
    stored = dtype.numpy.newbyteorder("<") if dtype is not DType.bfloat16 else dtype.numpy
    if dtype is DType.bool_:
        # Any byte may stand here; a bool that is not 0 or 1 breaks NumPy and compiled code.
        return (np.frombuffer(data, np.uint8, count, offset) != 0).reshape(shape)
    array = np.frombuffer(data, stored, count, offset).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _elements(codes: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Elements of up to 8 bits from a file's bytes."""
    return codes.view(dtype.numpy) if stored_bits(dtype) == 8 else unpacked(codes, dtype, count)
