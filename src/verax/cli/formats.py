"""`verax formats`: the files that Verax reads."""

from __future__ import annotations

from verax.cli.late import done_in
from verax.cli.options import Json


@done_in("verax.cli.work.formats")
def command(json: Json = None) -> None:
    """List the file formats that Verax reads."""
