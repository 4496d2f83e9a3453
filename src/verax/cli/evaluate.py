"""`verax evaluate`: accuracy on labeled samples, and where a second implementation differs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import ModelOptions, PassOptions, PhotoOptions
from verax.cli.late import done_in
from verax.cli.options import (
    Html,
    Json,
    Level,
    Model,
    Ray,
    Seed,
    Threads,
    Timeout,
    Workers,
)


@done_in(
    "verax.cli.work.evaluate", optimizations=PassOptions, photo=PhotoOptions, reading=ModelOptions
)
def command(
    model: Model,
    data: Annotated[
        Path,
        typer.Option("--data", metavar="FOLDER|FILE", help="Images, .parquet or .npz, to run."),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Lines `name,label`, one label per line in the order of the names, or .npy. "
            "Without: sub-folders of images are classes, or an array of the .npz.",
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option("--classes", metavar="FILE", help="Names of classes, one per line."),
    ] = None,
    arrays: Annotated[
        str | None,
        typer.Option(
            "--arrays",
            metavar="IMAGES,LABELS",
            help="Names in the .npz, or of columns; guessed when not given.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="SUBJECT",
            help="A runner (see `verax runners`), a model file, a .vx or cmd:PROGRAM.",
        ),
    ] = None,
    output_name: Annotated[
        str | None, typer.Option("--output", help="The output with the scores of classes.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="FILE.py:FUNCTION",
            help="A figure of your own: called with predictions [n, classes] and labels [n], it "
            "returns a number, or a dict of numbers. This RUNS the code in that file.",
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            "--batch", min=0, help="Samples run together; 0: up to 32, where the model allows it."
        ),
    ] = 0,
    readers: Annotated[
        int, typer.Option("--readers", min=0, help="Threads that read images; 0: one per core.")
    ] = 0,
    workers: Workers = 0,
    ray: Ray = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="FILE",
            help="Note here what is done; the same command goes on where it was ended.",
        ),
    ] = None,
    opt_level: Level = None,
    threads: Threads = 0,
    timeout: Timeout = None,
    seed: Seed = 0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every flip.")] = False,
    json: Json = None,
    html: Html = None,
) -> None:
    """Count on how many labeled samples a model, compiled by Verax, is right.

    With --against, count the same for another implementation, list every sample on which the two
    choose differently, and say of each whether it is a near tie that rounding decides.

    --metric runs code of yours in this process, with all your rights.

    Exit codes: 0; 1 when rounding does not explain a sample on which the choices differ; 2 bad
    usage or unreadable input; 3 when that cannot be told.
    """
