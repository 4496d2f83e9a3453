"""Measured schedules when a network is compiled: which history is asked, where the usual one is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verax.base.gpu.targets import card_of
from verax.base.lazy import deferred
from verax.base.settings import Settings
from verax.compiler.artifacts.cache import default_cache
from verax.compiler.kernels.target import Target

if TYPE_CHECKING:
    from verax.compiler.tune.lookup import Tuned, read_history
else:  # few have a history
    read_history = deferred("verax.compiler.tune.lookup:read_history")
    Tuned = deferred("verax.compiler.tune.lookup:Tuned")

NAME = "tuning.jsonl"
"""Of the history in the folder of kept programs."""


def default_history() -> str | None:
    """Where `tune` keeps what it measures unless it is told otherwise: beside the programs that are
    kept; None where none are."""
    cache = default_cache()
    return None if cache is None else os.fspath(cache.folder / NAME)


def tuned_schedules(request: bool | str | os.PathLike[str], settings: Settings) -> Tuned | None:
    """The history that a user asks for by name; with True the usual one, if it says anything; with
    False none. Raises `UsageError` for a named one that is not there or cannot be read."""
    if request is False:
        return None
    history = default_history() if request is True else os.fspath(request)
    if history is None or (request is True and not os.path.exists(history)):
        return None
    contents = read_history(history, named=request is not True)
    if request is True and not contents.schedules:
        return None
    card = card_of(settings.target) or 0
    return Tuned(contents, Target.named(settings.target), settings.thread_count, card=card)
