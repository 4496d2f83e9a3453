"""Blocks of weights that are packed straight into files, where a cache will keep them.

Packed into memory and then written, a block would lie in memory twice: its pages and the system's
copy of the file. A file here has no name until its block is whole, so that an interrupted process
leaves nothing, and its room on the disk is taken before. Where a file system has no such files,
blocks are packed into memory.
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

from verax.base.storage.files import name_file, unnamed_file
from verax.base.storage.reading import own_pages

AT_ONCE = 1 << 26
"""Bytes of one write."""
MOST_OPEN = 256
"""Files that are open at a time: a process may have no more than about a thousand."""
_folder: ContextVar[str | None] = ContextVar("folder of blocks that are packed", default=None)


class BlockFile:
    """A file without a name, of the size of a block. room: writable uint8 [nbytes], zeros.

    The room is memory of its own that is written to the file when it is whole: pages of a file that
    are made one by one, as they are touched, lie scattered, and kernels are 5 % slower for ever.
    """

    def __init__(self, descriptor: int, nbytes: int) -> None:
        """Owns the descriptor."""
        self._descriptor, self._nbytes, self._is_written = descriptor, nbytes, False
        weakref.finalize(self, os.close, descriptor)
        self.room = np.frombuffer(own_pages(nbytes), np.uint8)
        _open.add(self)

    def sealed(self) -> tuple[np.ndarray, str]:
        """What was written, read-only uint8 [nbytes], and its SHA-256 in hexadecimal. The room may
        not be touched any more, and none of its pages is this process's until somebody reads."""
        room = self.room
        del self.room
        digest = hashlib.sha256(room.data).hexdigest()
        try:
            _write(self._descriptor, room.data)
            mapping = mmap.mmap(self._descriptor, self._nbytes, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # it stays in memory, and the file gets no name
            room.flags.writeable = False
            return room, digest
        self._is_written = True
        return np.frombuffer(mapping, np.uint8), digest

    def named(self, path: str) -> bool:
        """Give the file its name; False where something has that name, or none can be given."""
        return self._is_written and name_file(self._descriptor, path)


def _write(descriptor: int, content: memoryview) -> None:
    at = 0
    while at < len(content):
        at += os.pwrite(descriptor, content[at : at + AT_ONCE], at)


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
