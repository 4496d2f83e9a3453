"""What `verax tune` does: schedules measured on this machine, without changing a bit."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.text import Text

from verax.base.options import InputOptions, ModelOptions
from verax.cli.console import can_write, output, progress, write_text
from verax.cli.inputs import read_inputs
from verax.cli.models import load_file, require_model
from verax.images import ImageOptions
from verax.report.tuning import tuning_table
from verax.tuning import tune


def perform(
    *,
    model: Path,
    time_budget: float,
    trials: int | None,
    threads: int,
    history: Path | None,
    opt_level: int | None,
    input: list[str] | None,
    reading: ModelOptions,
    seed: int,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.tune`."""
    can_write(json)
    loaded_file = load_file(model, reading)
    loaded = require_model(
        loaded_file, model, "a compiled program has its schedules", "give the model"
    )
    prepared = read_inputs(
        InputOptions(tuple(input or ())), loaded.inputs, ImageOptions(), loaded.pixels
    ).arrays
    with progress(model.name) as show:
        record = tune(
            loaded,
            prepared or None,
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
