"""Types and constants of ML programs (MIL.proto) as NumPy arrays, texts and foreign values."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignValue
from verax.frontends.coreml.blob import Blobs
from verax.frontends.coreml.packing import bits_of, packed_size, small
from verax.ir.types import DType

NAMES = {
    1: "bool",
    10: "float16",
    11: "float32",
    12: "float64",
    13: "bfloat16",
    21: "int8",
    22: "int16",
    23: "int32",
    24: "int64",
    31: "uint8",
    32: "uint16",
    33: "uint32",
    34: "uint64",
}
"""Element types by their number in MIL.proto."""

SMALL = {25: "int4", 35: "uint4", 36: "uint2", 37: "uint1", 38: "uint6", 39: "uint3"}
"""Element types of fewer than 8 bits, which only compressed weights have."""

STRING = 2
MAX_ELEMENTS = 2**40


def value_of(named: Any) -> ForeignValue:
    """A NamedValueType: a declared tensor, or something that is none."""
    kind = named.type.WhichOneof("type") or "no type"
    if kind != "tensorType":
        return ForeignValue(named.name, None, None, kind.removesuffix("Type"))
    tensor = named.type.tensorType
    name = NAMES.get(tensor.dataType)
    dtype = None if name is None else DType(name)
    dims: tuple[int | str | None, ...] | None = None
    if tensor.rank >= 0:
        dims = tuple(_dim(d) for d in tensor.dimensions)
        if len(dims) != tensor.rank or math.prod(d or 1 for d in dims) > MAX_ELEMENTS:  # type: ignore[misc]
            raise ModelError(
                f"a tensor of {tensor.rank} axes {dims}", place=f"value {named.name!r}"
            )
    return ForeignValue(named.name, dtype, dims, f"element type {tensor.dataType}")


def _dim(message: Any) -> int | None:
    return int(message.constant.size) if message.WhichOneof("dimension") == "constant" else None


def constant_of(message: Any, blobs: Blobs, location: str) -> Any:
    """A Value: an array (of rank 0 for a number), a text, or a tuple of texts; a list as a tuple.

    Raises `ModelError` when its content does not fit its type.
    """
    kind = message.type.WhichOneof("type")
    if kind == "listType" and message.immediateValue.WhichOneof("value") == "list":
        items = message.immediateValue.list.values
        return tuple(_item(v, blobs, location) for v in items)
    if kind != "tensorType":
        raise UnsupportedError(f"a constant that is a {kind}", place=location)
    tensor = message.type.tensorType
    dims = [_dim(d) for d in tensor.dimensions]
    if None in dims or len(dims) != tensor.rank:
        raise ModelError(f"a constant of open shape {dims}", place=location)
    shape = tuple(int(d) for d in dims if d is not None)
    if math.prod(shape) > MAX_ELEMENTS:
        raise ModelError(f"a constant of shape {shape}", place=location)
    if message.WhichOneof("value") == "blobFileValue":
        blob = message.blobFileValue
        kind = SMALL.get(tensor.dataType) or NAMES.get(tensor.dataType, "")
        return blobs.read(blob.fileName, blob.offset, shape, kind, location)
    content = message.immediateValue
    if content.WhichOneof("value") != "tensor":
        raise UnsupportedError("a constant that is no tensor", place=location)
    field = content.tensor.WhichOneof("value")
    if field is None:
        if math.prod(shape):
            raise ModelError("a constant without content", place=location)
        return np.zeros(shape, _numpy(tensor.dataType, location))
    values = getattr(content.tensor, field).values
    if tensor.dataType == STRING:
        if field != "strings" or len(values) != math.prod(shape):
            raise ModelError("a text of another kind", place=location)
        return str(values[0]) if not shape else tuple(map(str, values))
    if tensor.dataType in SMALL:
        kind = SMALL[tensor.dataType]
        if field != "bytes" or len(values) != packed_size(math.prod(shape), bits_of(kind)):
            raise ModelError(f"{field} hold no {kind} array of shape {shape}", place=location)
        return small(values, kind, shape)
    dtype = _numpy(tensor.dataType, location)
    if field == "bytes":
        if len(values) != math.prod(shape) * dtype.itemsize:
            raise ModelError(f"{len(values)} bytes are no {dtype} of shape {shape}", place=location)
        return np.frombuffer(values, dtype).reshape(shape)
    if len(values) != math.prod(shape):
        raise ModelError(f"{len(values)} values for the shape {shape}", place=location)
    return np.array(values, dtype).reshape(shape)


def _item(message: Any, blobs: Blobs, location: str) -> Any:
    """One constant of a list, which is no list itself."""
    if message.type.WhichOneof("type") != "tensorType":
        raise UnsupportedError("a constant that is a list of lists", place=location)
    return constant_of(message, blobs, location)


def _numpy(type_code: int, location: str) -> np.dtype:
    name = NAMES.get(type_code)
    if name is None:
        raise UnsupportedError(f"constants of element type {type_code}", place=location)
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def is_small(named: Any) -> bool:
    """Whether a NamedValueType or a Value is of fewer than 8 bits per element."""
    kind = named.type.WhichOneof("type")
    return kind == "tensorType" and named.type.tensorType.dataType in SMALL
