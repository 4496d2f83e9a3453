"""`verax bisect`: which node is wrong, what it computed instead, and what brought it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import (
    CheckOptions,
    InputOptions,
    ModelOptions,
    PassOptions,
    PhotoOptions,
)
from verax.base.option_groups.settings import DEFAULT_LEVEL
from verax.cli.late import done_in
from verax.cli.options import (
    Device,
    Html,
    Json,
    Markdown,
    Model,
    Threads,
)


@done_in(
    "verax.cli.work.bisect",
    judging=CheckOptions,
    optimizations=PassOptions,
    inputs=InputOptions,
    photo=PhotoOptions,
    reading=ModelOptions,
)
def command(
    model: Model,
    subject: Annotated[
        str,
        typer.Argument(help="A runner (see `verax runners`), a model file, a .vx or an .npz file."),
    ] = f"verax:O{DEFAULT_LEVEL}",
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="DIR|FILE.npz",
            help="Labeled samples: find the step at which the accuracy falls, and judge samples "
            "that become wrong.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="With --images, as for `verax evaluate`; without, sub-folders are classes.",
        ),
    ] = None,
    repro: Annotated[
        Path | None,
        typer.Option(
            "--repro",
            metavar="DIR",
            help="Write a minimal case for each guilty node: model, input, expected and given "
            "output, a script that shows it.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into DIR although it is not empty.")
    ] = False,
    device: Device = "",
    threads: Threads = 0,
    json: Json = None,
    html: Html = None,
    markdown: Markdown = None,
) -> None:
    """Find the guilty nodes of a subject, their causes, and the optimization that brought them.

    A subject that shows no values inside is run on parts of the network instead.

    Of the optimizations the level, the pass, the number of the rewrite and its nodes before and
    after are said. When it is wrong only together with earlier ones, those are named, too.

    Exit codes: 0 identical, rounding or precision; 1 mistake, or precision lost unless --allow
    names it; 3 undecided.
    """
