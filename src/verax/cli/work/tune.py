"""What `verax tune` does: schedules measured on this machine, without changing a bit."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.text import Text

from verax.base.compile_options import TuneOptions
from verax.base.options import InputOptions, ModelOptions
from verax.cli.console import can_write, output, progress
from verax.cli.inputs import read_inputs
from verax.cli.models import load_file, require_model
from verax.cli.results import write_record
from verax.images import ImageOptions
from verax.report.tuning import tuning_table
from verax.tuning import tune


def perform(
    *,
    model: Path,
    tuning: TuneOptions,
    inputs: InputOptions,
    reading: ModelOptions,
    json: Path | None,
    html: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.tune`."""
    can_write(json, html)
    found = load_file(model, reading)
    loaded = require_model(found, model, "a compiled program has its schedules", "give the model")
    given = read_inputs(inputs, loaded.inputs, ImageOptions(), loaded.pixels).arrays
    with progress(model.name) as show:
        record = tune(loaded, given or None, progress=show, options=tuning)
    output.print(tuning_table(record))
    output.print(Text(str(record)), soft_wrap=True)
    output.print(Text(f"history: {record.history}"), style="dim", soft_wrap=True)
    write_record(record, json, html)
    if record.faults or not record.equal_bits:
        raise typer.Exit(1)
