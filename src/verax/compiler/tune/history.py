"""A history of measurements: a file of JSON lines that is only ever appended to.

Each line says what was measured (`measured`, with raw samples), refused (`fault`), or found best
(`chosen`) for one kernel on one host, or describes a kernel that was searched (`workload`).
Programs append side by side: a line goes out whole under a lock. A torn last line is ended by the
next writer. Lines of later versions are kept, and skipped. Files may be concatenated: of two words
on one kernel and host the later one counts, by its time, or by its place where one has none.
What was chosen is found through an index beside the file, which is made again whenever it does not
belong to the file's beginning; deleting it loses nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError, VeraxError
from verax.base.storage.files import atomic_write, locked
from verax.base.storage.reading import plain_bytes
from verax.compiler.tune.host import UNKNOWN, Host, LineOrigin

LINE, INDEX = "verax.tuning/1", "verax.tuning-index/2"
FAMILY = "verax.tuning/"
LONG = 1 << 17
"""Bytes that may be read line by line, beyond the index, before it is written again."""
LOOKED_AT = 1 << 20
"""Bytes at the beginning in which a line of a history must begin."""
MOST = 1 << 63
"""No number in a history is as large."""
SEEN = 1 << 12
"""Bytes at both ends of what an index covers by which it knows its file."""


@dataclasses.dataclass(frozen=True)
class ChosenSchedule:
    """What was found best for a kernel. kernel: `canonical.digest` of its spec; schedule: the name
    of its type and its fields; gain: time of the schedule chosen by rule, by this one's."""

    kernel: str
    host: Host
    schedule: tuple[str, Mapping[str, Any]]
    gain: float
    origin: LineOrigin = UNKNOWN


