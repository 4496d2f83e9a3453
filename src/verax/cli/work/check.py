"""What `verax check` does with its options: judge, or judge again what a record says; print it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import typer
from rich.markup import escape

from verax.base.errors import UsageError
from verax.base.option_groups.options import (
    CheckOptions,
    InputOptions,
    ModelOptions,
    PassOptions,
    PhotoOptions,
)
from verax.cli import console
from verax.cli.console import can_write, errors, progress
from verax.cli.judging import Request
from verax.cli.judging import perform as perform_request
from verax.cli.results import write_record
from verax.judge.regions.budget import Budget
from verax.records.agreement import Agreement
from verax.records.alignment import Alignment
from verax.replay import (
    Record,
    ReplayOptions,
    changed_versions,
    differences,
    read_record,
    require_same_inputs,
    same_answer,
)
from verax.report import render_agreement, render_alignment, render_replay, render_verdict

Files: TypeAlias = tuple[Path | None, Path | None, Path | None]
"""Where the record is written: as JSON, as a page, as Markdown."""
NOT_REPRODUCED = 3
"""Exit code when a replay gives another answer: two answers decide nothing."""


def perform(
    *,
    model: Path | None,
    subject: str,
    other: str | None,
    images: Path | None,
    output: str | None,
    device: str,
    threads: int,
    judging: CheckOptions,
    optimizations: PassOptions,
    inputs: InputOptions,
    photo: PhotoOptions,
    reading: ModelOptions,
    replay: Path | None,
    allow_commands: bool,
    verbose: bool,
    json: Path | None,
    html: Path | None,
    markdown: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.check`."""
    files = (json, html, markdown)
    if replay is not None:
        if model is not None:
            raise UsageError("--replay takes model, subject and options from the record")
        code = judge_again(replay, allow_commands, verbose, files)
    elif allow_commands:
        raise UsageError("--allow-commands belongs to --replay", next_step="leave it out")
    elif model is None:
        raise UsageError("which model?", next_step="verax check MODEL SUBJECT")
    else:
        folder = None if images is None else str(images)
        named = str(model), subject, other, folder, output, threads
        request = Request(*named, judging, optimizations, inputs, photo, reading, device)
        code = judge_anew(request, verbose, files)
    if code:
        raise typer.Exit(code)


def judge_anew(request: Request, verbose: bool, files: Files) -> int:
    """Carry out a request; the exit code."""
    can_write(*files)
    with progress("judging") as show, Budget.of(request.judging.memory).as_current():
        record = perform_request(request, show)
    return _print_record(record, verbose, files)


def _print_record(record: Record, verbose: bool, files: Files) -> int:
    """Print and write a record; its exit code."""
    if isinstance(record, Alignment):
        console.output.print(render_alignment(record, verbose=verbose))
    elif isinstance(record, Agreement):
        console.output.print(render_agreement(record, verbose=verbose))
    else:
        console.output.print(render_verdict(record, verbose=verbose))
    write_record(record, *files)
    return record.exit_code


def judge_again(path: Path, allow_commands: bool, verbose: bool, files: Files) -> int:
    """Judge again what a record says, and say what is not as it was; the exit code."""
    can_write(*files)
    old = read_record(path)
    recipe = ReplayOptions.from_text(old.replay, str(path))
    request = Request.from_options(recipe.options)
    if request.programs and not allow_commands:
        raise UsageError(
            "replaying the record would run what it names as code: "
            + ", ".join(f"{program!r}" for program in request.programs),
            place=str(path),
            next_step="look at it; if you would run all of it yourself, add --allow-commands",
        )
    request = request.with_paths(recipe.located(path.absolute().parent))
    for program in request.programs:
        errors.print(f"as the record says, this runs {escape(repr(program))}", highlight=False)
    with progress("judging again") as show, Budget.of(request.judging.memory).as_current():
        new = perform_request(request, show, recipe.network)
    require_same_inputs(old, new)
    code = _print_record(new, verbose, files)
    same = same_answer(old, new)
    console.output.print(render_replay(same, differences(old, new), changed_versions(old, new)))
    return code if same else NOT_REPRODUCED
