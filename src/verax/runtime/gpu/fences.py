"""Memory with fences: whatever reads or writes outside of an array of the emulated GPU is ended by
the operating system, where a GPU would report an illegal access or read what lies there.

A fence is a page that nobody may touch. An array ends right before one, or begins right behind one:
which, alternates with `at_end`, for pages are larger than most steps aside.
"""

from __future__ import annotations

import ctypes
import mmap

PAGE = mmap.PAGESIZE
ALIGNMENT = 16
"""Of arrays that end before a fence: that of the longest copy. So many bytes less one may lie
between."""


class Fenced:
    """`nbytes` of zeros at `address`; `free` gives the memory back."""

    def __init__(self, nbytes: int, at_end: bool) -> None:
        self.nbytes = nbytes
        pages = -(-max(nbytes, 1) // PAGE)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._first_byte = ctypes.c_char.from_buffer(self._map)
        start = ctypes.addressof(self._first_byte)
        for page in (start, start + (pages + 1) * PAGE):
            if self._libc.mprotect(ctypes.c_void_p(page), PAGE, 0):
                raise OSError(ctypes.get_errno(), "a page cannot be made a fence")
        self._fences = (start, start + (pages + 1) * PAGE)
        rounded = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.address = self._fences[1] - rounded if at_end else start + PAGE

    def free(self) -> None:
        for page in self._fences:
            self._libc.mprotect(ctypes.c_void_p(page), PAGE, mmap.PROT_READ | mmap.PROT_WRITE)
        del self._first_byte
        self._map.close()
