"""What `verax gate` does: what another version, level or machine changes, and whether it
matters."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from verax.base.errors import UsageError
from verax.base.option_groups.options import CheckOptions, ModelOptions
from verax.base.storage.npz import read_npz
from verax.cli.console import can_write, errors, output, progress
from verax.cli.models import load_models
from verax.cli.results import write_record
from verax.gating import gate
from verax.judge.regions.budget import Budget
from verax.report.gate import render_gate
from verax.runners.environments.managed import managed_python
from verax.runners.subjects.resolve import RuntimeVersion, resolve_text


def perform(
    *,
    old: str,
    new: str,
    models: list[Path],
    inputs: Path | None,
    judging: CheckOptions,
    reading: ModelOptions,
    threads: int,
    json: Path | None,
    html: Path | None,
    markdown: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.gate`."""
    can_write(json, html, markdown)
    subjects = [resolve_text(text) for text in (old, new)]  # what is misspelt is said first
    if inputs is not None and not os.path.isfile(inputs):
        raise UsageError("there is no such file", place=str(inputs))
    loaded = load_models([str(model) for model in models], reading, command="verax gate OLD NEW")
    arrays = None if inputs is None else read_npz(inputs)
    for subject in subjects:
        if isinstance(subject, RuntimeVersion):
            managed_python(subject.version, errors.print)
    with progress("running") as show, Budget.of(judging.memory).as_current():
        record = gate(old, new, loaded, arrays, threads=threads, options=judging, progress=show)
    output.print(render_gate(record))
    write_record(record, json, html, markdown)
    if record.exit_code:
        raise typer.Exit(record.exit_code)
