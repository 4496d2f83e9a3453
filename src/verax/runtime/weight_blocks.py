"""Blocks of packed weights, which all programs of a process share.

A program finds its blocks by their addresses in a table (`runtime.program_binary`), so its code
says nothing of where they lie, and programs for other sizes, levels or threads that read the same
weights in the same order hold the same block. A block lives as long as a program that reads it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence

import numpy as np

from verax.base.machine import memory
from verax.runtime.block_files import BlockFile

ALIGNMENT = 64
TAIL = 64
"""Bytes behind a block's content that kernels may read: they load whole vectors."""


class WeightBlock:
    """Packed weights. data: read-only uint8 [nbytes], on a 64-byte boundary.

    digest: SHA-256 of `data`, in hexadecimal; it is computed unless it is given. key: names the
    content by what it was packed from (`compiler.place.weights`), "" where that is not known.
    file: that holds `data` and has no name yet, if there is one.
    """

    def __init__(self, data: np.ndarray, digest: str = "", file: BlockFile | None = None) -> None:
        assert data.ctypes.data % ALIGNMENT == 0, "kernels load whole vectors"
        self.data = data
        self.data.flags.writeable = False
        self.digest = digest or hashlib.sha256(data.data).hexdigest()
        self.key = ""
        self.file = file

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)


class WeightStore:
    """The blocks that programs of this process hold. None is kept for its own sake."""

    def __init__(self) -> None:
        self._by_key: weakref.WeakValueDictionary[str, WeightBlock] = weakref.WeakValueDictionary()
        self._by_digest: weakref.WeakValueDictionary[str, WeightBlock] = (
            weakref.WeakValueDictionary()
        )

    def find(self, key: str = "", digest: str = "") -> WeightBlock | None:
        """The block of that key, else the one of that digest, if a program has it."""
        return self._by_key.get(key) or self._by_digest.get(digest)

    def add(self, block: WeightBlock, key: str = "") -> WeightBlock:
        """The block of the store with the content of `block`, which is `block` if there was none.

        key: found by it from now on. Who gives one vouches for it.
        """
        block = self._by_digest.setdefault(block.digest, block)
        if key:
            block.key = block.key or key
            self._by_key.setdefault(key, block)
        return block


WEIGHTS = WeightStore()
"""Of this process."""


def room_for(sizes: Sequence[int]) -> list[np.ndarray]:
    """Zeroed uint8 arrays of `sizes` bytes, one after the other in one allocation.

    One allocation gets huge pages where the system gives them to large ones alone.
    """
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    raw = np.zeros(end + ALIGNMENT, np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    return [raw[first + start : first + start + size] for start, size in zip(starts, sizes)]


def free_pages_with(block: WeightBlock) -> None:
    """Give the whole pages of a block of `room_for` back to the system when the block dies, though
    others of the same allocation live on."""
    allocation = block.data.base
    # The allocation outlives the call, for the finalizer refers to it.
    weakref.finalize(block, _free_pages, allocation, block.address, block.nbytes).atexit = False


def _free_pages(allocation: object, address: int, nbytes: int) -> None:
    memory.free_pages(address, nbytes)
