"""`verax check`: is a difference rounding or a mistake, and whose?"""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated

import typer

from verax.api import graph_of, load, subject_of
from verax.base.errors import UsageError
from verax.cli.console import (
    Json,
    Model,
    Seed,
    Shape,
    Threads,
    can_write,
    output,
    parse_shapes,
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
    image_options,
    read_inputs,
)
from verax.compiler.saved import SavedExecutable
from verax.formats import VX
from verax.judge import check
from verax.judge.align import align
from verax.judge.protocol import Runner
from verax.report import render_alignment, render_verdict


def command(
    model: Model,
    subject: Annotated[
        str,
        typer.Argument(help="A runner (see `verax runners`), a model file, a .vx or an .npz file."),
    ] = "verax:O1",
    other: Annotated[
        str | None, typer.Option("--other", help="A second subject: which of the two is nearer?")
    ] = None,
    input: Inputs = None,
    image: Photo = None,
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
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every value.")] = False,
    threads: Threads = 0,
    shape: Shape = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Judge a subject's numbers against the float64 meaning of a model.

    When the subject is another model file, the two networks are aligned value by value instead,
    whatever their names and layouts: the same function or not, and where they part.

    Exit codes: 0 identical, rounding, an allowed precision or the same function; 1 mistake or
    different functions; 3 undecided.
    """
    can_write(json)
    options = image_options(
        image_layout, image_order, image_range, image_mean, image_std, image_fit
    )
    loaded = load(model, shapes=parse_shapes(shape) or None)
    if isinstance(loaded, SavedExecutable):
        raise UsageError(
            "a compiled program does not say what is right",
            place=str(model),
            next_step=f"give the model first: verax check MODEL {model}",
        )
    given = read_inputs(input, image, loaded.inputs, options)

    if _is_model(subject) and other is None:
        network = graph_of(subject)
        with progress("aligning") as show:
            record = align(
                loaded.graph,
                network,
                given.arrays or None,
                seed=seed,
                names=(str(model), subject),
                progress=show,
            )
        output.print(render_alignment(record, verbose=verbose))
        write_text(json, record.to_json())
        if record.exit_code:
            raise typer.Exit(record.exit_code)
        return

    def runner(text: str) -> Runner:
        if _is_model(text):
            other_model = load(text, shapes=parse_shapes(shape) or None)
            return subject_of(other_model, loaded, threads)
        return subject_of(text, loaded, threads)

    with progress("judging") as show:
        verdict = check(
            loaded.graph,
            runner(subject),
            given.arrays or None,
            other=runner(other) if other else None,
            seed=seed,
            watch=watch,
            winograd=winograd,
            progress=lambda done, total, what: show(what, done / max(total, 1)),
        )
    verdict = dataclasses.replace(
        verdict,
        inputs=tuple(
            dataclasses.replace(i, origin="; ".join(given.steps.get(i.name, (i.origin,))))
            for i in verdict.inputs
        ),
    )
    output.print(render_verdict(verdict, verbose=verbose))
    write_text(json, verdict.to_json())
    if verdict.exit_code:
        raise typer.Exit(verdict.exit_code)


def _is_model(text: str) -> bool:
    """Whether a subject is the file of a network, not a runner, a program or recorded arrays."""
    return os.path.exists(text) and not text.endswith((".npz", *VX.suffixes))
