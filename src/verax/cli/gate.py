"""`verax gate`: what another version, level or machine changes, and whether it matters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import INPUTS, CheckOptions, ModelOptions
from verax.cli.late import done_in
from verax.cli.options import Html, Json, Markdown, Threads


@done_in("verax.cli.work.gate", judging=CheckOptions, reading=ModelOptions)
def command(
    old: Annotated[
        str,
        typer.Argument(help="What is used now: a runner (see `verax runners`)."),
    ],
    new: Annotated[str, typer.Argument(help="What shall be used instead.")],
    models: Annotated[list[Path], typer.Argument(help="Model files (see `verax formats`).")],
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs",
            metavar="FILE.npz",
            help="Arrays by the names of the inputs; models without any of them get drawn ones.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    threads: Threads = 0,
    json: Json = None,
    html: Html = None,
    markdown: Markdown = None,
) -> None:
    """Say what changes on models when one subject gives way to another, and whether it matters.

    Both are run on the same inputs, each is judged against the float64 meaning, and the two are
    compared bit by bit. onnxruntime@1.20.0 is another version, which is installed into an
    environment of its own; python:PATH is the runtime of that interpreter. A crash or a hang of
    one of them is a result. Speed is not compared.

    Exit codes: 0 nothing that matters; 1 a mistake, fewer digits (unless --allow names them) or a
    failure that the old one had not; 3 undecided.
    """
