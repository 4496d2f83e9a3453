"""Writing files: an interruption, a full disk or `kill -9` leaves no half of one behind.

A file is written without a name where the system can do that, and gets its name when it is whole.
Elsewhere, and for folders, the name ends in PART and the writer holds a lock on it: what bears
such a name and is not locked was left by a process that was killed, and the next writer in the
same folder removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from verax.base.errors import UsageError, VeraxError
from verax.base.process.leaving import before_vanishing

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, and nothing swept
    fcntl = None

PART = ".verax-part"
"""Ends the name of what is not finished."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
UNNAMED_UNKNOWN = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)
"""How a file system or kernel says that it has no files without a name."""


@contextmanager
def atomic_write(
    path: str | os.PathLike[str], durable: bool = True, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Open a new file; it becomes `path`, replacing what is there, only if the block succeeds.

    durable: it is on the disk before it gets its name, so that not even a power cut leaves half.
    mode: its rights, of which the process's mask takes some away.
    A device or a pipe is written to as it is. Raises `UsageError` when the folder is missing or
    read-only or the disk is full. Nothing is left on any failure, Ctrl-C included.
    """
    target = Path(path)
    try:
        if _is_special(target):
            with open(target, "wb") as stream:
                yield stream
            return
        sweep(target.parent)
        descriptor, temporary = _new_file(target, mode)
        try:
            with os.fdopen(descriptor, "w+b") as stream:
                yield cast(BinaryIO, stream)
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
                temporary = temporary or _linked(stream.fileno(), target)
                if temporary:
                    os.replace(temporary, target)
            temporary = ""
        finally:
            if temporary:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
    except OSError as error:
        raise UsageError(
            f"cannot write the file: {error.strerror or error}",
            place=str(target),
            next_step="check that the folder exists, is writable and has free space",
        ) from error


def _is_special(target: Path) -> bool:
    """Whether it is a device or a pipe, or a link to one; replacing it would be a calamity."""
    if target.is_absolute() and target.parts[1:2] in (("dev",), ("proc",)) and target.exists():
        return not target.is_dir() and target.parts[1:3] != ("dev", "shm")
    try:
        mode = target.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _new_file(target: Path, mode: int) -> tuple[int, str]:
    """An open file, and its name; "" when it has none yet."""
    unnamed = getattr(os, "O_TMPFILE", 0)
    if unnamed and os.path.isdir("/proc/self/fd"):
        try:
            return os.open(target.parent, os.O_RDWR | unnamed, mode), ""
        except OSError as error:
            if error.errno not in UNNAMED_UNKNOWN:
                raise
    while True:
        name = _part_name(target)
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        _lock(descriptor)
        if os.fstat(descriptor).st_nlink:  # else another process swept it before it was locked
            return descriptor, name
        os.close(descriptor)


def unnamed_file(folder: str | os.PathLike[str], nbytes: int) -> int | None:
    """A descriptor of a new file without a name, for its owner alone, of so many zeros whose room
    on the disk is taken; None where there is no room, or no such files."""
    unnamed, reserve = getattr(os, "O_TMPFILE", 0), _reserve()
    if not unnamed or reserve is None or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        descriptor = os.open(folder, os.O_RDWR | unnamed, 0o600)
    except OSError:
        return None
    if reserve(descriptor, 0, 0, nbytes) == 0:
        return descriptor
    os.close(descriptor)
    return None


@cache
def _reserve() -> Any:
    """Linux's fallocate(descriptor, mode, offset, size) -> 0 for success. The C library's portable
    one would write zeros where a file system cannot do it."""
    function = getattr(ctypes.CDLL(None), "fallocate", None) if os.name == "posix" else None
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    return function


def name_file(descriptor: int, path: str | os.PathLike[str]) -> bool:
    """Give a file of `unnamed_file` a name; False where that name is taken, or none can be given.
    Raises `OSError` where the folder cannot be written."""
    source = f"/proc/self/fd/{descriptor}"
    try:  # a directory's descriptor makes Python follow the link in /proc; it is not used
        os.link(source, path, src_dir_fd=descriptor, follow_symlinks=True)
    except (FileExistsError, FileNotFoundError):
        return False
    return True


def _linked(descriptor: int, target: Path) -> str:
    """Give the file its name; another one, which is returned, where that name is taken."""
    if name_file(descriptor, target):
        return ""
    _lock(descriptor)
    name = _part_name(target)
    if not name_file(descriptor, name):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return name


def _part_name(target: Path) -> str:
    return str(target.parent / f".{target.name[:100]}.{secrets.token_hex(4)}{PART}")


def _lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock until the descriptor is closed; whether it is locked. Not every file system can."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Nobody else who asks for the lock of an open file has it inside. Where a file system or
    system has no locks there is none."""
    is_locked = _lock(descriptor)
    try:
        yield
    finally:
        if is_locked:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def sweep(folder: str | os.PathLike[str]) -> None:
    """Remove what writers that were killed have left in `folder`."""
    try:
        with os.scandir(folder) as entries:
            left = [e.path for e in entries if e.name.endswith(PART)]
    except OSError:
        return
    for path in left:
        with contextlib.suppress(OSError):
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: str) -> None:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not _lock(descriptor, wait=False):
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            os.unlink(path)
    finally:
        os.close(descriptor)


@contextmanager
def _locked_folder(parent: str, prefix: str) -> Iterator[Path]:
    """A new folder, removed with all that it holds when the block ends."""
    while True:
        path = Path(parent) / f"{prefix}{secrets.token_hex(4)}{PART}"
        try:
            path.mkdir(mode=0o700)
            descriptor = os.open(path, os.O_RDONLY)
        except FileExistsError:
            continue
        except FileNotFoundError:
            if Path(parent).is_dir():
                continue  # swept before it was locked
            raise
        _lock(descriptor)
        if path.is_dir():
            break
        os.close(descriptor)
    _alive.add(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
        _alive.discard(path)


_alive: set[Path] = set()


def _remove_all() -> None:
    for path in list(_alive):
        shutil.rmtree(path, ignore_errors=True)


before_vanishing(_remove_all)


@contextmanager
def staging_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder beside `path` for files that are not finished; removed when the block ends.

    Raises `UsageError` when it cannot be made.
    """
    target = Path(path)
    sweep(target.parent)
    with contextlib.ExitStack() as stack:
        try:
            prefix = f".{target.name[:100]}."
            folder = stack.enter_context(_locked_folder(str(target.parent), prefix))
        except OSError as error:
            raise UsageError(
                f"cannot write beside the file: {error.strerror or error}",
                place=str(target),
                next_step="check that the folder exists, is writable and has free space",
            ) from error
        yield folder


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files; removed when the block ends.

    Raises `UsageError` when none can be made, or when there is no room in it for what the block
    writes. `tempfile` says where: TMPDIR, then the system's folders, then the current one.
    """
    advice = "set TMPDIR to a folder that is writable and has free space"
    with contextlib.ExitStack() as stack:
        try:
            parent = tempfile.gettempdir()
            sweep(parent)
            folder = stack.enter_context(_locked_folder(parent, "verax-"))
        except OSError as error:
            raise UsageError(
                f"no folder for temporary files can be made: {error.strerror or error}",
                place=os.environ.get("TMPDIR", tempfile.tempdir or ""),
                next_step=advice,
            ) from error
        try:
            yield folder
        except VeraxError:
            raise
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise UsageError(
                f"temporary files cannot be written: {error.strerror}",
                place=str(folder.parent),
                next_step=advice,
            ) from error
