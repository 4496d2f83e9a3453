"""`verax doctor`: does Verax work on this machine?"""

from __future__ import annotations

from verax.cli.late import done_in
from verax.cli.options import Json


@done_in("verax.cli.work.doctor")
def command(json: Json = None) -> None:
    """Say what is installed, and compile and run a tiny network on every thread count."""
