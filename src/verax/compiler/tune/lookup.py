"""What a history says when a network is compiled: exactly this kernel on this machine, or the same
with another version of Verax, which are taken; its family, or nothing. All is said aloud."""

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
from verax.compiler.tune.host import ANOTHER, ANOTHER_PROCESSOR, ANOTHER_VERSION, Host


def encoded(schedule: Schedule) -> tuple[str, dict[str, Any]]:
    """A schedule as a history says it."""
    assert dataclasses.is_dataclass(schedule) and not isinstance(schedule, type)
    return type(schedule).__name__, dataclasses.asdict(schedule)


def decoded(
    spec: Spec, target: Target, encoded_schedule: tuple[str, Mapping[str, Any]]
) -> Schedule | None:
    """The schedule that `encoded` gives so; None where the kernel of `spec` does not admit it."""
    space, (kind, fields) = space_of(spec, target), encoded_schedule
    several = () if space is None else (space.schedule, *space.further)
    schedule_type = next((t for t in several if t.__name__ == kind), None)
    if schedule_type is None:
        return None
    types = {f.name: f.type for f in dataclasses.fields(schedule_type)}
    if {name: type(v).__name__ for name, v in fields.items()} != types:
        return None
    decoded_schedule: Schedule = schedule_type(**fields)
    return decoded_schedule if admits(spec, target, decoded_schedule) else None


NOTHING = Contents()


class Tuned:
    """A history, asked for one target and number of threads of this machine, or for a `host`.

    What is compiled for a target that this machine does not run is for another machine: for the one
    that the history has for exactly that target, number of threads and version, if it has only one;
    `elsewhere` is then its name. Where there is no exact record, one of exactly this machine that
    another version of Verax made is taken; with `transfers` any of the family. shipped: what comes
    with Verax; of it records for this target, family of processors and number of threads are taken
    where there is none of these, whatever version and processor of the family they are of. card: of
    a GPU's target, of those that NVIDIA's driver has.
    """

    def __init__(
        self,
        contents: Contents,
        target: Target,
        threads: int,
        host: Host | None = None,
        transfers: bool = False,
        shipped: Contents = NOTHING,
        card: int = 0,
    ) -> None:
        self.target, self.elsewhere = target, ""
        self.host = host or Host.here(target, threads, card)
        if host is None and not target.runs_here(card):
            self.host, self.elsewhere = _only_host(contents, self.host)
        self.transfers = transfers
        self._exact: dict[str, ChosenSchedule] = {}
        self._family: dict[str, list[tuple[str, ChosenSchedule]]] = {}
        for entry in contents.schedules:
            unlike = self.host.unlike(entry.host)
            if not unlike:
                self._exact[entry.kernel] = entry
            elif unlike != ANOTHER:
                self._family.setdefault(entry.kernel, []).append((unlike, entry))
        self._shipped = {
            entry.kernel: entry
            for entry in shipped.schedules
            if self.host.unlike(entry.host) != ANOTHER and self.host.threads == entry.host.threads
        }

    @staticmethod
    def on(contents: Contents, target: Target, host: Host) -> Tuned:
        """A history, asked for a device elsewhere."""
        return Tuned(contents, target, host.threads, host)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all schedules that may be taken for this host; "" when there are none."""
        handed_on = {kernel: self._handed_on(kernel) for kernel in self._family}
        nearby = {kernel: entry for kernel, entry in handed_on.items() if entry is not None}
        takeable = {**self._shipped, **nearby, **self._exact}
        if not takeable:
            return ""
        exact = sorted((k, c.schedule[0], sorted(c.schedule[1].items())) for k, c in
                      takeable.items())  # fmt: skip
        return hashlib.sha256(json.dumps(exact).encode()).hexdigest()

    def schedule_for(self, spec: Spec) -> Schedule | None:
        """The schedule measured for exactly this kernel and host; None without a sound one."""
        entry = self._exact.get(digest(spec)) if self._exact else None
        return None if entry is None else decoded(spec, self.target, entry.schedule)

    def substitute(self, spec: Spec) -> tuple[Schedule, ChosenSchedule, bool] | None:
        """What is taken for a kernel without an exact record, from a relative or else from what
        comes with Verax: the schedule, its record, and True if it is of the latter; None where
        nothing sound is there."""
        if not (self._family or self._shipped):
            return None
        kernel = digest(spec)
        if kernel in self._exact:
            return None
        records = (self._handed_on(kernel), False), (self._shipped.get(kernel), True)
        for entry, is_shipped in records:
            schedule = None if entry is None else decoded(spec, self.target, entry.schedule)
            if entry is not None and schedule is not None:
                return schedule, entry, is_shipped
        return None

    def _handed_on(self, kernel: str) -> ChosenSchedule | None:
        """The record of the nearest relative, if it may be taken: another version's, or any."""
        entries = self._family.get(kernel)
        if not entries:
            return None
        unlike, entry = self._nearest(entries)
        return entry if self.transfers or unlike == ANOTHER_VERSION else None

    def relatives(self, spec: Spec) -> list[Schedule]:
        """Schedules that won for this kernel on hosts of the same family, the nearest first."""
        entries = self._family.get(digest(spec), []) if self._family else []
        in_order = sorted(entries, key=lambda pair: NEARNESS.get(pair[0], 1))
        decoded_ones = (decoded(spec, self.target, entry.schedule) for _, entry in in_order)
        return list(dict.fromkeys(s for s in decoded_ones if s is not None))

    def decoded(
        self, spec: Spec, entry: tuple[str, tuple[tuple[str, Any], ...]]
    ) -> Schedule | None:
        """A schedule of the history's, by its type's name and fields; None where the kernel of
        `spec` does not admit it."""
        return decoded(spec, self.target, (entry[0], dict(entry[1])))

    def lookup(self, quiet: bool = False) -> ScheduleLookup:
        """A lookup for one network, which records the kernels that it is asked for. quiet: its
        summary is "" where none has a measured schedule."""
        return ScheduleLookup(self, quiet)

    def family(self, spec: Spec) -> str:
        """How a record for this kernel differs from what is asked for; "" without one."""
        entries = self._family.get(digest(spec), []) if self._family else []
        return self._nearest(entries)[0] if entries else ""

    @staticmethod
    def _nearest(entries: list[tuple[str, ChosenSchedule]]) -> tuple[str, ChosenSchedule]:
        """Of the most alike hosts; of these the largest gain."""
        return min(entries, key=lambda pair: (NEARNESS.get(pair[0], 1), -pair[1].gain))


