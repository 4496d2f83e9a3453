"""The `verax` command: collects the sub-commands and turns every error into words and a code."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.markup import escape

from verax import __version__
from verax.base.errors import VeraxError
from verax.cli import (
    bench,
    bisect,
    cache,
    check,
    compile,
    convert,
    doctor,
    evaluate,
    formats,
    inspect,
    ops,
    passes,
    run,
    runners,
    tune,
)
from verax.cli.console import errors
from verax.records.environment import environment

REFUSED = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),  # writing
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR),  # names
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),  # limits
)
"""What the system says of a disk, a name or a limit is no mistake of a program."""

app = typer.Typer(
    name="verax",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (
    inspect,
    convert,
    compile,
    run,
    check,
    bisect,
    bench,
    tune,
    evaluate,
    ops,
    passes,
    runners,
    formats,
    cache,
    doctor,
):
    app.command(_module.__name__.rpartition(".")[2])(_module.command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"verax {__version__}")
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
    try:
        app()
    except VeraxError as error:
        _debug()
        errors.print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        sys.exit(error.exit_code)
    except MemoryError:
        _debug()
        errors.print("[red]error:[/red] there is not enough memory for this")
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
            place = f"\n  at: {error.filename}" if error.filename else ""
            why = f"the system refuses: {error.strerror}{place}"
            errors.print(f"[red]error:[/red] {escape(why)}", highlight=False)
        sys.exit(2)
    except Exception as error:
        _debug()
        _bug(error)
        sys.exit(2)


def _bug(error: Exception) -> None:
    """Say that this is ours to mend, and where a report is."""
    errors.print(
        f"[red]this is a bug of Verax:[/red] {escape(f'{type(error).__name__}: {error}')}\n"
        f"  {_report()}",
        highlight=False,
    )


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
    lines = [datetime.now(UTC).isoformat(), " ".join(sys.argv), traceback.format_exc()]
    lines += [f"{key}: {value}" for key, value in environment().items()]
    try:
        descriptor, path = tempfile.mkstemp(prefix="verax-crash-", suffix=".txt")
        os.close(descriptor)
        Path(path).write_text("\n".join(lines) + "\n")
    except OSError:
        return "set VERAX_DEBUG=1 to see where it happened"
    return f"a report for the developers is in {path}"
