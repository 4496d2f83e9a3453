"""SHA-256 of files, not computed again while the system says that nobody has written them since.

A file's identity is its device, number, size and both of its times. The second time, of the last
change of any kind, cannot be set by programs. Times are coarse, and pages of a file that is mapped
may be written without a word for as long as they wait to go to the disk (30 seconds on Linux): so
the digest of a file that somebody changed a moment ago is not remembered.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache

Identity = tuple[int, ...]
"""Of a file with one content; () where the system does not tell."""
SETTLED_SECONDS = 60.0
"""So long a file has to have been unchanged before it was hashed, for its digest to be kept."""
_digests: dict[Identity, str] = {}
_lock = threading.Lock()
MOST = 256
"""Digests that a process remembers."""


def identity_of(status: os.stat_result) -> Identity:
    """What is equal while the content is. Windows does not tell the time of the last change."""
    if os.name == "nt":
        return ()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def file_identity(path: str | os.PathLike[str]) -> Identity:
    """That of the file at `path`, links followed; () for none."""
    try:
        return identity_of(os.stat(path))
    except (OSError, ValueError):
        return ()


def is_settled(identity: Identity) -> bool:
    """True if whoever hashes the file from now on may remember its digest."""
    return bool(identity) and time.time() - max(identity[-2:]) / 1e9 >= SETTLED_SECONDS


def known_sha256(identity: Identity) -> str:
    """SHA-256 in hexadecimal of the file of that identity, "" where it is not known."""
    return _digests.get(identity, "")


def remember(identity: Identity, sha256: str) -> None:
    """Keep the digest of a file that was settled when it was hashed."""
    with _lock:
        _digests.pop(identity, None)
        while len(_digests) >= MOST:
            del _digests[next(iter(_digests))]
        _digests[identity] = sha256


@cache
def boot_id() -> str:
    """Names the time since the system was started, on Linux; "" elsewhere."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
