"""What the sub-commands share: consoles, options, progress, JSON files, reading inputs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from verax.base.errors import UsageError
from verax.base.files import atomic_write
from verax.report.console import PlainConsole

output = PlainConsole(highlight=False, soft_wrap=False)
errors = PlainConsole(stderr=True, soft_wrap=True)

Model = Annotated[Path, typer.Argument(help="A model file (see `verax formats`).")]
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON, too.")
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        help="Sizes that the model leaves open: an input's (x=1x3x224x224) or a symbol's (n=1).",
    ),
]
Value = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=NUMBER",
        help="An input of an ONNX model to be made a constant (sr=16000): branches and loops that "
        "it decides are decided then.",
    ),
]
Evaluation = Annotated[
    bool,
    typer.Option(
        "--eval",
        help="Read an ONNX file that was exported in training mode as it is at inference: Dropout "
        "drops nothing, BatchNormalization uses its stored statistics.",
    ),
]
Params = Annotated[
    Path | None,
    typer.Option(
        "--params",
        metavar="FILE",
        help="The arrays of an MXNet symbol; else NAME-NNNN.params beside it, the newest epoch.",
    ),
]
_LEVEL = typer.Option(
    "-O",
    "--opt-level",
    help="0: every node by itself. 1: fused, same bits. 2: scales folded, within rounding. "
    "3: Winograd's and Strassen's algorithms, approximate. By default 3.",
    show_default=False,
)
Level = Annotated[int, _LEVEL]
OpenLevel = Annotated[int | None, _LEVEL]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        help="Threads; 0: as many as cores, CPU quota and OMP_NUM_THREADS allow (`verax doctor`).",
        min=0,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="NAME",
        help="An arithmetic (bf16, TF32, fp16, int8, Winograd, Strassen, FFT) whose errors the "
        "network may make large: precision, where it would be precision lost; or an unstable "
        'algorithm ("variance by difference of squares") that may lose digits.',
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="The longest that one run of the subject may take, and judging beside it. "
        "Without: 300 for a subject in a process of its own, no limit for one in this process; 600 "
        "for judging, which then answers with what it knows.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="What judging may take (8G, 512M); half of what is free by default. What does not "
        "fit is judged in pieces or called unchecked.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        min=1,
        help="Consecutive runs, on the same inputs, that are judged of a model that remembers; 2 "
        "when not given. Values of run N are called NAME@N.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="For inputs that are drawn.", min=0)]


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


def can_write(*paths: Path | None) -> None:
    """Raise `UsageError` now rather than after the work when a result could not be written."""
    for path in paths:
        if path is None:
            continue
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UsageError("the folder does not exist", place=str(folder))
        if path.is_dir():
            raise UsageError("this is a folder, not a file", place=str(path))
        if not os.access(folder, os.W_OK):
            raise UsageError("the folder cannot be written to", place=str(folder))


def checked_timeout(seconds: float | None) -> float | None:
    """`seconds`. Raises `UsageError` unless it is a time."""
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--timeout {seconds:g} is no time", next_step="give seconds, above 0")
    return seconds


def parse_shapes(texts: list[str] | None) -> dict[str, tuple[int | None, ...] | int]:
    """`x=1x3x?x224`, `x=1,3,?,224` and `n=2` as `verax.load` takes them. Raises `UsageError`."""
    found: dict[str, tuple[int | None, ...] | int] = {}
    for text in texts or ():
        name, equals, sizes = text.rpartition("=")
        try:
            parts = [None if s.strip() == "?" else int(s) for s in re.split("[,x]", sizes)]
        except ValueError:
            parts = []
        if not equals or not name or not parts or any(p is not None and p < 0 for p in parts):
            raise UsageError(
                f"--shape {text!r} is not of the form NAME=SIZES",
                next_step="for instance --shape image=1x3x224x224 or --shape n=1",
            )
        one = parts[0] if len(parts) == 1 else None
        found[name] = one if one is not None else tuple(parts)
    return found


def parse_values(texts: list[str] | None) -> dict[str, np.ndarray] | None:
    """`sr=16000`, `on=true` and `scale=0.5` as `verax.load` takes them. Raises `UsageError`."""
    found: dict[str, np.ndarray] = {}
    for text in texts or ():
        name, _, number = text.rpartition("=")
        try:
            found[name] = np.asarray(_number(number.lower()))
        except ValueError:
            name = ""
        if not name:
            raise UsageError(
                f"--value {text!r} is not of the form NAME=NUMBER",
                next_step="for instance --value sr=16000 or --value training=false",
            )
    return found or None


def _number(text: str) -> bool | int | float:
    """Raises `ValueError`."""
    if text in ("true", "false"):
        return text == "true"
    return float(text) if re.search("[.en]", text) else int(text)


@contextmanager
def progress(title: str) -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error; the callback takes what is being done and the share done, 0 to 1."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    shown = errors.is_terminal  # elsewhere a bar is an empty line
    with Progress(*columns, console=errors, transient=True, disable=not shown) as bar:
        task = bar.add_task(title, total=1.0)

        def show(what: str, done: float) -> None:
            bar.update(task, description=f"{title}: {what}", completed=done)

        yield show
