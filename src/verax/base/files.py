"""Files: written so that an interruption or a full disk never leaves half of one behind, and mapped
for reading."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from verax.base.errors import ModelError, UsageError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; rename it to `path` only if the block succeeds.

    Raises `UsageError` when the folder is missing or read-only or the disk is full; the temporary
    file is removed on every failure, Ctrl-C included.
    """
    target = Path(path)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            yield cast(BinaryIO, stream)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
        temporary = ""
    except OSError as error:
        raise UsageError(
            f"cannot write the file: {error.strerror or error}",
            place=str(target),
            next_step="check that the folder exists, is writable and has free space",
        ) from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def open_bytes(source: str | os.PathLike[str] | bytes) -> memoryview:
    """The bytes of a file, mapped; bytes as they are.

    Raises `UsageError` when the file cannot be read, `ModelError` when it is empty.
    """
    if isinstance(source, bytes):
        return memoryview(source)
    try:
        with Path(source).open("rb") as stream:
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise UsageError(f"cannot read the file: {error.strerror}", place=str(source)) from error
    except ValueError as error:
        raise ModelError("the file is empty", place=str(source)) from error
