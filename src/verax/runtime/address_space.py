"""Keeps what is mapped at one time close together in the address space.

Generated code reaches its constants by 32-bit offsets, so the sections of an object must lie within
2 GB of each other. LLVM maps each section by itself and the kernel puts it into the highest hole
that fits: in a process crowded by frameworks and mapped weights, a small section can land many
gigabytes above the code, and LLVM aborts. While `mapped_together` lasts, such holes are filled.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAPS = Path("/proc/self/maps")
PRIVATE_ANONYMOUS = 0x22
NO_RESERVE = 0x4000
FIXED_NO_REPLACE = 0x100000
NEAR = 1 << 30
"""Holes this close to the room that is found do no harm."""


@contextmanager
def mapped_together(size: int) -> Iterator[None]:
    """While it lasts, mappings of up to `size` bytes in all go next to each other.

    Best effort, and only on Linux: where holes cannot be filled nothing happens.
    """
    filled = _fill(size) if sys.platform == "linux" and MAPS.exists() else []
    try:
        yield
    finally:
        for start, length in filled:
            _libc().munmap(start, length)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _fill(size: int) -> list[tuple[int, int]]:
    """Occupy the holes that are too small for `size` bytes and lie far above where these go."""
    libc = _libc()
    room = libc.mmap(None, size, 0, PRIVATE_ANONYMOUS | NO_RESERVE, -1, 0)
    if room in (None, ctypes.c_void_p(-1).value):
        return []
    libc.munmap(room, size)
    filled = []
    for start, end in _holes():
        if start - room > NEAR and end - start < size:
            flags = PRIVATE_ANONYMOUS | NO_RESERVE | FIXED_NO_REPLACE
            if libc.mmap(start, end - start, 0, flags, -1, 0) == start:
                filled.append((start, end - start))
    return filled


def _holes() -> Iterator[tuple[int, int]]:
    """Unmapped ranges between mappings, from low to high; not the one into which the main thread's
    stack grows."""
    last = None
    for line in MAPS.read_text().splitlines():
        start, _, end = line.partition(" ")[0].partition("-")
        if last is not None and int(start, 16) > last and not line.endswith("[stack]"):
            yield last, int(start, 16)
        last = int(end, 16)
