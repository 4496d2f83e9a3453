"""Whole numbers of fewer than 8 bits, as ML programs pack them: lowest bits first."""

from __future__ import annotations

import numpy as np

CHUNK = 1 << 20
"""Numbers that are unpacked at once; a multiple of 8, so that each chunk begins with a byte."""


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` numbers of `bits` bits take."""
    return -(-count * bits // 8)


def unpacked(
    raw: bytes | memoryview | np.ndarray, bits: int, count: int, *, signed: bool
) -> np.ndarray:
    """`count` numbers as uint8, or int8 if signed, from exactly the bytes that hold them."""
    data = np.frombuffer(raw, np.uint8) if not isinstance(raw, np.ndarray) else raw
    codes = np.empty(count, np.uint8)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        chunk = data[start * bits // 8 : packed_size(start + size, bits)]
        flags = np.unpackbits(chunk, bitorder="little")[: size * bits].reshape(size, bits)
        codes[start : start + size] = np.packbits(flags, axis=1, bitorder="little").ravel()
    if not signed:
        return codes
    return np.asarray((codes << (8 - bits)).view(np.int8) >> (8 - bits))


def bits_of(kind: str) -> int:
    """Bits of an element type by name, as "uint3"."""
    return int(kind[-1])


def small(raw: bytes | memoryview, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array [*shape] of an element type of fewer than 8 bits, as int8 or uint8."""
    count = int(np.prod(shape, dtype=np.int64))
    return unpacked(raw, bits_of(kind), count, signed=kind[0] == "i").reshape(shape)
