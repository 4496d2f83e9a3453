"""TensorFlow's element types, shapes and constant tensors as NumPy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.ir.types import DType

DTYPES = {
    **{1: DType.float32, 2: DType.float64, 3: DType.int32, 4: DType.uint8, 5: DType.int16},
    **{6: DType.int8, 9: DType.int64, 10: DType.bool_, 14: DType.bfloat16, 17: DType.uint16},
    **{19: DType.float16, 22: DType.uint32, 23: DType.uint64},
}
"""Numbers of TensorFlow's element types."""
COMPLEX: dict[int, np.dtype[Any]] = {8: np.dtype(np.complex64), 18: np.dtype(np.complex128)}
"""Those of complex numbers, which are two tensors of real ones here (see `complex_parts`)."""
FIELDS = {
    **{DType.float32: "float_val", DType.float64: "double_val", DType.int64: "int64_val"},
    **{DType.bool_: "bool_val", DType.uint32: "uint32_val", DType.uint64: "uint64_val"},
    **{d: "int_val" for d in (DType.int32, DType.uint8, DType.int16, DType.int8, DType.uint16)},
    **{DType.float16: "half_val", DType.bfloat16: "half_val"},
}
"""Where a tensor without raw bytes keeps its numbers; 16-bit floats as their bits."""
MAX_REPEATED = 1 << 28
"""Elements of a constant that is stored as one number repeated."""


def dtype_of(code: int, location: str) -> DType:
    """The element type behind a number. Raises `UnsupportedError` for others (strings, ...)."""
    dtype = DTYPES.get(code)
    if dtype is None:
        raise UnsupportedError(f"the element type {code} is not supported", place=location)
    return dtype


def type_name(code: int) -> str:
    """An element type as attributes have it."""
    return str(COMPLEX[code] if code in COMPLEX else DTYPES.get(code, f"type {code}"))


def dims_of(shape: Any) -> tuple[int | str | None, ...] | None:
    """Sizes, None where one is open; None when the rank is."""
    if shape.unknown_rank:
        return None
    return tuple(int(d.size) if d.size >= 0 else (d.name or None) for d in shape.dim)


def tensor_of(tensor: Any, location: str, contents: Sequence[memoryview] = ()) -> np.ndarray:
    """The array of a constant: raw bytes, or numbers of which the last one repeats.

    contents: raw bytes that were lifted out of the message, which gives their place from 1.
    """
    dtype = None if tensor.dtype in COMPLEX else dtype_of(tensor.dtype, location)
    kind: np.dtype[Any] = COMPLEX[tensor.dtype] if dtype is None else dtype.numpy
    dims = [int(d.size) for d in tensor.tensor_shape.dim]
    if tensor.tensor_shape.unknown_rank or min(dims, default=0) < 0:
        raise ModelError(f"a constant has the shape {dims}", place=location)
    count = math.prod(dims)
    content = tensor.tensor_content
    if tensor.lifted:
        if content or not 0 < tensor.lifted <= len(contents):
            raise ModelError("a constant has two contents", place=location)
        content = contents[tensor.lifted - 1]
    if content:
        if len(content) != count * kind.itemsize:
            raise ModelError(f"{len(content)} bytes cannot be {kind}{dims}", place=location)
        return np.frombuffer(content, kind).reshape(dims)
    if dtype is None:
        field, component_type = (("scomplex_val", "f4"), ("dcomplex_val", "f8"))[
            kind.itemsize // 16
        ]
        numbers = np.array(getattr(tensor, field), component_type)
        flat = numbers[: len(numbers) // 2 * 2].view(kind)
    elif dtype in (DType.float16, DType.bfloat16):
        stored = getattr(tensor, FIELDS[dtype])
        flat = np.array(stored, np.int64).astype(np.uint16).view(dtype.numpy)
    else:
        flat = np.array(getattr(tensor, FIELDS[dtype])).astype(kind)
    if flat.size == count:
        return flat.reshape(dims)
    if flat.size > count or count > MAX_REPEATED:
        raise ModelError(f"{flat.size} numbers cannot be {kind}{dims}", place=location)
    if flat.size == 0:
        return np.zeros(dims, kind)
    filled = np.full(count, flat[-1], kind)
    filled[: flat.size] = flat
    return filled.reshape(dims)
