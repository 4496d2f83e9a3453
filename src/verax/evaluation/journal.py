"""`--resume FILE`: JSON lines, written as samples are done; a run that was ended goes on there.

The first line says by hashes what is evaluated; another network, other data or options are refused.
Each further line holds whole samples, from the one after those of the line before or from the one
that it names ("first": workers are done in any order), and reaches the disk before more are taken.
What a killed process left of a line is cut off. One process writes a file at a time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from verax.base.errors import InputError, UsageError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None

SCHEMA = "verax.evaluation.resume/2"
READABLE = ("verax.evaluation.resume/1", SCHEMA)
"""The first version knew no "first"."""
MOST = 1 << 48
"""No class or rank is as large."""
UNREADABLE = (
    *(ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError),
    MemoryError,
)
"""What a line may raise that is none of an evaluation's."""


@dataclass(frozen=True)
class SampleRow:
    """What is kept of one sample.

    choice, rank: the model's class, and how many classes come before the label's; gap: how much
    higher the model scores its choice than the subject's; difference: the largest of two scores;
    other_...: the subject's (-1 without one). nan: whether the model's and the subject's scores
    hold a NaN.
    """

    choice: int
    rank: int
    other_choice: int = -1
    other_rank: int = -1
    gap: float = 0.0
    difference: float = 0.0
    nan: bool = False
    other_nan: bool = False

    def to_plain(self) -> list[Any]:
        """The row as JSON holds it; floats as text, bit by bit."""
        numbers = [self.choice, self.rank, self.other_choice, self.other_rank]
        return [*numbers, self.gap.hex(), self.difference.hex(), int(self.nan), int(self.other_nan)]

    @staticmethod
    def from_plain(row: Sequence[Any]) -> SampleRow:
        """Read `to_plain`. Raises ValueError, TypeError."""
        a, b, c, d, gap, difference, nan, other_nan = row
        numbers = [a, b, c, d, nan, other_nan]
        if any(type(n) is not int or abs(n) > MOST for n in numbers):
            raise ValueError("a row holds something else than whole numbers")
        floats = float.fromhex(gap), float.fromhex(difference)
        return SampleRow(a, b, c, d, *floats, bool(nan), bool(other_nan))


@dataclass
class Journal:
    """What is noted of a number of samples. sides: of how many implementations a metric needs the
    scores [n, classes]. resumed: how many samples an earlier run had noted."""

    total: int
    sides: int = 0
    resumed: int = 0
    stream: BinaryIO | None = None
    _rows: dict[int, SampleRow] = field(default_factory=dict)
    _scores: dict[int, tuple[np.ndarray, ...]] = field(default_factory=dict)
    _next: int = 0

    @property
    def rows(self) -> list[SampleRow]:
        """Of the samples that are done, in their order."""
        return [self._rows[i] for i in sorted(self._rows)]

    @property
    def done(self) -> int:
        """How many samples are done."""
        return len(self._rows)

    @property
    def scores(self) -> tuple[list[np.ndarray], ...]:
        """For each side, arrays that are together [total, classes]."""
        pieces = [self._scores[first] for first in sorted(self._scores)]
        return tuple([piece[side] for piece in pieces] for side in range(self.sides))

    def missing(self, size: int) -> list[range]:
        """The samples that are not done, in order, at most `size` of them side by side, which do
        not reach over a multiple of it."""
        ranges, first = [], None
        for i in range(self.total + 1):
            if first is not None and (i == self.total or i in self._rows or i % size == 0):
                ranges.append(range(first, i))
                first = None
            if first is None and i < self.total and i not in self._rows:
                first = i
        return ranges

    def add(self, first: int, rows: Sequence[SampleRow], scores: Sequence[np.ndarray]) -> None:
        """Note samples from `first` on that are done; on the disk when this returns.

        Raises `UsageError`, and ValueError for samples that are noted.
        """
        follows = first == self._next
        self._take(first, rows, scores)
        if self.stream is None:
            return
        line: dict[str, Any] = {} if follows else {"first": first}
        line["rows"] = [row.to_plain() for row in rows]
        if self.sides:
            line["scores"] = [_packed(array) for array in scores]
        try:
            self.stream.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            self.stream.flush()
            os.fsync(self.stream.fileno())
        except OSError as error:
            raise UsageError(
                f"cannot write the file: {error.strerror or error}",
                place=str(self.stream.name),
                next_step="make room; the same command then goes on from here",
            ) from error

    def _take(self, first: int, rows: Sequence[SampleRow], scores: Sequence[np.ndarray]) -> None:
        if first < 0 or any(i in self._rows for i in range(first, first + len(rows))):
            raise ValueError("samples are noted twice")
        self._rows.update(enumerate(rows, first))
        if self.sides:
            self._scores[first] = tuple(scores)
        self._next = first + len(rows)


