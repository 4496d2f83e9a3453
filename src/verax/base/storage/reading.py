"""Reading model files: their bytes become this process's own, and companions stay in the folder.

A mapped file is not private: who truncates it makes its readers die of SIGBUS, and who overwrites
it gives them other weights. Therefore no file of others is mapped: the whole file is copied once
into anonymous memory, and a change during the copy is noticed. Resident memory is what a map would
have once its pages were touched. Only what Verax itself keeps in a folder where nobody else may
write, and never changes in place, is mapped (`mapped_bytes`).
"""

from __future__ import annotations

import contextvars
import errno
import hashlib
import io
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from verax.base.errors import ModelError, UsageError, VeraxError
from verax.base.storage.private import is_private
from verax.base.storage.unchanged import Identity, identity_of, is_settled, known_sha256, remember

MOST_AT_ONCE = 1 << 30
"""Bytes that one system call is asked for; Linux gives 2 GiB at most."""
LARGE = 1 << 18
"""Bytes of a constant that is worth pages of its own."""
HUGE_FROM = 1 << 22
"""Bytes from which on memory is asked for in huge pages: a fault for every 4 KiB takes longer than
reading them."""
PIECE = 1 << 20
"""Bytes that are read at once to be hashed."""
WINDOW = 1 << 16
"""Bytes that are read ahead of short parts of a file."""
_recorded: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar(
    "files that were read", default=None
)
PRIVATE: dict[str, Any] = (
    {} if os.name == "nt" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
)


def open_bytes(source: str | os.PathLike[str] | bytes) -> memoryview:
    """The bytes of a model's file, read-only and private; bytes as they are.

    Raises `UsageError` when the file cannot be read, `ModelError` when it is empty.
    """
    if isinstance(source, bytes):
        return memoryview(source)
    content = private_bytes(source)
    if not content:
        raise ModelError("the file is empty", place=str(source))
    return content


def private_bytes(
    path: str | os.PathLike[str], description: str = "file", **options: Any
) -> memoryview:
    """A regular file's bytes, read-only, beginning on a page; later changes do not reach them.

    what: the file's part in the model, for errors; told: see `_opened`, whose errors this raises.
    """
    with _opened(path, description, **options) as (descriptor, size):
        memory = own_pages(size)
        identity = identity_of(os.fstat(descriptor))
        _fill(memory, descriptor, size)
    _record(path, memory, identity)
    return memory.toreadonly()


def mapped_bytes(path: str | os.PathLike[str], **options: Any) -> memoryview:
    """A file that Verax itself wrote where nobody else may write, mapped: nothing is copied.

    It may be removed or replaced meanwhile, but never be changed. Raises as `private_bytes`, and
    where it is a link or not this user's alone.
    """
    return mapped_file(path, **options)[0]


def mapped_file(path: str | os.PathLike[str], **options: Any) -> tuple[memoryview, Identity]:
    """As `mapped_bytes`, with the identity of the file that was mapped."""
    with _opened(path, "file", own=True, **options) as (descriptor, size):
        identity = identity_of(os.fstat(descriptor))
        if not size:
            return memoryview(b""), identity
        content = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
        return content.toreadonly(), identity


def plain_bytes(path: str | os.PathLike[str], description: str = "file", **options: Any) -> bytes:
    """As `private_bytes`, for what needs an object of class `bytes`, such as protobuf."""
    with _opened(path, description, **options) as (descriptor, size):
        pieces, left, identity = [], size, identity_of(os.fstat(descriptor))
        while left and (piece := os.read(descriptor, min(left, MOST_AT_ONCE))):
            pieces.append(piece)
            left -= len(piece)
        if left:
            raise EOFError
    content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    _record(path, content, identity)
    return content


def in_own_pages(content: bytes) -> bytes | memoryview:
    """`content`, read-only; where it is large, copied to pages of its own, which the system has
    back as soon as nobody reads them: of freed memory below 32 MiB the C library keeps much."""
    if len(content) < LARGE:
        return content
    memory = own_pages(len(content))
    memory[:] = content
    return memory.toreadonly()


