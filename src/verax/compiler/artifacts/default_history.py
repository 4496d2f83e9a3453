"""Measured schedules when a network is compiled: which history is asked, where the usual one is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verax.base.gpu.targets import card_of
from verax.base.lazy import deferred
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import default_cache
from verax.compiler.artifacts.shipped import ShippedSchedules, shipped_contents, shipped_path
from verax.compiler.kernels.target import Target

if TYPE_CHECKING:
    from verax.compiler.tune.history import Contents
    from verax.compiler.tune.lookup import Tuned, read_history
else:  # few have a history
    Contents = deferred("verax.compiler.tune.history:Contents")
    read_history = deferred("verax.compiler.tune.lookup:read_history")
    Tuned = deferred("verax.compiler.tune.lookup:Tuned")

NAME = "tuning.jsonl"
"""Of the history in the folder of kept programs."""


def default_history() -> str | None:
    """Where `tune` keeps what it measures unless it is told otherwise: beside the programs that are
    kept; None where none are."""
    cache = default_cache()
    return None if cache is None else os.fspath(cache.folder / NAME)


def tuned_schedules(
    request: bool | str | os.PathLike[str], settings: Settings
) -> Tuned | ShippedSchedules | None:
    """The history that a user asks for by name; with True the usual one, and what comes with Verax
    behind it, if they say anything; with False none. Raises `UsageError` for a named one that is
    not there or cannot be read."""
    if request is False:
        return None
    target, threads = Target.named(settings.target), settings.thread_count
    card = card_of(settings.target) or 0
    if request is not True:
        contents = read_history(os.fspath(request), named=True)
        return Tuned(contents, target, threads, card=card)
    history, shipped = default_history(), shipped_path(target, threads)
    if history is not None and os.path.exists(history):
        contents = read_history(history, named=False)
        if contents.schedules:
            behind = Contents() if shipped is None else shipped_contents(shipped)
            return Tuned(contents, target, threads, shipped=behind, card=card)
    return None if shipped is None else ShippedSchedules(shipped, target, threads)
