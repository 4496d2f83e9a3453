"""Temporary folders: what cannot be had or filled is said in words, and none is left behind."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verax.base.errors import UsageError
from verax.base.leaving import before_vanishing

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_NEXT = "set TMPDIR to a folder that can be written to and has free space"
_alive: set[str] = set()


@contextmanager
def scratch_folder(prefix: str = "verax-") -> Iterator[Path]:
    """A new temporary folder, removed at the end with what is in it.

    Raises `UsageError` when there is no place for one, or while it is used when the disk is full.
    """
    try:
        place = tempfile.mkdtemp(prefix=prefix)
    except OSError as error:
        raise UsageError(
            f"no temporary folder can be made ({error.strerror or error})", next_step=_NEXT
        ) from error
    _alive.add(place)
    try:
        yield Path(place)
    except OSError as error:
        if error.errno in _FULL:
            raise UsageError(
                f"a temporary file cannot be written ({error.strerror})",
                place=str(error.filename or place),
                next_step=_NEXT,
            ) from error
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
        _alive.discard(place)


def _remove_all() -> None:
    for place in list(_alive):
        shutil.rmtree(place, ignore_errors=True)


before_vanishing(_remove_all)
