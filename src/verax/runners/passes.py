"""A subject with some of its optimisations: passes switched off, or added from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from verax.base.errors import UsageError
from verax.judge.protocol import Runner


@dataclass(frozen=True)
class PassOptions:
    """What a user asks of a subject's optimisations, by their names.

    passes: the only ones that run, None for all; disable: those that do not; inject: files with
    further ones, which are code that is run.
    """

    passes: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()

    @staticmethod
    def of(
        passes: Sequence[str] | None, disable: Sequence[str], inject: Sequence[str]
    ) -> PassOptions:
        """As given by a caller; one text stands for one name."""
        some = None if passes is None else _texts(passes)
        return PassOptions(some, _texts(disable), _texts(inject))


def _texts(given: Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(map(str, given))


@runtime_checkable
class Configurable(Protocol):
    """A Runner whose optimisations can be chosen."""

    def with_passes(self, options: PassOptions) -> Runner:
        """The subject so. Raises `UsageError` for what it has not."""


def with_passes(subject: Runner, options: PassOptions) -> Runner:
    """`subject` with these optimisations. Raises `UsageError` when they cannot be chosen."""
    if options == PassOptions():
        return subject
    if isinstance(subject, Configurable):
        return subject.with_passes(options)
    raise UsageError(
        "the optimisations of this subject cannot be chosen",
        place=subject.name,
        next_step="--passes, --disable and --inject are for verax:O1 and the like; --disable for "
        "onnxruntime, too",
    )