class History:
    """The file at `path`, which need not exist yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def index_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.index")

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write lines at the end. Raises `UsageError` when that cannot be done."""
        text = b"".join(
            json.dumps({"schema": LINE, **line}, separators=(",", ":")).encode() + b"\n"
            for line in lines
        )
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            descriptor = os.open(self.path, flags, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError("it is no file")
                with locked(descriptor):
                    if not _is_history(os.read(descriptor, LOOKED_AT)):
                        raise OSError("it is another file")
                    end = os.lseek(descriptor, 0, os.SEEK_END)
                    if end and _byte_before(descriptor, end) != b"\n":
                        text = b"\n" + text
                    left = memoryview(text)
                    while left:
                        left = left[os.write(descriptor, left) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UsageError(
                f"the tuning history cannot be written: {error.strerror or error}",
                place=str(self.path),
                next_step="name a file that can be written (--history, history=)",
            ) from error

    def read(self) -> Contents:
        """What the file says; nothing if it is not there. Raises `UsageError` when it cannot be
        read or is no history at all."""
        try:
            with open(self.path, "rb", opener=_without_waiting) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise OSError("it is no file")
                if not _is_history(stream.read(LOOKED_AT)):
                    raise OSError("none of its lines is one of a history")
                contents = self._indexed(stream)
                before = contents.size
                stream.seek(before)
                contents = contents.after(stream.read())
        except FileNotFoundError:
            return Contents()
        except OSError as error:
            raise UsageError(
                f"the tuning history cannot be read: {error.strerror or error}",
                place=str(self.path),
                next_step="name another file, or move this one away",
            ) from error
        if contents.size - before > LONG:
            self._write_index(contents)
        return contents

    def _indexed(self, stream: Any) -> Contents:
        """Contents of the file's beginning by its index; empty without a matching index."""
        try:
            index = json.loads(plain_bytes(self.index_path))
            covered = index["bytes"]
            if index["schema"] != INDEX or index["ends"] != _ends(stream, covered):
                return Contents()
            schedules = [chosen_of(entry) for entry in index["chosen"]]
            counts = [index[name] for name in ("lines", "later", "unreadable")]
            if any(type(n) is not int or abs(n) >= MOST for n in counts) or None in schedules:
                return Contents()
            return Contents(tuple(c for c in schedules if c), covered, *counts)
        except (VeraxError, OSError, ValueError, TypeError, KeyError, RecursionError):
            return Contents()

    def _write_index(self, contents: Contents) -> None:
        with contextlib.suppress(OSError, VeraxError), self.path.open("rb") as stream:
            index = {
                "schema": INDEX,
                "bytes": contents.size,
                "ends": _ends(stream, contents.size),
                "lines": contents.lines,
                "later": contents.later,
                "unreadable": contents.unreadable,
                "chosen": [chosen_line(c) for c in contents.schedules],
            }
            with atomic_write(self.index_path, durable=False) as out:
                out.write(json.dumps(index, separators=(",", ":")).encode())


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a history says. chosen: the last word for each kernel on each host; size: bytes that
    were read; lines: of this version; later: of others; unreadable: of none."""

    schedules: tuple[ChosenSchedule, ...] = ()
    size: int = 0
    lines: int = 0
    later: int = 0
    unreadable: int = 0

    def after(self, data: bytes) -> Contents:
        """These contents extended by the complete lines of `data`, which follow in the file. A last
        line without an end is ignored until it has one: it is being written, or its writer died."""
        complete = data[: data.rfind(b"\n") + 1]
        latest = {(c.kernel, c.host): c for c in self.schedules}
        lines, later, unreadable = self.lines, self.later, self.unreadable
        for text in complete.split(b"\n")[:-1]:
            entry = parsed_line(text)
            if entry is None:
                unreadable += bool(text.strip())
            elif entry.get("schema") != LINE:
                later += 1
            else:
                schedule = chosen_of(entry) if entry.get("kind") == "chosen" else None
                if schedule is None and entry.get("kind") == "chosen":
                    unreadable += 1
                    continue
                lines += 1
                if schedule is not None:
                    key = schedule.kernel, schedule.host
                    if key not in latest or is_later(schedule, latest[key]):
                        latest[key] = schedule
        read = self.size + len(complete)
        return Contents(tuple(latest.values()), read, lines, later, unreadable)


def chosen_line(entry: ChosenSchedule) -> dict[str, Any]:
    """The entry as a JSON object of the history's format."""
    kind, fields = entry.schedule
    return {
        "kind": "chosen",
        "kernel": entry.kernel,
        "host": dataclasses.asdict(entry.host),
        "schedule": [kind, dict(fields)],
        "gain": entry.gain,
        **entry.origin.members(),
    }


def is_later(entry: ChosenSchedule, earlier: ChosenSchedule) -> bool:
    """True if `entry`, which stands behind `earlier`, outweighs it."""
    times = entry.origin.when, earlier.origin.when
    return not all(times) or times[0] >= times[1]


def parsed_line(text: bytes) -> dict[str, Any] | None:
    """A line as a JSON object of a history of any version; None if it is something else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    schema = data.get("schema") if isinstance(data, dict) else None
    return data if isinstance(schema, str) and schema.startswith(FAMILY) else None


def chosen_of(entry: Any) -> ChosenSchedule | None:
    """A line of kind "chosen"; None where a field is missing or of another type."""
    named, gain = kernel_of(entry), entry.get("gain") if isinstance(entry, dict) else None
    if named is None or gain is None or not _is_number(gain):
        return None
    return ChosenSchedule(*named, float(gain), LineOrigin.of(entry))


def kernel_of(entry: Any) -> tuple[str, Host, tuple[str, Mapping[str, Any]]] | None:
    """Kernel, host and schedule of a line; None where one is missing or of another type."""
    try:
        host = dict(entry["host"])
        host["caches"] = tuple(host["caches"])
        parsed_host = Host(**host)
        kernel, (kind, fields) = entry["kernel"], entry["schedule"]
        values = list(fields.values())
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    texts = [kernel, kind, parsed_host.target, parsed_host.processor, parsed_host.family,
             parsed_host.code]  # fmt: skip
    sound = (
        all(type(t) is str for t in texts)
        and all(
            type(n) is int and abs(n) < MOST for n in (parsed_host.threads, *parsed_host.caches)
        )
        and all(type(v) in (str, bool) or _is_number(v) for v in values)
    )
    return (kernel, parsed_host, (kind, fields)) if sound else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MOST


def _is_history(head: bytes) -> bool:
    """Whether a file that begins so is empty or a history, if only the beginning of its first
    line; nothing is written to others."""
    begins = f'{{"schema":"{FAMILY}'.encode()
    return begins in head or begins.startswith(head)


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe would wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _byte_before(descriptor: int, end: int) -> bytes:
    os.lseek(descriptor, end - 1, os.SEEK_SET)
    return os.read(descriptor, 1)


def _ends(stream: Any, covered: int) -> str:
    """Digest of both ends of the first `covered` bytes. ValueError: there are not so many."""
    if type(covered) is not int or not 0 <= covered < MOST:
        raise ValueError
    stream.seek(0)
    first = stream.read(min(SEEN, covered))
    stream.seek(max(0, covered - SEEN))
    last = stream.read(min(SEEN, covered))
    if len(first) != min(SEEN, covered) or len(last) != len(first):
        raise ValueError
    return hashlib.sha256(first + b"\0" + last).hexdigest()
