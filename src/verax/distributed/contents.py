"""Contents: files and bytes that tasks need, named by their SHA-256, brought to every host once.

`WorkerPool.put` gives a `Reference`, which tasks carry; `fetch`, in a worker, gives a path on the
worker's host. A file that lies where it was put from and is what it was is used as it is, so that
nothing is copied on one machine; elsewhere it is written into the folder of the host, once for all
of its workers. What nobody took for a week is removed from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verax.base.caching import caching_is_off, user_folder
from verax.base.errors import InputError, UsageError
from verax.base.storage.files import atomic_write, locked

FOLDER = "VERAX_HOST_FOLDER"
"""Environment variable: the folder of a host, for contents and for the locks of its devices."""
UNUSED_SECONDS = 7 * 24 * 3600.0
BLOCK = 1 << 20
Source = Callable[[str], bytes]
"""SHA-256 -> bytes, from wherever the pool keeps them. Raises KeyError."""


@dataclass(frozen=True)
class ContentFile:
    """A file of a reference. name: relative, of one or more parts. size: in bytes. path, modified:
    where it was put from and when it was written (in nanoseconds); "" and 0 for bytes."""

    name: str
    digest: str
    size: int
    path: str = ""
    modified: int = 0


@dataclass(frozen=True)
class Reference:
    """Contents that were put: one file or several of a folder. host: where they were put."""

    files: tuple[ContentFile, ...]
    host: str
    is_folder: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 of the one file's bytes; of a folder, of all names and digests."""
        if not self.is_folder:
            return self.files[0].digest
        listed = "".join(f"{f.name}\0{f.digest}\0" for f in self.files)
        return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()

    def to_plain(self) -> list[Any]:
        """As a message holds it."""
        files = [[f.name, f.digest, f.size, f.path, f.modified] for f in self.files]
        return [files, self.host, self.is_folder]

    @staticmethod
    def of_plain(plain: list[Any]) -> Reference:
        """Read `to_plain`."""
        files, host, is_folder = plain
        return Reference(tuple(ContentFile(*f) for f in files), str(host), bool(is_folder))


def host_name() -> str:
    """This host, as references and outcomes name it; simulated hosts of one machine differ."""
    own = os.environ.get(FOLDER, "")
    return platform.node() + (f"({Path(own).name})" if own else "")


def host_folder() -> Path:
    """The folder of this host that all of its workers share."""
    own = os.environ.get(FOLDER, "")
    if own:
        return Path(own)
    if caching_is_off():
        return Path(tempfile.gettempdir()) / f"verax-host-{os.getuid()}"
    return Path(user_folder()) / "host"


def reference_to_file(path: str | os.PathLike[str]) -> Reference:
    """A reference to a file or to all files of a folder, which are read once for their hashes.

    Raises `UsageError` for what is not there, `InputError` for what cannot be read.
    """
    own = Path(path).absolute()
    if own.is_dir():
        files = sorted(f for f in own.rglob("*") if f.is_file())
        listed = tuple(_file(f, f.relative_to(own).as_posix()) for f in files)
        return Reference(listed, host_name(), is_folder=True)
    if not own.exists():
        raise UsageError("there is no such file or folder", place=str(path))
    return Reference((_file(own, own.name),), host_name())


def reference_to_bytes(content: bytes, name: str) -> Reference:
    """A reference to bytes, which are written into the folder of this host."""
    digest = hashlib.sha256(content).hexdigest()
    _write(digest, content)
    return Reference((ContentFile(name, digest, len(content)),), host_name())


def _file(path: Path, name: str) -> ContentFile:
    try:
        before = path.stat()
        digest = hashlib.sha256()
        with open(path, "rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", place=str(path)) from error
    return ContentFile(name, digest.hexdigest(), before.st_size, str(path), before.st_mtime_ns)


def _nothing(digest: str) -> bytes:
    raise KeyError(digest)


class Fetcher:
    """What a worker fetches with. source: brings what this host lacks. received: what was brought,
    and how often, by digest, since the last `take_received`."""

    def __init__(self) -> None:
        self.source: Source = _nothing
        self.received: Counter[str] = Counter()

    def take_received(self) -> list[str]:
        """Digests of what was brought since the last call, one for each time."""
        received = list(self.received.elements())
        self.received.clear()
        return received


FETCHER = Fetcher()
"""Of this process."""


def fetch(reference: Reference) -> Path:
    """Where the file or folder lies on this host; it is brought here if it has to be. It is for
    reading only.

    Raises `InputError` when it was changed where it was put from, or cannot be brought.
    """
    origin = _origin(reference)
    if origin is not None:
        return origin
    if not reference.is_folder:
        return _named(reference.files[0], _brought(reference.files[0]))
    folder = host_folder() / "folders" / reference.digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            for file in reference.files:
                target = Path(draft) / "files" / _safe(file.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(_brought(file), target)
            (Path(draft) / "files").mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # another worker was faster
                os.rename(Path(draft) / "files", folder)
    return folder


def _safe(name: str) -> Path:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise InputError("the name of a file leaves its folder", place=name)
    return path


def _origin(reference: Reference) -> Path | None:
    """Where the contents were put from, if that is here and they are what they were."""
    if reference.host != host_name() or not all(f.path for f in reference.files):
        return None
    for file in reference.files:
        try:
            status = os.stat(file.path)
        except OSError:
            return None
        if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
            return None
    first = Path(reference.files[0].path) if reference.files else None
    if first is None or not reference.is_folder:
        return first
    return first.parents[len(Path(reference.files[0].name).parts) - 1]


def _brought(file: ContentFile) -> Path:
    """The bytes of a file in the folder of this host; whoever comes first brings them."""
    path = host_folder() / "contents" / file.digest
    with _turn(file.digest):
        if path.is_file() and path.stat().st_size == file.size:
            with contextlib.suppress(OSError):
                os.utime(path)
            return path
        try:
            content = FETCHER.source(file.digest)
        except KeyError:
            raise InputError(
                "the file was changed or removed since it was handed over",
                place=file.path or file.name,
                next_step="leave files alone while they are worked on; the same command goes on",
            ) from None
        if hashlib.sha256(content).hexdigest() != file.digest:
            raise InputError("other bytes arrived than were sent", place=file.path or file.name)
        FETCHER.received[file.digest] += 1
        return _write(file.digest, content)


def _named(file: ContentFile, path: Path) -> Path:
    """The same bytes under the file's own name, for readers that look at what a name ends in."""
    named = host_folder() / "names" / file.digest / Path(file.name).name
    if not named.is_file():
        named.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.link(path, named)
    return named


def _write(digest: str, content: bytes) -> Path:
    path = host_folder() / "contents" / digest
    if not (path.is_file() and path.stat().st_size == len(content)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, durable=False, mode=0o400) as stream:
            stream.write(content)
    return path


@contextmanager
def _turn(digest: str) -> Iterator[None]:
    """One process of this host at a time, for each content."""
    folder = host_folder() / "turns"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / digest, "wb") as stream, locked(stream.fileno()):
        yield


def remove_unused(seconds: float = UNUSED_SECONDS) -> None:
    """Remove contents of this host that nobody took for so long, and their other names."""
    cutoff, root = time.time() - seconds, host_folder()
    with contextlib.suppress(OSError):
        for path in list((root / "contents").iterdir()):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime >= cutoff:
                    continue
                path.unlink()
                for named in (root / "names" / path.name).glob("*"):
                    named.unlink()
                (root / "names" / path.name).rmdir()
