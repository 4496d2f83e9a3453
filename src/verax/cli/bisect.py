"""`verax bisect`: which node is wrong, what it computed instead, and what brought it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.settings import DEFAULT_LEVEL
from verax.cli.late import done_in
from verax.cli.options import (
    Allow,
    Disable,
    ImageFit,
    ImageLayout,
    ImageMean,
    ImageOrder,
    ImageRange,
    ImageStd,
    Inject,
    Inputs,
    Json,
    Memory,
    Model,
    Params,
    Passes,
    Photo,
    Seed,
    Shape,
    Steps,
    Threads,
    Timeout,
)


@done_in("verax.cli.work.bisect")
def command(
    model: Model,
    subject: Annotated[
        str,
        typer.Argument(help="A runner (see `verax runners`), a model file, a .vx or an .npz file."),
    ] = f"verax:O{DEFAULT_LEVEL}",
    input: Inputs = None,
    image: Photo = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="DIR|FILE.npz",
            help="Labelled samples: find the step at which the accuracy falls, and judge samples "
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
    image_layout: ImageLayout = None,
    image_order: ImageOrder = None,
    image_range: ImageRange = None,
    image_mean: ImageMean = None,
    image_std: ImageStd = None,
    image_fit: ImageFit = "stretch",
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
    watch: Annotated[
        bool, typer.Option(help="Ask the subject for values inside the network.")
    ] = True,
    winograd: Annotated[
        bool, typer.Option(help="The subject may use Winograd's algorithm; without, sharper.")
    ] = True,
    allow: Allow = None,
    steps: Steps = None,
    passes: Passes = None,
    disable: Disable = None,
    inject: Inject = None,
    threads: Threads = 0,
    timeout: Timeout = None,
    shape: Shape = None,
    params: Params = None,
    seed: Seed = 0,
    memory: Memory = None,
    json: Json = None,
) -> None:
    """Find the guilty nodes of a subject, their causes, and the optimisation that brought them.

    A subject that shows no values inside is run on parts of the network instead.

    Of the optimisations the level, the pass, the number of the rewrite and its nodes before and
    after are said. When it is wrong only together with earlier ones, those are named, too.

    Exit codes: 0 identical, rounding or precision; 1 mistake, or precision lost unless --allow
    names it; 3 undecided.
    """
