"""`verax runners`: whom the judge can question."""

from __future__ import annotations

from verax.cli.late import done_in
from verax.cli.options import Json


@done_in("verax.cli.work.runners")
def command(json: Json = None) -> None:
    """List the subjects that `verax check` takes."""
