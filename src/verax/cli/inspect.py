"""`verax inspect`: what a model file holds and how it was read."""

from __future__ import annotations

from typing import Annotated

import typer

from verax.cli.late import done_in
from verax.cli.options import Evaluation, Json, Model, Params, Shape, Value


@done_in("verax.cli.work.inspect")
def command(
    model: Model,
    graph: Annotated[bool, typer.Option("--graph", help="Print the whole graph as text.")] = False,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Print what became of every attribute in the file.")
    ] = False,
    shape: Shape = None,
    value: Value = None,
    params: Params = None,
    evaluation: Evaluation = False,
    json: Json = None,
) -> None:
    """Show what a model file holds: inputs, outputs, operators, and how it was read."""