class ForwardReader:
    """A file read from front to end: short parts as bytes, large ones into pages of their own, so
    that nothing large is copied again by whoever takes the file apart."""

    def __init__(self, descriptor: int, size: int, digest: Any = None) -> None:
        """descriptor: at the front of a file of `size` bytes. digest: updated with all of them."""
        self.size, self.at = size, 0
        self._descriptor, self._digest = descriptor, digest
        self._window, self._used = b"", 0  # what was read ahead, and how much of it was taken

    def short(self, count: int) -> bytes:
        """The next `count` bytes. Raises `EOFError` where there are fewer."""
        while len(self._window) - self._used < count:
            missing = count - len(self._window) + self._used
            piece = os.read(self._descriptor, max(WINDOW, missing))
            if not piece:
                raise EOFError
            self._window, self._used = self._window[self._used :] + piece, 0
        self._used += count
        return self._passed(self._window[self._used - count : self._used])

    def apart(self, count: int) -> memoryview:
        """The same, read-only, in pages that the system has back when nobody reads them."""
        memory = own_pages(count)
        ahead = self._window[self._used : self._used + count]
        memory[: len(ahead)] = ahead
        self._used += len(ahead)
        at = len(ahead)
        while at < count:
            got = os.readv(self._descriptor, [memory[at : at + MOST_AT_ONCE]])
            if got == 0:
                raise EOFError
            at += got
        return self._passed(memory.toreadonly())

    def _passed(self, content: Any) -> Any:
        self.at += len(content)
        if self._digest is not None:
            self._digest.update(content)
        return content


@contextmanager
def forward_reader(path: str | os.PathLike[str], **options: Any) -> Iterator[ForwardReader]:
    """A regular file to be read from front to end. Raises as `private_bytes`, at its end too.

    Who has read all of it has read what `recording` says.
    """
    with _opened(path, "file", **options) as (descriptor, size):
        identity, files = identity_of(os.fstat(descriptor)), _recorded.get()
        remembered = known_sha256(identity)
        digest = hashlib.sha256() if files is not None and not remembered else None
        reader = ForwardReader(descriptor, size, digest)
        yield reader
    if files is not None and reader.at == size:
        files[os.fspath(path)] = remembered if digest is None else digest.hexdigest()


def file_sha256(path: str | os.PathLike[str], **options: Any) -> str:
    """SHA-256 of a regular file's bytes, in hexadecimal; of one that this process has hashed and
    nobody has written since (`base.storage.unchanged`) it is known. Raises as `private_bytes`."""
    digest, piece = hashlib.sha256(), bytearray(PIECE)
    with _opened(path, "file", **options) as (descriptor, size):
        identity = identity_of(os.fstat(descriptor))
        remembered, can_remember = known_sha256(identity), is_settled(identity)
        if remembered:
            return remembered
        while size:
            got = os.readv(descriptor, [piece])
            if got == 0:
                raise EOFError
            digest.update(memoryview(piece)[:got])
            size -= got
    if can_remember:
        remember(identity, digest.hexdigest())
    return digest.hexdigest()


@contextmanager
def recording() -> Iterator[dict[str, str]]:
    """Record which files are read inside, in this thread: path -> SHA-256 of the bytes that were
    given out, so whoever hashes the file later knows whether he would be given the same."""
    files: dict[str, str] = {}
    token = _recorded.set(files)
    try:
        yield files
    finally:
        _recorded.reset(token)


def _record(path: str | os.PathLike[str], content: bytes | memoryview, identity: Identity) -> None:
    files = _recorded.get()
    if files is not None:
        files[os.fspath(path)] = known_sha256(identity) or hashlib.sha256(content).hexdigest()


