"""`verax ops`: the operators that Verax knows."""

from __future__ import annotations

from typing import Annotated

import typer

from verax.cli.late import done_in
from verax.cli.options import Json


@done_in("verax.cli.work.ops")
def command(
    name: Annotated[str | None, typer.Argument(help="One operator, in full.")] = None,
    json: Json = None,
) -> None:
    """List the operators, or show one: its attributes and its meaning."""
