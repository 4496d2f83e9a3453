"""`verax cache`: the compiled programs that are kept on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from verax.cli.late import done_in
from verax.cli.options import Json


@done_in("verax.cli.work.cache")
def command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of them.")] = False,
    json: Json = None,
) -> None:
    """Say what the cache of compiled programs holds, or empty it.

    Environments of other versions of runtimes (onnxruntime@VERSION) lie there, too, and are removed
    with it.

    VERAX_CACHE names its folder, or is off; VERAX_CACHE_SIZE limits it (4 GiB by default): what was
    not used for longest goes first.
    """
