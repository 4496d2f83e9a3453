"""`verax tune`: schedules measured on this machine, without changing a bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.options import ModelOptions
from verax.cli.late import done_in
from verax.cli.options import Inputs, Json, Model, OpenLevel, Seed, Threads

BUDGET = 60.0
"""Seconds, as of `compiler.tuner`, which takes its time to import."""


@done_in("verax.cli.work.tune", reading=ModelOptions)
def command(
    model: Model,
    time_budget: Annotated[
        float, typer.Option("--time-budget", metavar="SECONDS", help="How long it may take.")
    ] = BUDGET,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="The most candidates of a kernel.")
    ] = None,
    threads: Threads = 0,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="The history to append to; by default the one that every compilation reads, "
            "beside the kept programs (`verax cache`).",
        ),
    ] = None,
    opt_level: OpenLevel = None,
    input: Inputs = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Measure other schedules for a model's kernels (tiles, order, prefetching), and keep what is
    faster here.

    No number changes: candidates with other bits are faults and never taken, and the network's
    outputs before and after are compared. Exit code 1 if any bit differs. What was measured when
    you press Ctrl-C is kept.
    """