def _only_host(contents: Contents, here: Host) -> tuple[Host, str]:
    """The one host that a history has for `here`'s target, threads and version, with its name;
    `here` itself where there is none, or more than one."""
    hosts = {
        entry.host: entry.origin.machine or entry.host.processor or "another machine"
        for entry in contents.schedules
        if (entry.host.target, entry.host.threads) == (here.target, here.threads)
        and entry.host.code == here.code
    }
    return next(iter(hosts.items())) if len(hosts) == 1 else (here, "")


NEARNESS = {ANOTHER_VERSION: 0, ANOTHER_PROCESSOR: 2}
"""Of hosts of the same family, how far away; another number of threads is between."""


class ScheduleLookup:
    """Looks up schedules for one network and records each result."""

    def __init__(self, tuned: Tuned, quiet: bool = False) -> None:
        self._tuned, self._is_quiet = tuned, quiet
        self._schedules: dict[Spec, Schedule | None] = {}
        self._transferred: dict[Spec, ChosenSchedule] = {}
        self._shipped: dict[Spec, ChosenSchedule] = {}

    def __call__(self, spec: Spec) -> Schedule | None:
        """The schedule of a kernel; None: by rule."""
        if space_of(spec, self._tuned.target) is None:
            return None
        if spec not in self._schedules:
            schedule = self._tuned.schedule_for(spec)
            substitute = self._tuned.substitute(spec) if schedule is None else None
            if substitute is not None:
                schedule, entry, is_shipped = substitute
                (self._shipped if is_shipped else self._transferred)[spec] = entry
            self._schedules[spec] = schedule
        return self._schedules[spec]

    @property
    def summary(self) -> str:
        """A message: how many kernels have a measured schedule, and why the others have none."""
        tuned = sum(schedule is not None for schedule in self._schedules.values())
        if self._is_quiet and not tuned:
            return ""
        exact = tuned - len(self._transferred) - len(self._shipped)
        location = f"on {self._tuned.elsewhere}" if self._tuned.elsewhere else "here"
        texts = [f"{exact} of {len(self._schedules)} kernels tuned exactly {location}"]
        if self._shipped:
            measured_on = sorted(
                {e.host.processor or "a processor" for e in self._shipped.values()}
            )
            texts.append(f"{len(self._shipped)} as shipped, measured on {', '.join(measured_on)}")
        sources: dict[str, int] = {}
        for spec, entry in self._transferred.items():
            name = entry.origin.machine or entry.host.processor
            source = f"{name} ({self._tuned.family(spec)})"
            sources[source] = sources.get(source, 0) + 1
        texts += [f"{n} from a history of {source}" for source, n in sorted(sources.items())]
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