@contextmanager
def _opened(
    path: str | os.PathLike[str],
    description: str,
    *,
    place: str = "",
    next_step: str = "",
    error: type[VeraxError] = UsageError,
    limit: int | None = None,
    own: bool = False,
) -> Iterator[tuple[int, int]]:
    """A descriptor of a regular file, and the file's size.

    place, next_step: of the errors. error: raised when the file cannot be read, is no regular file
    or is larger than `limit` bytes. own: and when it is a link, or belongs to another user, or
    others may write it. Raises `ModelError` when it changes before the block ends.
    """
    location = place or os.fspath(path)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        flags |= getattr(os, "O_NOFOLLOW", 0) if own else 0
        descriptor = os.open(path, flags)
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise error(
                    f"the {description} is not a regular file", place=location, next_step=next_step
                )
            if own and not is_private(before):
                cause = f"the {description} is not this user's alone"
                raise error(cause, place=location, next_step=next_step)
            if limit is not None and before.st_size > limit:
                cause = f"the {description} has {before.st_size} bytes, more than any real one"
                raise error(cause, place=location)
            yield descriptor, before.st_size
            if _state(os.fstat(descriptor)) != _state(before):
                raise EOFError
        finally:
            os.close(descriptor)
    except EOFError as caught:
        raise ModelError(
            f"the {description} changed while it was read",
            place=location,
            next_step="wait until it is written, then try again",
        ) from caught
    except (OSError, ValueError, MemoryError) as caught:
        cause = f"cannot read the {description}: {getattr(caught, 'strerror', None) or caught}"
        if isinstance(caught, MemoryError) or getattr(caught, "errno", None) == errno.ENOMEM:
            cause = f"there is not enough memory for the {description}"
        raise error(cause, place=location, next_step=next_step) from caught


def own_pages(size: int) -> memoryview:
    """Zeroed private memory of its own, by huge pages if it is large and the system has them."""
    if not size:
        return memoryview(b"")
    memory = mmap.mmap(-1, size, **PRIVATE)
    if size >= HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def _state(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _fill(memory: memoryview, descriptor: int, size: int) -> None:
    """Copy the file's first `size` bytes. Holes take no memory. Raises `EOFError`."""
    at = 0
    while at < size:
        at, end = _extent(descriptor, at, size)
        os.lseek(descriptor, at, os.SEEK_SET)
        while at < end:
            got = os.readv(descriptor, [memory[at : min(end, at + MOST_AT_ONCE)]])
            if got == 0:
                raise EOFError
            at += got


def _extent(descriptor: int, at: int, size: int) -> tuple[int, int]:
    """Where the next data lie; fresh memory holds the zeros of a hole already."""
    try:
        start = os.lseek(descriptor, at, os.SEEK_DATA)
        return min(start, size), min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", None) == errno.ENXIO:  # nothing but a hole is left
            return size, size
        return at, size


def stamp(path: str | os.PathLike[str]) -> tuple[object, ...]:
    """Sizes and times of a model's file, or of all files of its folder: equal while nobody writes.

    () when it cannot be told.
    """
    root = Path(path)
    try:
        files = sorted(root.rglob("*")) if root.is_dir() else [root]
        statuses = [(str(f.relative_to(root)), f.stat()) for f in files if f.is_file()]
    except OSError:
        return ()
    return tuple((name, status.st_size, status.st_mtime_ns) for name, status in statuses)


class BytesFile(io.RawIOBase):
    """Bytes as a file for reading, not copied (`io.BytesIO` copies)."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = max(0, offset + (0, self.at, len(self.data))[whence])
        return self.at

    def readinto(self, buffer: Any) -> int:
        piece = self.data[self.at : self.at + len(buffer)]
        buffer[: len(piece)] = piece
        self.at += len(piece)
        return len(piece)


def companion(folder: Path, name: str, description: str, *, place: str = "") -> Path:
    """The path of the file `name` (with slashes) that belongs to the model in `folder`.

    The one rule for all formats: a file that a model refers to, or that is found beside it, lies in
    the model's folder, links followed. Raises `ModelError` when it does not. (A file that the user
    names himself may lie anywhere.)
    """
    place = place or str(folder / name)
    inner = PurePosixPath(name)
    bare = not name or "\0" in name or "\\" in name
    if bare or inner.is_absolute() or PureWindowsPath(name).drive or ".." in inner.parts:
        raise ModelError(
            f"{name!r} is no name of a {description} in the model's folder",
            place=place,
            next_step=f"the {description} must lie in the model's own folder",
        )
    try:
        root = folder.resolve()
        path = (root / inner).resolve()
    except (OSError, RuntimeError) as error:
        raise ModelError(
            f"the {description} {name!r} is a link in a circle", place=place
        ) from error
    if not path.is_relative_to(root):
        raise ModelError(
            f"the {description} {name!r} is a link that leads outside of the model's folder",
            place=place,
            next_step=f"the {description} must lie in the model's own folder; "
            "copy the folder with its links resolved: cp -rL",
        )
    return path
