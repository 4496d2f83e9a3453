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
from verax.compiler.tune.history import Chosen, Contents, History
from verax.compiler.tune.host import ANOTHER, Host


def encoded(schedule: Schedule) -> tuple[str, dict[str, Any]]:
    """A schedule as a history says it."""
    assert dataclasses.is_dataclass(schedule) and not isinstance(schedule, type)
    return type(schedule).__name__, dataclasses.asdict(schedule)


def decoded(spec: Spec, target: Target, said: tuple[str, Mapping[str, Any]]) -> Schedule | None:
    """The schedule, if it is one that the kernel of `spec` may have."""
    space, (kind, fields) = space_of(spec, target), said
    if space is None or kind != space.schedule.__name__:
        return None
    types = {f.name: f.type for f in dataclasses.fields(space.schedule)}
    if {name: type(v).__name__ for name, v in fields.items()} != types:
        return None
    made: Schedule = space.schedule(**fields)
    return made if admits(spec, target, made) else None


class Tuned:
    """A history, asked for one target and number of threads."""

    def __init__(self, contents: Contents, target: Target, threads: int) -> None:
        self.target, self.host = target, Host.here(target, threads)
        self._exact: dict[str, Chosen] = {}
        self._family: dict[str, str] = {}
        for chosen in contents.chosen:
            unlike = self.host.unlike(chosen.host)
            if not unlike:
                self._exact[chosen.kernel] = chosen
            elif unlike != ANOTHER:
                self._family[chosen.kernel] = unlike

    @cached_property
    def digest(self) -> str:
        """Of all that may be taken; "" when that is nothing."""
        if not self._exact:
            return ""
        said = sorted((k, c.schedule[0], sorted(c.schedule[1].items())) for k, c in
                      self._exact.items())  # fmt: skip
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    def chosen(self, spec: Spec) -> Schedule | None:
        """What was found for exactly this kernel here, if it is sound."""
        found = self._exact.get(digest(spec)) if self._exact else None
        return None if found is None else decoded(spec, self.target, found.schedule)

    def asked(self) -> Asked:
        """For one network."""
        return Asked(self)

    def family(self, spec: Spec) -> str:
        """How a record for this kernel differs from what is asked for; "" without one."""
        return self._family.get(digest(spec), "") if self._family else ""


class Asked:
    """A `Tuned` that remembers what it was asked for."""

    def __init__(self, tuned: Tuned) -> None:
        self._tuned = tuned
        self._found: dict[Spec, Schedule | None] = {}

    def __call__(self, spec: Spec) -> Schedule | None:
        """The schedule of a kernel; None: by rule."""
        if space_of(spec, self._tuned.target) is None:
            return None
        if spec not in self._found:
            self._found[spec] = self._tuned.chosen(spec)
        return self._found[spec]

    @property
    def said(self) -> str:
        """How many kernels have a measured schedule, and what is known of the others."""
        exact = sum(found is not None for found in self._found.values())
        parts = [f"{exact} of {len(self._found)} kernels tuned exactly here"]
        others: dict[str, int] = {}
        for spec, found in self._found.items():
            if found is None:
                why = self._tuned.family(spec)
                told = f"same family ({why})" if why else "none"
                others[told] = others.get(told, 0) + 1
        parts += [f"{count} {told}" for told, count in sorted(others.items())]
        return "; ".join(parts)


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
        found = history.read()
    except UsageError as error:
        if named:
            raise
        _warn(f"the tuning history {history.path} is not used: {error.cause}")
        return Contents()
    if found.unreadable:
        _warn(f"{found.unreadable} lines of the tuning history {history.path} are damaged")
    return found


_warned: set[str] = set()


def _warn(text: str) -> None:
    """Say it once."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"{text}; schedules are chosen by rule where it says none", stacklevel=3)
