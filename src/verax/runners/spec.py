"""`RunnerSpec`: what the file of a runner declares of it, in one place.

A module of this folder that has a `SPEC` is a runner's; `registry` finds them all. Nothing else has
to be told that there is one more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verax.base.errors import UsageError
from verax.judge.protocol import Runner
from verax.runners.engines import Engine

if TYPE_CHECKING:  # a child that runs no ONNX file does without
    from verax.runners.onnx.onnx_files import Writer
    from verax.runners.onnx.onnx_runner import Common

Source = str | os.PathLike[str] | bytes | None
"""Where the network under test was read: a path, the content of an ONNX file, or nowhere."""


@dataclass(frozen=True)
class RunRequest:
    """The network and options a runner is made for. source: the file of the network under test, if
    there is one. threads: 0 lets the runtime choose. timeout: seconds of one run. program: the
    ExportedProgram that the network was imported from, if it was one. writer: makes ONNX of a
    graph. device: what it shall run on ("cuda:0"), "" for where the model is."""

    source: Source
    threads: int
    timeout: float
    program: Any = None
    writer: Writer | None = None
    device: str = ""

    @property
    def onnx(self) -> Source:
        """The source where it is ONNX; otherwise None, and the graph is written as ONNX."""
        if isinstance(self.source, str | os.PathLike) and Path(self.source).suffix != ".onnx":
            return None
        return self.source

    @property
    def common(self) -> Common:
        """What every runner of ONNX files takes."""
        return {"writer": self.writer, "threads": self.threads, "timeout": self.timeout}

    def file(self, name: str, path: str) -> str | os.PathLike[str]:
        """`path`, or the source where it is empty. Raises `UsageError` where that is no file; name:
        of the runner, for the message."""
        file = path or self.source
        if not isinstance(file, str | os.PathLike):
            raise UsageError(
                f"the runner {name!r} runs model files, and the model under test is none",
                next_step=f"give the file: {name}:FILE",
            )
        return file


@dataclass(frozen=True)
class RunnerVariant:
    """One name under which a runner is asked for, such as `openvino:bf16`.

    description: one line for `verax runners`. make: the Runner. engine: how `verax bench` times it;
    None where it cannot. of_file: makes the Runner of `NAME:FILE`, a file in the framework's own
    format (an empty path means the source of the network under test). runs_onnx: `NAME:FILE.onnx`
    runs another ONNX file than the network's, with which it is aligned by value. runs_code: running
    a file runs code that the file may hold, as pickles do. takes_device: it can be told which
    device to run on.
    """

    description: str
    make: Callable[[RunRequest], Runner]
    engine: Engine | None = None
    of_file: Callable[[RunRequest, str], Runner] | None = None
    runs_onnx: bool = False
    runs_code: bool = False
    takes_device: bool = False


def framework(
    description: str,
    of_file: Callable[[RunRequest, str], Runner],
    engine: Engine | None = None,
    *,
    runs_code: bool = False,
    takes_device: bool = False,
) -> RunnerVariant:
    """A framework that runs files in its own format; by name alone, that of the network itself."""
    return RunnerVariant(
        description,
        lambda request: of_file(request, ""),
        engine,
        of_file,
        runs_code=runs_code,
        takes_device=takes_device,
    )


@dataclass(frozen=True)
class RunnerSpec:
    """A runner.

    variants: by the names that users write. package: as it is imported, empty for our own code.
    distributions: what the package may be called where packages are listed, the usual one first.
    """

    variants: Mapping[str, RunnerVariant]
    package: str = ""
    distributions: tuple[str, ...] = ()
    timed_only: Mapping[str, Engine] = field(default_factory=dict)
    """Engines of this package that `verax bench` times and nobody judges, by name."""
