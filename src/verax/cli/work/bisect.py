"""What `verax bisect` does: which node is wrong, what it computed instead, and what brought it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import typer

from verax.api import bisect, subject_of
from verax.base.errors import UsageError
from verax.base.option_groups.options import (
    CheckOptions,
    InputOptions,
    ModelOptions,
    PassOptions,
    PhotoOptions,
)
from verax.cli.console import can_write, output, progress
from verax.cli.inputs import image_options, read_inputs
from verax.cli.models import load_models
from verax.cli.results import write_record
from verax.judge.regions.budget import Budget
from verax.report.bisection import render_bisection
from verax.runners.subjects.resolve import ModelFile, resolve_text


def perform(
    *,
    model: Path,
    subject: str,
    inputs: InputOptions,
    images: Path | None,
    labels: Path | None,
    photo: PhotoOptions,
    repro: Path | None,
    force: bool,
    judging: CheckOptions,
    optimizations: PassOptions,
    reading: ModelOptions,
    device: str,
    threads: int,
    json: Path | None,
    html: Path | None,
    markdown: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.bisect`."""
    can_write(json, html, markdown)
    options = image_options(photo)
    files = (str(model), subject) if isinstance(resolve_text(subject), ModelFile) else (str(model),)
    loaded, *second_models = load_models(files, reading, command="verax bisect")
    if images is None and labels is not None:
        raise UsageError("--labels belongs to --images", next_step="give both")
    if images is not None and (inputs != InputOptions()):
        raise UsageError(
            "--images gives the inputs: --input and --image do not go with it",
            next_step="leave them out",
        )
    prepared = read_inputs(inputs, loaded.inputs, options, loaded.pixels)
    judged: Any = second_models[0] if second_models else subject
    with progress("searching") as show, Budget.of(judging.memory).as_current():
        record = bisect(
            loaded,
            subject_of(judged, loaded, threads, judging.timeout, device),
            prepared.arrays or None,
            repro=repro,
            force=force,
            options=judging,
            **dataclasses.asdict(optimizations),
            images=images,
            labels=labels,
            image=options,
            progress=lambda done, total, stage: show(stage, done / max(total, 1)),
        )
    described = tuple(
        dataclasses.replace(i, origin="; ".join(prepared.steps.get(i.name, (i.origin,))))
        for i in record.verdict.inputs
    )
    record = dataclasses.replace(
        record, verdict=dataclasses.replace(record.verdict, inputs=described)
    )
    output.print(render_bisection(record))
    write_record(record, json, html, markdown)
    if record.exit_code:
        raise typer.Exit(record.exit_code)
