"""The `verax` command: collects the sub-commands and turns every error into words and a code."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
import warnings
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from verax.base.errors import VeraxError
from verax.cli.help import SETTINGS, LateGroup

COMMANDS = {
    "inspect": "Show what a model file holds: inputs, outputs, operators, and how it was read.",
    "convert": "Write a model as ONNX, with every attribute and pad spelled out, and judge the "
    "result.",
    "compile": "Compile a model to one file that runs without the model.",
    "run": "Run a model or a compiled .vx program; inputs that are not given are drawn.",
    "generate": "Continue a prompt of token ids with a language model, and say how fast.",
    "check": "Judge a subject's numbers against the float64 meaning of a model.",
    "bisect": "Find the guilty nodes of a subject, their causes, and the optimization that "
    "brought them.",
    "bench": "Time a model beside other runtimes: own processes, taking turns, medians and a "
    "ratio.",
    "tune": "Measure other schedules for a model's kernels (tiles, order, prefetching), and "
    "keep what is faster here.",
    "history": "List, filter, merge, export or compare what `verax tune` measured.",
    "hunt": "Generate cases, have a subject run them, and judge, shrink and keep what is wrong.",
    "gate": "Say what changes on models when one subject gives way to another, and whether it "
    "matters.",
    "evaluate": "Count on how many labeled samples a model, compiled by Verax, is right.",
    "report": "Show records of --json as one HTML page that needs nothing else.",
    "ops": "List the operators, or show one: its attributes and its meaning.",
    "passes": "List the compiler's passes in the order in which they run, or show one with an "
    "example.",
    "runners": "List the subjects that `verax check` takes.",
    "formats": "List the file formats that Verax reads.",
    "skill": "Print what a coding agent has to do to prove its numbers right, or install it in a "
    "folder.",
    "cache": "Say what the cache of compiled programs holds, or empty it.",
    "doctor": "Say what is installed, and compile and run a tiny network on every thread count.",
}
"""Commands in the order of `--help`; what each does is the first sentence of its own help."""


class _Verax(LateGroup):
    late, home = COMMANDS, "verax.cli"


REFUSED = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),  # writing
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR),  # names
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),  # limits
)
"""What the system says of a disk, a name or a limit is no mistake of a program."""

app = typer.Typer(
    name="verax",
    cls=_Verax,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=SETTINGS,
)


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"verax {import_module('verax').__version__}")
        raise typer.Exit


@app.callback()
def verax(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Compile neural networks to native code, and prove every number that comes out.

    Exit codes: 0 right (identical, or only rounding), 1 mistake, 2 bad usage or unreadable input,
    3 undecided.
    """


def run_command() -> None:
    """Do what the command line says and exit. Never shows a traceback unless VERAX_DEBUG is set."""
    warnings.showwarning = _warn
    try:
        app()
    except VeraxError as error:
        _debug()
        _say("error:", str(error))
        sys.exit(error.exit_code)
    except MemoryError:
        _debug()
        _say("error:", "there is not enough memory for this")
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except OSError as error:
        _debug()
        if error.errno not in REFUSED:
            _bug(error)
        else:
            _forget_output()
            file_line = f"\n  at: {error.filename}" if error.filename else ""
            _say("error:", f"the system refuses: {error.strerror}{file_line}")
        sys.exit(2)
    except Exception as error:
        _debug()
        _bug(error)
        sys.exit(2)


def _say(head: str, text: str) -> None:
    """Print an error; what prints in color is imported for it."""
    console, rich_text = import_module("verax.cli.console"), import_module("rich.text")
    console.errors.print(rich_text.Text.assemble((head, "red"), f" {text}"), highlight=False)


def _warn(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
    """A warning in words, without the line of code that it came from; libraries' own are for
    programmers and are left out unless VERAX_DEBUG is set."""
    if issubclass(category, UserWarning):
        _say("warning:", str(message))
    elif os.environ.get("VERAX_DEBUG"):
        _say(f"{category.__name__}:", str(message))


def _bug(error: Exception) -> None:
    """Say that this is ours to mend, and where a report is."""
    _say("this is a bug of Verax:", f"{type(error).__name__}: {error}\n  {_report()}")


def _forget_output() -> None:
    """Drop what is still to be printed where printing fails: the interpreter would try it again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _debug() -> None:
    if os.environ.get("VERAX_DEBUG"):
        traceback.print_exc()


def _report() -> str:
    """Write a crash report to the temporary folder; where it is, in words."""
    facts = import_module("verax.records.environment").environment()
    lines = [datetime.now(UTC).isoformat(), " ".join(sys.argv), traceback.format_exc()]
    lines += [f"{key}: {value}" for key, value in facts.items()]
    try:
        descriptor, path = tempfile.mkstemp(prefix="verax-crash-", suffix=".txt")
        os.close(descriptor)
        Path(path).write_text("\n".join(lines) + "\n")
    except OSError:
        return "set VERAX_DEBUG=1 to see where it happened"
    return f"a report for the developers is in {path}"
