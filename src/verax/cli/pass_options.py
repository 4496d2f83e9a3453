"""The options that choose optimisations: --passes, --disable, --inject."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verax.base.errors import UsageError
from verax.runners.passes import PassOptions


def names(given: Sequence[str] | None) -> tuple[str, ...]:
    """Names given with commas, with several options, or both. Raises `UsageError`."""
    found = [name.strip() for text in given or () for name in text.split(",")]
    if not all(found):
        raise UsageError("an empty name of a pass", next_step="give names, as in --disable A,B")
    return tuple(dict.fromkeys(found))


def pass_options(
    passes: list[str] | None, disable: list[str] | None, inject: list[Path] | None
) -> PassOptions:
    """What the three options say."""
    only = None if passes is None else names(passes)
    return PassOptions(only, names(disable), tuple(str(f) for f in inject or ()))
