"""Blocks of weights that are packed straight into files, where a cache will keep them.

Packed into memory and then written, a block would lie in memory twice: its pages and the system's
copy of the file. A file here has no name until its block is whole, so that an interrupted process
leaves nothing; its room on the disk is taken before, for who writes a map of a full disk is ended
by the system. Where a file system has no such files, blocks are packed into memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np

from verax.base.files import name_file, unnamed_file

MOST_OPEN = 256
"""Files that are open at a time: a process may have no more than about a thousand."""
_folder: ContextVar[str | None] = ContextVar("folder of blocks that are packed", default=None)


class BlockFile:
    """A file without a name, of the size of a block. room: writable uint8 [nbytes], zeros."""

    def __init__(self, descriptor: int, nbytes: int) -> None:
        """Owns the descriptor."""
        self._descriptor, self._nbytes = descriptor, nbytes
        weakref.finalize(self, os.close, descriptor)
        self._mapping = mmap.mmap(descriptor, nbytes)
        self.room = np.frombuffer(self._mapping, np.uint8)
        _open.add(self)

    def sealed(self) -> tuple[np.ndarray, str]:
        """What was written, read-only uint8 [nbytes], and its SHA-256 in hexadecimal. The room may
        not be touched any more, and none of its pages is this process's until somebody reads."""
        digest = hashlib.sha256(self.room.data).hexdigest()
        del self.room
        with contextlib.suppress(BufferError):  # what still refers to it is never written
            self._mapping.close()
        mapping = mmap.mmap(self._descriptor, self._nbytes, access=mmap.ACCESS_READ)
        return np.frombuffer(mapping, np.uint8), digest

    def named(self, path: str) -> bool:
        """Give the file its name; False where something has that name, or none can be given."""
        return name_file(self._descriptor, path)


_open: weakref.WeakSet[BlockFile] = weakref.WeakSet()


@contextlib.contextmanager
def blocks_in(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Blocks that are packed inside get files in `folder`; None: memory."""
    token = _folder.set(None if folder is None else os.fspath(folder))
    try:
        yield
    finally:
        _folder.reset(token)


def block_file(nbytes: int) -> BlockFile | None:
    """A file for a block in the folder that is set; None where it has to be packed into memory."""
    folder = _folder.get()
    if folder is None or not nbytes or len(_open) >= MOST_OPEN:
        return None
    descriptor = unnamed_file(folder, nbytes)
    if descriptor is None:
        return None
    try:
        return BlockFile(descriptor, nbytes)
    except (OSError, ValueError):  # no room among the addresses; the descriptor is closed
        return None
