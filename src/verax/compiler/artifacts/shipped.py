"""Schedules that come with Verax: measured on processors at hand, for whoever has such a one.

A file of the folder `compiler/tune/histories` holds what `verax history best` writes, for one
target, family of processors and number of threads. A program in the cache is named by its content;
it is read when something is compiled, which few starts do.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from verax.base.lazy import deferred
from verax.base.machine.processor import processor_family, runs_here
from verax.compiler.kernels.target import Target

if TYPE_CHECKING:
    from verax.compiler.tune.history import Contents
    from verax.compiler.tune.lookup import ScheduleLookup, Tuned
else:  # what reads schedules: programs from the cache start without it
    Contents = deferred("verax.compiler.tune.history:Contents")
    Tuned = deferred("verax.compiler.tune.lookup:Tuned")

FOLDER = Path(__file__).parents[1] / "tune" / "histories"


class ShippedSchedules:
    """What comes with Verax for a target and number of threads, where nothing was measured here."""

    def __init__(self, path: Path, target: Target, threads: int) -> None:
        self.path, self.target, self.threads = path, target, threads

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return content_digest(self.path)

    @cached_property
    def _tuned(self) -> Tuned:
        nothing = Contents()
        return Tuned(nothing, self.target, self.threads, shipped=shipped_contents(self.path))

    def lookup(self) -> ScheduleLookup:
        """See `Tuned.lookup`."""
        return self._tuned.lookup(quiet=True)


def shipped_path(target: Target, threads: int) -> Path | None:
    """The file for this machine's family of processors; None where there is none, or where the
    target does not run here."""
    path = FOLDER / file_name(target.name, processor_family(), threads)
    return path if path.exists() and runs_here(target.name) else None


def file_name(target: str, family: str, threads: int) -> str:
    """What the file for a target, a family of processors and a number of threads is called."""
    return f"{target}-{re.sub('[^a-z0-9]+', '-', family.lower()).strip('-')}-{threads}.jsonl"


@cache
def content_digest(path: Path) -> str:
    """SHA-256 of a file that does not change while Verax runs, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def shipped_contents(path: Path) -> Contents:
    """What a file says; it is not written, and has no index."""
    return Contents().after(path.read_bytes())
