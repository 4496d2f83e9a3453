"""`verax compile`: a model as a .vx program for this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.options import ModelOptions
from verax.base.processor import NAMES
from verax.cli.late import done_in
from verax.cli.options import (
    Disable,
    Inputs,
    Json,
    Model,
    OpenLevel,
    Seed,
)


@done_in("verax.cli.work.compile", reading=ModelOptions)
def command(
    model: Model,
    to: Annotated[Path, typer.Option("--output", "-o", help="The .vx file to write.")],
    opt_level: OpenLevel = None,
    target: Annotated[str, typer.Option(help=f"host, {', '.join(NAMES)}.")] = "host",
    disable: Disable = None,
    require: Annotated[list[str] | None, typer.Option(help="A pass to run anyway.")] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="bf16",
            help="Let O3 take the factors of products in bfloat16; --certify says what it costs.",
        ),
    ] = None,
    checked: Annotated[
        bool, typer.Option("--checked", help="Verify the graph around every pass.")
    ] = False,
    require_native: Annotated[
        bool,
        typer.Option("--require-native", help="Refuse a model that needs the reference anywhere."),
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY",
            help="Sign the program with this private key (PEM, Ed25519), for `verax run "
            "--trust-key`. Make one with: openssl genpkey -algorithm ed25519 -out KEY",
        ),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="Follow the recipe of an earlier program (JSON, or a .vx file): the same bits, or "
            "an error."
        ),
    ] = None,
    write_recipe: Annotated[
        Path | None,
        typer.Option("--write-recipe", metavar="FILE", help="Write the recipe as JSON."),
    ] = None,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Judge the program against float64 first, and keep the certificate in the file.",
        ),
    ] = False,
    input: Inputs = None,
    draws: Annotated[
        int, typer.Option(help="Sets of inputs to draw for the certificate, if none is given.")
    ] = 1,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE.md", help="Write the certificate as Markdown."),
    ] = None,
    seed: Seed = 0,
    cache: Annotated[
        bool, typer.Option(help="Take a program that was compiled before from the disk.")
    ] = True,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="Take the schedules that `verax tune --history FILE` found; by default those of "
            "`verax tune` without it.",
        ),
    ] = None,
    tuned: Annotated[
        bool, typer.Option(help="Take schedules that `verax tune` found on this machine.")
    ] = True,
    plan: Annotated[bool, typer.Option("--plan", help="Print what the program does.")] = False,
    json: Json = None,
) -> None:
    """Compile a model to one file that runs without the model.

    The file is machine code: whoever runs it trusts you. --sign lets them make sure that it is
    yours.
    """
