"""`verax run`: a model or a .vx program on arrays and photos.

A model file holds data, whoever made it. A .vx file is machine code: running one is trusting its
sender, and `--trust-key` says whom.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import InputOptions, ModelOptions, PhotoOptions
from verax.base.option_groups.settings import MAX_PROGRAMS
from verax.cli.late import done_in
from verax.cli.options import (
    Disable,
    Json,
    Level,
    Memory,
    Model,
    Programs,
    Seed,
    Target,
    Threads,
)


@done_in("verax.cli.work.run", inputs=InputOptions, photo=PhotoOptions, reading=ModelOptions)
def command(
    model: Model,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="An .npz file for the outputs.")
    ] = None,
    opt_level: Level = None,
    disable: Disable = None,
    threads: Threads = 0,
    target: Target = "host",
    memory: Memory = None,
    programs: Programs = MAX_PROGRAMS,
    trust_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run the .vx program only if the holder of this public key (PEM, Ed25519) signed "
            "it.",
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            "--steps", min=1, help="Consecutive runs on the same inputs; the last one is shown."
        ),
    ] = 1,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Run a model or a compiled .vx program; inputs that are not given are drawn.

    A .vx program is machine code, and as trustworthy as its sender: run it only if you would run
    any other program of theirs. --trust-key refuses what they did not sign. Model files of all
    formats are only data.

    What a model remembers begins with its initial values, and is shown as the run leaves it.
    """
