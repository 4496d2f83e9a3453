"""Data of ONNX's tensors as bytes: types of 4 and 2 bits lie two and four to a byte there, the
first in the low bits, and a byte an element in memory."""

from __future__ import annotations

import numpy as np

from verax.ir.types import NARROW_INTEGERS, DType


def stored_bits(dtype: DType) -> int:
    """Bits that an element takes in a file."""
    if dtype is DType.float4_e2m1fn:
        return 4
    if dtype in NARROW_INTEGERS:
        return int(dtype.value.lstrip("uint"))
    return 8 * dtype.itemsize


def stored_bytes(dtype: DType, count: int) -> int:
    """Bytes that `count` elements take in a file."""
    return (count * stored_bits(dtype) + 7) // 8


def unpacked(data: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """`count` elements out of packed bytes (uint8), as an array of their own."""
    bits = stored_bits(dtype)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (data[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(-1)[:count].copy().view(dtype.numpy)


def packed(array: np.ndarray) -> bytes:
    """An array's data as they lie in a file, in row-major order."""
    dtype = DType.of(array)
    bits = stored_bits(dtype)
    plain = np.ascontiguousarray(array)
    if bits >= 8:
        return plain.tobytes()
    codes = plain.reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    codes_per_byte = 8 // bits
    codes = np.pad(codes, (0, -codes.size % codes_per_byte)).reshape(-1, codes_per_byte)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(codes << shifts, axis=1).astype(np.uint8).tobytes()
