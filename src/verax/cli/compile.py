"""`verax compile`: a model as a .vx program for this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.compile_options import CompilationOptions
from verax.base.option_groups.options import InputOptions, ModelOptions
from verax.cli.late import done_in
from verax.cli.options import Json, Model


@done_in(
    "verax.cli.work.compile",
    compiling=CompilationOptions,
    inputs=InputOptions,
    reading=ModelOptions,
)
def command(
    model: Model,
    to: Annotated[Path, typer.Option("--output", "-o", help="The .vx file to write.")],
    open_sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--open",
            metavar="NAME=SIZE",
            help="Leave this size open. The program is made for SIZE and serves all that decide "
            "alike. Again for each size that the model leaves open.",
        ),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY",
            help="Sign the program with this private key (PEM, Ed25519), for `verax run "
            "--trust-key`. Make one with: openssl genpkey -algorithm ed25519 -out KEY",
        ),
    ] = None,
    write_recipe: Annotated[
        Path | None,
        typer.Option("--write-recipe", metavar="FILE", help="Write the recipe as JSON."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE.md", help="Write the certificate as Markdown."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what the program does.")] = False,
    json: Json = None,
) -> None:
    """Compile a model to one file that runs without the model.

    The file is machine code: whoever runs it trusts you. --sign lets them make sure that it is
    yours.
    """
