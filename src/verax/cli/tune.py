"""`verax tune`: schedules measured on this machine, without changing a bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from verax.base.errors import UsageError
from verax.cli.console import can_write, output, parse_shapes, parse_values, progress, write_text
from verax.cli.inputs import read_inputs
from verax.cli.options import Inputs, Json, Model, OpenLevel, Params, Seed, Shape, Threads, Value
from verax.compiler.saved import SavedExecutable
from verax.compiler.tuner import BUDGET
from verax.images import ImageOptions
from verax.loading import load
from verax.report.tuning import tuning_table
from verax.tuning import tune


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
    shape: Shape = None,
    value: Value = None,
    params: Params = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Measure other schedules for a model's kernels (tiles, order, prefetching), and keep what is
    faster here.

    No number changes: candidates with other bits are faults and never taken, and the network's
    outputs before and after are compared. Exit code 1 if any bit differs. What was measured when
    you press Ctrl-C is kept.
    """
    can_write(json)
    loaded = load(
        model, shapes=parse_shapes(shape) or None, values=parse_values(value), params=params
    )
    if isinstance(loaded, SavedExecutable):
        raise UsageError(
            "a compiled program has its schedules", place=str(model), next_step="give the model"
        )
    given = read_inputs(input, None, loaded.inputs, ImageOptions(), loaded.pixels).arrays
    with progress(model.name) as show:
        record = tune(
            loaded,
            given or None,
            time_budget=time_budget,
            trials=trials,
            threads=threads,
            opt_level=opt_level,
            history=history,
            seed=seed,
            progress=show,
        )
    output.print(tuning_table(record))
    output.print(Text(str(record)), soft_wrap=True)
    output.print(Text(f"history: {record.history}"), style="dim", soft_wrap=True)
    write_text(json, record.to_json())
    if record.faults or not record.equal_bits:
        raise typer.Exit(1)
