"""`verax passes`: what the compiler may do to a graph, and at which level."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.cli.late import done_in
from verax.cli.options import Inject, Json, Shape


@done_in("verax.cli.work.passes")
def command(
    name: Annotated[
        str | None, typer.Argument(help="A pass or a decision; without, all are listed.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Run them on this model at O3, and say how often each rewrote something and how "
            "often it refused to: where an operator would amplify the errors of an approximation.",
        ),
    ] = None,
    shape: Shape = None,
    inject: Inject = None,
    json: Json = None,
) -> None:
    """List the compiler's passes in the order in which they run, or show one with an example.

    Behind the passes come decisions, which are made on the way to kernels. All can be named to
    --passes and --disable.
    """
