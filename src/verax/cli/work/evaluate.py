"""What `verax evaluate` does: accuracy on samples, and where a second implementation differs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import typer

from verax.base.errors import UsageError
from verax.base.option_groups.options import ModelOptions, PassOptions, PhotoOptions
from verax.cli.console import can_write, checked_timeout, noting_interruption, output, progress
from verax.cli.inputs import image_options
from verax.cli.models import load_file
from verax.cli.results import write_record
from verax.evaluating import evaluate
from verax.report import render_evaluation


def perform(
    *,
    model: Path,
    data: Path,
    labels: Path | None,
    classes: Path | None,
    arrays: str | None,
    against: str | None,
    output_name: str | None,
    metric: str | None,
    photo: PhotoOptions,
    batch: int,
    readers: int,
    workers: int,
    ray: str | None,
    resume: Path | None,
    opt_level: int | None,
    optimizations: PassOptions,
    threads: int,
    timeout: float | None,
    reading: ModelOptions,
    seed: int,
    verbose: bool,
    json: Path | None,
    html: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.evaluate`."""
    code = None if metric is None else metric.rpartition(":")[0] or metric
    can_write(json, html, resume, reads=[model, data, labels, classes, reading.params, code])
    image = image_options(photo)
    note = f"what was evaluated is noted in {resume}; the same command goes on from there"
    with noting_interruption(resume, note), progress("evaluating") as show:
        record = evaluate(
            load_file(model, reading),
            data,
            labels,
            against=against,
            opt_level=opt_level,
            **dataclasses.asdict(optimizations),
            threads=threads,
            timeout=checked_timeout(timeout),
            output=output_name,
            classes=classes or (),
            arrays=_names(arrays),
            image=image,
            metric=metric,
            batch=batch,
            readers=readers,
            workers=workers,
            ray=ray,
            resume=resume,
            seed=seed,
            progress=show,
        )
    output.print(render_evaluation(record, verbose=verbose))
    write_record(record, json, html)
    if record.exit_code:
        raise typer.Exit(record.exit_code)


def _names(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if len(names) > 2 or not all(names):
        raise UsageError(
            f"--arrays {text!r} is not of the form IMAGES,LABELS",
            next_step="for instance --arrays x_test,y_test; IMAGES alone with --labels FILE",
        )
    return names[0], names[1] if len(names) == 2 else ""