def _packed(array: np.ndarray) -> list[Any]:
    plain = np.ascontiguousarray(array)
    plain = plain.astype(plain.dtype.newbyteorder("<"))
    return [plain.dtype.str, list(plain.shape), base64.b64encode(plain.tobytes()).decode()]


def _unpacked(packed: Sequence[Any]) -> np.ndarray:
    dtype, shape, text = packed
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)


@contextmanager
def journal(
    path: str | os.PathLike[str] | None, key: Mapping[str, str], sides: int, total: int
) -> Iterator[Journal]:
    """The journal of a run, with what an earlier one left in `path`; None keeps nothing.

    key: what is evaluated, by part ("network", "data", ...). sides: how many implementations'
    scores are kept, 0 for none. Raises `UsageError` when the file belongs to something else or
    another process writes it, `InputError` when it is damaged.
    """
    if path is None:
        yield Journal(total, sides)
        return
    file = Path(path)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        stream = os.fdopen(descriptor, "r+b")
    except OSError as error:
        raise UsageError(
            f"cannot write the file: {error.strerror or error}", place=str(file)
        ) from error
    with stream:
        _lock(stream, file)
        notes = Journal(total, sides)
        _read(stream, notes, dict(key), file)
        notes.resumed, notes.stream = notes.done, stream
        yield notes


def _lock(stream: BinaryIO, file: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(
            "another process is writing this file",
            place=str(file),
            next_step="wait for it, or give another --resume file",
        ) from error
    except OSError:
        return  # not every file system can lock


def _read(stream: BinaryIO, notes: Journal, key: dict[str, str], file: Path) -> None:
    """Take over what is there, cut off half a line, and write the first line of a new file."""
    end = 0
    for line_number, line in enumerate(stream, 1):
        if not line.endswith(b"\n"):
            break
        try:
            _take_line(line, line_number, notes, key, file)
        except UNREADABLE as error:
            raise InputError(
                f"line {line_number} is none that an evaluation wrote ({error})",
                place=str(file),
                next_step="give another --resume file, or remove this one to begin anew",
            ) from error
        end += len(line)
    if any(i >= notes.total for i in notes._rows):
        raise InputError(f"it holds more than the {notes.total} samples", place=str(file))
    if end == 0:
        stream.seek(0)
        if stream.read(1) not in (b"", b"{"):
            raise InputError(
                "this is no file of an evaluation, and is not overwritten",
                place=str(file),
                next_step="give another --resume file",
            )
    stream.seek(end)
    stream.truncate()
    if end == 0:
        stream.write(json.dumps({"schema": SCHEMA, "key": key}).encode() + b"\n")
        stream.flush()
        with contextlib.suppress(OSError):  # a pipe cannot
            os.fsync(stream.fileno())


def _take_line(
    line: bytes, line_number: int, notes: Journal, key: dict[str, str], file: Path
) -> None:
    content = json.loads(line)
    if line_number > 1:
        scores = [_unpacked(s) for s in content["scores"]] if notes.sides else []
        rows = [SampleRow.from_plain(row) for row in content["rows"]]
        if any(len(s) != len(rows) for s in scores):
            raise ValueError("scores and samples are not as many")
        first = content.get("first", notes._next)
        if type(first) is not int or first > MOST or len(scores) != notes.sides:
            raise ValueError("its samples are not counted, or scores are missing")
        notes._take(first, rows, scores)
        return
    if content.get("schema") not in READABLE:
        raise ValueError(f"it is {content.get('schema')!r}, not {SCHEMA!r}")
    was: dict[str, str] = dict(content["key"])
    different = [k for k in key | was if key.get(k) != was.get(k)]
    if different:
        raise UsageError(
            f"the file was begun with another {', another '.join(different)}",
            place=str(file),
            next_step="give what it was begun with, or another --resume file",
        )
