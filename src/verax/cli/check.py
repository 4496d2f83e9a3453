"""`verax check`: is a difference rounding or a mistake, and whose?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.errors import UsageError
from verax.base.settings import DEFAULT_LEVEL
from verax.cli.console import (
    Allow,
    Evaluation,
    Json,
    Memory,
    Params,
    Seed,
    Shape,
    Steps,
    Threads,
    Timeout,
    can_write,
    checked_timeout,
    output,
    progress,
    write_text,
)
from verax.cli.inputs import (
    ImageFit,
    ImageLayout,
    ImageMean,
    ImageOrder,
    ImageRange,
    ImageStd,
    Inputs,
    Photo,
)
from verax.cli.judging import Request, perform
from verax.cli.pass_options import Disable, Inject, Passes, pass_options
from verax.judge.regions.budget import Budget
from verax.records.agreement import Agreement
from verax.records.alignment import Alignment
from verax.replay import (
    Recipe,
    Record,
    changed_versions,
    differences,
    read_record,
    require_same_inputs,
    same_answer,
)
from verax.report import render_agreement, render_alignment, render_replay, render_verdict

NOT_REPRODUCED = 3
"""Exit code when a replay gives another answer: two answers decide nothing."""


def command(
    model: Annotated[
        Path | None, typer.Argument(help="A model file (see `verax formats`).")
    ] = None,
    subject: Annotated[
        str,
        typer.Argument(help="A runner (see `verax runners`), a model file, a .vx or an .npz file."),
    ] = f"verax:O{DEFAULT_LEVEL}",
    other: Annotated[
        str | None, typer.Option("--other", help="A second subject: which of the two is nearer?")
    ] = None,
    input: Inputs = None,
    image: Photo = None,
    images: Annotated[
        Path | None,
        typer.Option("--images", metavar="DIR", help="Compare the chosen class, image by image."),
    ] = None,
    output_name: Annotated[
        str | None, typer.Option("--output", help="With --images: the output that chooses.")
    ] = None,
    image_layout: ImageLayout = None,
    image_order: ImageOrder = None,
    image_range: ImageRange = None,
    image_mean: ImageMean = None,
    image_std: ImageStd = None,
    image_fit: ImageFit = "stretch",
    watch: Annotated[
        bool, typer.Option(help="Ask the subject for values inside the network.")
    ] = True,
    winograd: Annotated[
        bool, typer.Option(help="The subject may use Winograd's algorithm; without, sharper.")
    ] = True,
    require_power: Annotated[
        float | None,
        typer.Option(
            "--require-power",
            metavar="R",
            min=0.0,
            help="Undecided unless a relative error of R would have shown in every node.",
        ),
    ] = None,
    allow: Allow = None,
    steps: Steps = None,
    passes: Passes = None,
    disable: Disable = None,
    inject: Inject = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            metavar="RECORD",
            help="Judge again what a record of --json says: same files (by SHA-256, where they "
            "lay or beside the record), same options.",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every value.")] = False,
    threads: Threads = 0,
    timeout: Timeout = None,
    shape: Shape = None,
    params: Params = None,
    evaluation: Evaluation = False,
    seed: Seed = 0,
    memory: Memory = None,
    json: Json = None,
) -> None:
    """Judge a subject's numbers against the float64 meaning of a model.

    When the subject is another model file, the two networks are aligned value by value instead,
    whatever their names and layouts: the same function or not, and where they part.

    A subject in a process of its own (a runtime, cmd:PROGRAM) is ended with all that it started,
    in time or not; only what another service started for it (a container, a cron job) is not.
    --timeout makes an error of a run that takes longer; judging beside it, or the comparison of two
    model files, stops after as long, and says what it did not get to.

    Exit codes: 0 identical, rounding, precision or the same function; 1 mistake, or digits lost
    that --allow does not name (by an unstable algorithm, or because the network makes the errors of
    a coarser arithmetic too large), or different functions; 2 unreadable, or a replay's file
    changed; 3 undecided, no difference found between two networks whose operators are not the same,
    or a replay gives another answer.
    """
    can_write(json)
    if replay is not None:
        if model is not None:
            raise UsageError("--replay takes model, subject and options from the record")
        code = _replay(replay, verbose, json)
    elif model is None:
        raise UsageError("which model?", next_step="verax check MODEL SUBJECT")
    else:
        chosen = pass_options(passes, disable, inject)
        request = Request(
            str(model),
            subject,
            other,
            tuple(input or ()),
            _text(image),
            _text(images),
            output_name,
            image_layout,
            image_order,
            image_range,
            image_mean,
            image_std,
            image_fit,
            watch,
            winograd,
            threads,
            tuple(shape or ()),
            seed,
            _text(params),
            require_power,
            checked_timeout(timeout),
            memory,
            steps,
            chosen.passes,
            chosen.disable,
            chosen.inject,
            tuple(allow or ()),
            evaluation,
        )
        with progress("judging") as show, Budget.of(request.memory).held():
            record = perform(request, show)
        code = _shown(record, verbose, json)
    if code:
        raise typer.Exit(code)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _shown(record: Record, verbose: bool, json: Path | None) -> int:
    """Print and write a record; its exit code."""
    if isinstance(record, Alignment):
        output.print(render_alignment(record, verbose=verbose))
    elif isinstance(record, Agreement):
        output.print(render_agreement(record, verbose=verbose))
    else:
        output.print(render_verdict(record, verbose=verbose))
    write_text(json, record.to_json())
    return record.exit_code


def _replay(path: Path, verbose: bool, json: Path | None) -> int:
    """Judge again what the record says, and say what is not as it was."""
    old = read_record(path)
    recipe = Recipe.from_text(old.replay, str(path))
    places = recipe.located(path.absolute().parent)
    request = Request.from_options(recipe.options).moved(places)
    with progress("judging again") as show, Budget.of(request.memory).held():
        new = perform(request, show, recipe.network)
    require_same_inputs(old, new)
    code = _shown(new, verbose, json)
    same = same_answer(old, new)
    output.print(render_replay(same, differences(old, new), changed_versions(old, new)))
    return code if same else NOT_REPRODUCED
