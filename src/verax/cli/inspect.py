"""`verax inspect`: what a model file holds and how it was read."""

from __future__ import annotations

from typing import Annotated

import typer

from verax.base.option_groups.options import ModelOptions
from verax.cli.late import done_in
from verax.cli.options import Json, Model


@done_in("verax.cli.work.inspect", reading=ModelOptions)
def command(
    model: Model,
    graph: Annotated[bool, typer.Option("--graph", help="Print the whole graph as text.")] = False,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Print what became of every attribute in the file.")
    ] = False,
    json: Json = None,
) -> None:
    """Show what a model file holds: inputs, outputs, operators, and how it was read."""
