"""What `verax bisect` does: which node is wrong, what it computed instead, and what brought it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import typer

from verax.api import bisect, subject_of
from verax.base.errors import UsageError
from verax.cli.console import can_write, checked_timeout, output, parse_shapes, progress, write_text
from verax.cli.inputs import image_options, read_inputs
from verax.cli.models import load_models
from verax.cli.pass_options import pass_options
from verax.judge.regions.budget import Budget
from verax.report.bisection import render_bisection
from verax.runners.subjects.resolve import ModelFile, resolve_text


def perform(
    *,
    model: Path,
    subject: str,
    input: list[str] | None,
    image: Path | None,
    images: Path | None,
    labels: Path | None,
    image_layout: str | None,
    image_order: str | None,
    image_range: str | None,
    image_mean: str | None,
    image_std: str | None,
    image_fit: str,
    repro: Path | None,
    force: bool,
    watch: bool,
    winograd: bool,
    allow: list[str] | None,
    steps: int | None,
    passes: list[str] | None,
    disable: list[str] | None,
    inject: list[Path] | None,
    threads: int,
    timeout: float | None,
    shape: list[str] | None,
    params: Path | None,
    seed: int,
    memory: str | None,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.bisect`."""
    can_write(json)
    limit = checked_timeout(timeout)
    chosen = dataclasses.asdict(pass_options(passes, disable, inject))
    options = image_options(
        image_layout, image_order, image_range, image_mean, image_std, image_fit
    )
    files = (str(model), subject) if isinstance(resolve_text(subject), ModelFile) else (str(model),)
    loaded, *others = load_models(files, parse_shapes(shape), params, command="verax bisect")
    if images is None and labels is not None:
        raise UsageError("--labels belongs to --images", next_step="give both")
    if images is not None and (input or image is not None):
        raise UsageError(
            "--images gives the inputs: --input and --image do not go with it",
            next_step="leave them out",
        )
    given = read_inputs(input, image, loaded.inputs, options, loaded.pixels)
    judged: Any = others[0] if others else subject
    with progress("searching") as show, Budget.of(memory).held():
        record = bisect(
            loaded,
            subject_of(judged, loaded, threads, limit),
            given.arrays or None,
            repro=repro,
            force=force,
            seed=seed,
            watch=watch,
            winograd=winograd,
            allow=tuple(allow or ()),
            timeout=limit,
            steps=steps,
            **chosen,
            images=images,
            labels=labels,
            image=options,
            progress=lambda done, total, what: show(what, done / max(total, 1)),
        )
    inputs = tuple(
        dataclasses.replace(i, origin="; ".join(given.steps.get(i.name, (i.origin,))))
        for i in record.verdict.inputs
    )
    record = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, inputs=inputs))
    output.print(render_bisection(record))
    write_text(json, record.to_json())
    if record.exit_code:
        raise typer.Exit(record.exit_code)
