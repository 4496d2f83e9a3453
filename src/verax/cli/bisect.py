"""`verax bisect`: which node is wrong, what it computed instead, and what brought it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from verax.api import bisect, subject_of
from verax.base.errors import UsageError
from verax.base.settings import DEFAULT_LEVEL
from verax.cli.console import can_write, checked_timeout, output, parse_shapes, progress, write_text
from verax.cli.inputs import image_options, read_inputs
from verax.cli.models import is_model, load_models
from verax.cli.options import (
    Allow,
    Disable,
    ImageFit,
    ImageLayout,
    ImageMean,
    ImageOrder,
    ImageRange,
    ImageStd,
    Inject,
    Inputs,
    Json,
    Memory,
    Model,
    Params,
    Passes,
    Photo,
    Seed,
    Shape,
    Steps,
    Threads,
    Timeout,
)
from verax.cli.pass_options import pass_options
from verax.ir.graph import Graph
from verax.judge.regions.budget import Budget
from verax.report.bisection import render_bisection


def command(
    model: Model,
    subject: Annotated[
        str,
        typer.Argument(help="A runner (see `verax runners`), a model file, a .vx or an .npz file."),
    ] = f"verax:O{DEFAULT_LEVEL}",
    input: Inputs = None,
    image: Photo = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="DIR|FILE.npz",
            help="Labelled samples: find the step at which the accuracy falls, and judge samples "
            "that become wrong.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="With --images, as for `verax evaluate`; without, sub-folders are classes.",
        ),
    ] = None,
    image_layout: ImageLayout = None,
    image_order: ImageOrder = None,
    image_range: ImageRange = None,
    image_mean: ImageMean = None,
    image_std: ImageStd = None,
    image_fit: ImageFit = "stretch",
    repro: Annotated[
        Path | None,
        typer.Option(
            "--repro",
            metavar="DIR",
            help="Write a minimal case for each guilty node: model, input, expected and given "
            "output, a script that shows it.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into DIR although it is not empty.")
    ] = False,
    watch: Annotated[
        bool, typer.Option(help="Ask the subject for values inside the network.")
    ] = True,
    winograd: Annotated[
        bool, typer.Option(help="The subject may use Winograd's algorithm; without, sharper.")
    ] = True,
    allow: Allow = None,
    steps: Steps = None,
    passes: Passes = None,
    disable: Disable = None,
    inject: Inject = None,
    threads: Threads = 0,
    timeout: Timeout = None,
    shape: Shape = None,
    params: Params = None,
    seed: Seed = 0,
    memory: Memory = None,
    json: Json = None,
) -> None:
    """Find the guilty nodes of a subject, their causes, and the optimisation that brought them.

    A subject that shows no values inside is run on parts of the network instead.

    Of the optimisations the level, the pass, the number of the rewrite and its nodes before and
    after are said. When it is wrong only together with earlier ones, those are named, too.

    Exit codes: 0 identical, rounding or precision; 1 mistake, or precision lost unless --allow
    names it; 3 undecided.
    """
    can_write(json)
    limit = checked_timeout(timeout)
    chosen = dataclasses.asdict(pass_options(passes, disable, inject))
    options = image_options(
        image_layout, image_order, image_range, image_mean, image_std, image_fit
    )
    files = (str(model), subject) if is_model(subject) else (str(model),)
    loaded, *others = load_models(files, parse_shapes(shape), params, command="verax bisect")
    if images is None and labels is not None:
        raise UsageError("--labels belongs to --images", next_step="give both")
    if images is not None and (input or image is not None):
        raise UsageError(
            "--images gives the inputs: --input and --image do not go with it",
            next_step="leave them out",
        )
    given = read_inputs(input, image, loaded.inputs, options, loaded.pixels)
    judged: Any = subject
    for judged in others:
        _share_names(loaded.graph, judged.graph, subject)
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


def _share_names(model: Graph, subject: Graph, place: str) -> None:
    """Raise `UsageError` when values of two networks cannot be matched by their names."""
    if set(model.inputs) == set(subject.inputs) and set(model.outputs) & set(subject.outputs):
        return
    raise UsageError(
        "the two networks name their inputs or outputs differently "
        f"({', '.join((*model.inputs, *model.outputs))}; "
        f"{', '.join((*subject.inputs, *subject.outputs))})",
        place=place,
        next_step="verax check MODEL SUBJECT aligns two networks by their values instead",
    )
