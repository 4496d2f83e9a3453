"""Memory: how much this process may still take, and the limit that everything large is held to.

What a network computes may ask for any size, and a system that runs out of memory ends processes
without a word. So whatever allocates by a size that came from outside asks here first. The limit is
the one that was set for the call (`limited`), else VERAX_MEMORY, else a share of what is free.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from verax.base.errors import InputError, UsageError

VARIABLE = "VERAX_MEMORY"
SHARE = 0.8
"""Of what is free, what a single value or a program's buffers may take."""
SMALL = 64 << 20
"""Bytes that are always granted: asking what is free costs more than it saves."""
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
MOST = 1 << 62
"""More bytes than any machine has."""
MADV_DONTNEED = 4
"""Of Linux's madvise."""
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:I?B)?")
_limit: contextvars.ContextVar[int | None] = contextvars.ContextVar("memory limit", default=None)


def parse_bytes(text: str) -> int:
    """`8G`, `512MiB` or `100000` as a number of bytes. Raises `UsageError`."""
    match = _SIZE.fullmatch(text.strip().upper())
    size = float(match[1]) * (1 << UNITS[match[2]]) if match is not None else 0
    if not 1 <= size <= MOST:
        raise UsageError(f"{text!r} is no amount of memory", next_step="write it like 8G or 512M")
    return int(size)


def shown_bytes(size: float) -> str:
    """For people: `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB" if size < 1e6 else f"{size:.2e} GiB"


def available_bytes() -> int:
    """What this process can still take: of the machine, of its control group, of its own limit.

    Where nothing can be found out, 2 GiB.
    """
    amounts = [n for n in (_of_machine(), _of_group(), _of_process()) if n is not None]
    return max(0, min(amounts, default=2 << 30))


def give_back() -> None:
    """Hand memory that was freed back to the system, where the C library can (glibc): after LLVM's
    work it keeps half as much again as a program needs."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))


def free_pages(address: int, nbytes: int) -> None:
    """Give the whole pages within so many bytes of private memory back to the system, on Linux;
    they read as zeros then. Nothing may need their content."""
    page = resource.getpagesize()
    start = -(-address // page) * page
    size = (address + nbytes) // page * page - start
    if sys.platform == "linux" and size > 0:
        advise = ctypes.CDLL(None).madvise
        advise(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(MADV_DONTNEED))


def set_limit() -> int | None:
    """The limit that was set, by `limited` or by VERAX_MEMORY; None where none was."""
    nbytes = _limit.get()
    if nbytes is None and os.environ.get(VARIABLE):
        nbytes = parse_bytes(os.environ[VARIABLE])
    return nbytes


def limit() -> int:
    """Bytes that one value, or a program's buffers, may take."""
    nbytes = set_limit()
    return int(SHARE * available_bytes()) if nbytes is None else nbytes


@contextlib.contextmanager
def limited(size: int | None) -> Iterator[None]:
    """Set the limit for what is called inside, in this thread; None leaves it as it is."""
    token = _limit.set(_limit.get() if size is None else size)
    try:
        yield
    finally:
        _limit.reset(token)


def require(size: int, description: str, place: str = "", copies: int = 1) -> None:
    """Raise an `InputError` when `what` would take more than the limit.

    copies: as many arrays of its size are held while it is made. They count against what is free,
    not against a limit that was set, which is one for each value.
    """
    free = set_limit() is None
    if size <= SMALL and free:
        return
    max_bytes = limit() // copies if free else limit()
    if size > max_bytes:
        raise InputError(
            f"{description} would take {shown_bytes(size)}, more than the {shown_bytes(max_bytes)} "
            f"that are {'free for it' if free else 'allowed'}",
            place=place,
            next_step=f"check the sizes that the network is given or computes, or set the limit "
            f"({VARIABLE}=64G)",
        )


def _of_machine() -> int | None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        return None


def _of_group() -> int | None:
    """What the control groups that this process lies in have left, versions 1 and 2."""
    amounts = []
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, limit_name, used_name = Path("/sys/fs/cgroup"), "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base = Path("/sys/fs/cgroup/memory")
            limit_name, used_name = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = base / path.lstrip("/")
        for level in (folder, *folder.parents):
            if level == base or base in level.parents:
                amounts += _left(level, limit_name, used_name)
    return min(amounts, default=None)


def _left(folder: Path, limit_name: str, used_name: str) -> list[int]:
    """Bytes left in one control group, with what it only caches; empty where it has no limit."""
    numbers = ["".join(_lines(folder / name)) for name in (limit_name, used_name)]
    if not all(text.isdigit() for text in numbers):
        return []
    cached = 0
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            cached = max(cached, int(value))
    return [int(numbers[0]) - int(numbers[1]) + cached]


def _of_process() -> int | None:
    """What the limit on the address space leaves."""
    max_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = "".join(_lines("/proc/self/statm")).split(" ")[0]
    if max_bytes == resource.RLIM_INFINITY or not used.isdigit():
        return None
    return max_bytes - int(used) * resource.getpagesize()


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, ValueError):
        return []
