"""`verax skill`: what coding agents read before they touch numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.cli.late import done_in
from verax.cli.options import Json


@done_in("verax.cli.work.skill")
def command(
    install: Annotated[
        Path | None,
        typer.Option(
            "--install",
            metavar="DIR",
            help="Write skills/verify-numerics/SKILL.md and a section of AGENTS.md into this "
            "folder, the root of your repository.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace a skill that differs, and put the section into an AGENTS.md that is "
            "there; the rest of that file stays as it is.",
        ),
    ] = False,
    json: Json = None,
) -> None:
    """Print what a coding agent has to do to prove its numbers right, or install it in a folder.

    Examples: `verax skill`; `verax skill --install .`
    """
