"""What the sub-commands share: consoles, options, progress, JSON files, reading inputs."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from verax.base.errors import UsageError
from verax.base.storage.files import atomic_write
from verax.cli.interrupts import Interrupted
from verax.report.console import PlainConsole

output = PlainConsole(highlight=False, soft_wrap=False)
errors = PlainConsole(stderr=True, soft_wrap=True)


def write_json(path: Path | None, schema: str, content: Mapping[str, Any]) -> None:
    """Write `content` under its schema name to `path`, if one is given; never half a file."""
    if path is not None:
        text = json.dumps({"schema": schema, **content}, indent=1, default=_plain)
        with atomic_write(path) as stream:
            stream.write(text.encode() + b"\n")


def write_text(path: Path | None, text: str) -> None:
    """Write a record's JSON text to `path`, if one is given; never half a file."""
    if path is not None:
        with atomic_write(path) as stream:
            stream.write(text.encode() + b"\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


def can_write(*paths: Path | None, reads: Iterable[str | Path | None] = ()) -> None:
    """Raise `UsageError` now rather than after the work when a result could not be written.

    reads: files that the work reads or appends to, which a result must not replace.
    """
    sources = {os.path.realpath(source) for source in reads if source is not None}
    results = [os.path.realpath(path) for path in paths if path is not None]
    for path in paths:
        if path is None:
            continue
        own = os.path.realpath(path)
        if own in sources or (results.count(own) > 1 and not _is_special(path)):
            raise UsageError(
                "this file is read, and the result would replace it"
                if own in sources
                else "two results would be written to the same file",
                place=str(path),
                next_step="give the result another name",
            )
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UsageError(
                "the folder does not exist",
                place=str(folder),
                next_step=f"make it: mkdir -p {shlex.quote(str(path.parent))}",
            )
        if path.is_dir():
            raise UsageError("this is a folder, not a file", place=str(path))
        if not os.access(folder, os.W_OK):
            raise UsageError("the folder cannot be written to", place=str(folder))


def checked_timeout(seconds: float | None) -> float | None:
    """`seconds`. Raises `UsageError` unless it is a time."""
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--timeout {seconds:g} is no time", next_step="give seconds, above 0")
    return seconds


def parse_shapes(texts: Sequence[str] | None) -> dict[str, Any]:
    """`x=1x3x?x224`, `x=1,3,h,1:224`, `x[2]=224`, `n=2`, `n=batch` and `n=1:512` as `verax.load`
    takes them. Raises `UsageError`."""
    shapes: dict[str, Any] = {}
    for text in texts or ():
        name, equals, sizes = text.rpartition("=")
        try:
            read = [_parse_size(size.strip()) for size in _split_sizes(sizes)]
        except ValueError:
            read = []
        if not equals or not name or not read:
            raise UsageError(
                f"--shape {text!r} is not of the form NAME=SIZES",
                next_step="for instance --shape image=1x3x224x224, --shape n=1, --shape n=1:512 "
                "or --shape image[0]=batch",
            )
        if name in shapes:
            raise UsageError(f"--shape gives {name!r} twice", next_step="leave one of them out")
        is_one = len(read) == 1 and isinstance(read[0], int | str)
        shapes[name] = read[0] if is_one else tuple(read)
    return shapes


def _split_sizes(text: str) -> list[str]:
    """Sizes are parted by commas, or by x where none of them is a name."""
    if "," in text or text.isidentifier():
        return text.split(",")
    return text.split("x")


def _parse_size(text: str) -> int | str | tuple[int | None, int | None] | None:
    """A number, ? for what stays open, bounds as 1:512 or a name. Raises `ValueError`."""
    if text == "?":
        return None
    if text.isidentifier():
        return text
    low, colon, high = text.partition(":")
    if colon and (low or high):
        return int(low) if low else None, int(high) if high else None
    size = int(text)
    if size < 0:
        raise ValueError(text)
    return size


def parse_values(texts: Sequence[str] | None) -> dict[str, np.ndarray] | None:
    """`sr=16000`, `on=true` and `scale=0.5` as `verax.load` takes them. Raises `UsageError`."""
    values: dict[str, np.ndarray] = {}
    for text in texts or ():
        name, _, literal = text.rpartition("=")
        try:
            values[name] = np.asarray(_parse_literal(literal.lower()))
        except ValueError:
            name = ""
        if not name:
            raise UsageError(
                f"--value {text!r} is not of the form NAME=NUMBER",
                next_step="for instance --value sr=16000 or --value training=false",
            )
    return values or None


def _parse_literal(text: str) -> bool | int | float:
    """Raises `ValueError`."""
    if text in ("true", "false"):
        return text == "true"
    return float(text) if re.search("[.en]", text) else int(text)


def _is_special(path: Path) -> bool:
    """Whether it is a device or a pipe, which may get several results."""
    return path.exists() and not path.is_file()


@contextmanager
def noting_interruption(path: str | Path | None, note: str) -> Iterator[None]:
    """Inside, an interruption says `note` if the file, to which work is appended, has grown."""
    before = _size(path)
    try:
        yield
    except (Interrupted, KeyboardInterrupt):
        if _size(path) > before:
            errors.print(note, markup=False, highlight=False)
        raise


def _size(path: str | Path | None) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return 0 if path is None else os.stat(path).st_size
    except OSError:
        return 0


@contextmanager
def progress(title: str) -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error; the callback takes what is being done and the share done, 0 to 1."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    is_shown = errors.is_terminal  # elsewhere a bar is an empty line
    with Progress(*columns, console=errors, transient=True, disable=not is_shown) as bar:
        task = bar.add_task(title, total=1.0)

        def show(stage: str, done: float) -> None:
            bar.update(task, description=f"{title}: {stage}", completed=done)

        yield show
