"""What a history says when a network is compiled: exactly this kernel on this machine, its family,
or nothing; said aloud, and only the first is taken."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from verax.base.errors import UsageError
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, admits, space_of
from verax.compiler.kernels.target import Target
from verax.compiler.tune.history import ChosenSchedule, Contents, History
from verax.compiler.tune.host import ANOTHER, Host


def encoded(schedule: Schedule) -> tuple[str, dict[str, Any]]:
    """A schedule as a history says it."""
    assert dataclasses.is_dataclass(schedule) and not isinstance(schedule, type)
    return type(schedule).__name__, dataclasses.asdict(schedule)


def decoded(
    spec: Spec, target: Target, encoded_schedule: tuple[str, Mapping[str, Any]]
) -> Schedule | None:
    """The schedule that `encoded` gives so; None where the kernel of `spec` does not admit it."""
    space, (kind, fields) = space_of(spec, target), encoded_schedule
    if space is None or kind != space.schedule.__name__:
        return None
    types = {f.name: f.type for f in dataclasses.fields(space.schedule)}
    if {name: type(v).__name__ for name, v in fields.items()} != types:
        return None
    decoded_schedule: Schedule = space.schedule(**fields)
    return decoded_schedule if admits(spec, target, decoded_schedule) else None


class Tuned:
    """A history, asked for one target and number of threads."""

    def __init__(self, contents: Contents, target: Target, threads: int) -> None:
        self.target, self.host = target, Host.here(target, threads)
        self._exact: dict[str, ChosenSchedule] = {}
        self._family: dict[str, str] = {}
        for entry in contents.schedules:
            unlike = self.host.unlike(entry.host)
            if not unlike:
                self._exact[entry.kernel] = entry
            elif unlike != ANOTHER:
                self._family[entry.kernel] = unlike

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all schedules measured for exactly this host; "" when there are none."""
        if not self._exact:
            return ""
        exact = sorted((k, c.schedule[0], sorted(c.schedule[1].items())) for k, c in
                      self._exact.items())  # fmt: skip
        return hashlib.sha256(json.dumps(exact).encode()).hexdigest()

    def schedule_for(self, spec: Spec) -> Schedule | None:
        """The schedule measured for exactly this kernel and host; None without a sound one."""
        entry = self._exact.get(digest(spec)) if self._exact else None
        return None if entry is None else decoded(spec, self.target, entry.schedule)

    def lookup(self) -> ScheduleLookup:
        """A lookup for one network, which records the kernels that it is asked for."""
        return ScheduleLookup(self)

    def family(self, spec: Spec) -> str:
        """How a record for this kernel differs from what is asked for; "" without one."""
        return self._family.get(digest(spec), "") if self._family else ""


class ScheduleLookup:
    """Looks up schedules for one network and records each result."""

    def __init__(self, tuned: Tuned) -> None:
        self._tuned = tuned
        self._schedules: dict[Spec, Schedule | None] = {}

    def __call__(self, spec: Spec) -> Schedule | None:
        """The schedule of a kernel; None: by rule."""
        if space_of(spec, self._tuned.target) is None:
            return None
        if spec not in self._schedules:
            self._schedules[spec] = self._tuned.schedule_for(spec)
        return self._schedules[spec]

    @property
    def summary(self) -> str:
        """A message: how many kernels have a measured schedule, and why the others have none."""
        exact = sum(schedule is not None for schedule in self._schedules.values())
        texts = [f"{exact} of {len(self._schedules)} kernels tuned exactly here"]
        unmatched: dict[str, int] = {}
        for spec, schedule in self._schedules.items():
            if schedule is None:
                reason = self._tuned.family(spec)
                match = f"same family ({reason})" if reason else "none"
                unmatched[match] = unmatched.get(match, 0) + 1
        texts += [f"{count} {match}" for match, count in sorted(unmatched.items())]
        return "; ".join(texts)


def read_history(path: str | os.PathLike[str], named: bool) -> Contents:
    """What the history at `path` says.

    named: a user named it, so it must exist and be one (`UsageError`); otherwise what is wrong with
    it is a warning and it is left alone. Lines that are none are told of in both cases.
    """
    history = History(path)
    try:
        if named and not os.path.exists(path):
            raise UsageError(
                "there is no such tuning history",
                place=str(path),
                next_step="`verax tune MODEL --history FILE` makes one",
            )
        contents = history.read()
    except UsageError as error:
        if named:
            raise
        _warn(f"the tuning history {history.path} is not used: {error.cause}")
        return Contents()
    if contents.unreadable:
        _warn(f"{contents.unreadable} lines of the tuning history {history.path} are damaged")
    return contents


_warned: set[str] = set()


def _warn(text: str) -> None:
    """Say it once."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"{text}; schedules are chosen by rule where it says none", stacklevel=3)
