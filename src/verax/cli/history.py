"""`verax history`: what `verax tune` measured, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import RESULT
from verax.cli.late import done_in
from verax.cli.options import Json


@done_in("verax.cli.work.history")
def command(
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION",
            help="list: machines and kernels. filter: write the lines that are asked for. merge: "
            "write all lines of several files, each once. best: write one line for each kernel and "
            "machine, which is all that a compilation needs. compare: what won on two machines.",
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Histories; several are read as one. By default the one beside the kept programs.",
        ),
    ] = None,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Only kernels whose text has this, or whose digest begins so."
        ),
    ] = "",
    machine: Annotated[
        str,
        typer.Option(
            "--machine",
            "--host",
            metavar="TEXT",
            help="Only lines of computers, devices or processors whose names have this.",
        ),
    ] = "",
    target: Annotated[str, typer.Option(metavar="NAME", help="Only lines of this target.")] = "",
    network: Annotated[
        str, typer.Option(metavar="TEXT", help="Only networks whose names have this.")
    ] = "",
    threads: Annotated[
        int, typer.Option(help="Only lines of so many threads; 0: of any.", min=0)
    ] = 0,
    between: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of compare, twice: the two machines, devices, processors or targets.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where filter, merge and best write; by default standard output.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    json: Json = None,
) -> None:
    """List, filter, merge, export or compare what `verax tune` measured.

    Files may as well be concatenated: of two words on one kernel and machine the later one counts,
    by its time. Lines of one machine are never taken for another's.
    """
