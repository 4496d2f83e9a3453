"""The driver: gives every architecture's missing runs to a pool and keeps what comes back.

The record is a file of JSON lines that only grows, so a campaign that was interrupted goes on where
it stopped, and a run that was judged again shows both. A worker that dies or hangs costs the few
runs that it was at: they are tried once more, one by one, and those that fail are recorded as that.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from verax.distributed import WorkerPool

SILENCE = 150.0
"""Seconds that one run may take."""
CHUNK = 4
"""Runs that a worker is given together: those of one architecture share its exported forms."""
FUNCTION = "benchmarks.honest.worker:judge_keys"
Died = Callable[[str, str], Any]
"""(key, why) -> the outcome of a run that took its process down."""


def version() -> str:
    """What judges: the last commit that changed the source tree that is imported ("+" where it was
    changed since), or the package's version."""
    import verax

    source = str(Path(str(verax.__file__)).parent)
    git = ["git", "-C", source]
    told = subprocess.run([*git, "log", "-1", "--format=%h", "--", "."], capture_output=True)
    if told.returncode == 0 and told.stdout.strip():
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "."]).returncode
        return told.stdout.decode().strip() + "+" * bool(changed)
    from verax.base.optional import installed_version

    return installed_version("verax")


def run_keys(
    keys: Sequence[str],
    died: Died,
    folder: Path,
    pool: WorkerPool,
    *,
    silence: float = SILENCE,
    seconds: float | None = None,
) -> Iterator[Any]:
    """Entries of outcomes (as read from JSON, or what `died` made), as they come; keys of one
    architecture should stand together. folder: for exported models. silence: seconds that one run
    may take. seconds: nothing is begun after so long."""
    until = None if seconds is None else time.monotonic() + seconds
    again: list[str] = []
    for some, size in ((chunks(keys), CHUNK), (([key] for key in again), 1)):
        left = None if until is None else until - time.monotonic()
        tasks = ({"keys": own, "folder": str(folder.resolve())} for own in some)
        for outcome in pool.run(FUNCTION, tasks, seconds=left, timeout=silence * size):
            own = outcome.task["keys"]
            if outcome.is_done:
                yield from outcome.value
            elif size == 1:
                yield died(own[0], outcome.loss or str(outcome.error))
            else:
                again += own  # one by one, to learn which it is


def chunks(keys: Sequence[str]) -> Iterator[list[str]]:
    """Keys of one architecture that stand together, a few at a time."""
    for _, own in groupby(keys, lambda key: key.partition("/")[0]):
        listed = list(own)
        yield from (listed[i : i + CHUNK] for i in range(0, len(listed), CHUNK))
