"""A subject with some of its optimizations: passes switched off, or added from a file."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from verax.base.errors import UsageError
from verax.base.option_groups.options import PassOptions
from verax.judge.protocol import Runner


@runtime_checkable
class Configurable(Protocol):
    """A Runner whose optimizations can be chosen."""

    def with_passes(self, options: PassOptions) -> Runner:
        """The subject so. Raises `UsageError` for what it has not."""


def with_passes(subject: Runner, options: PassOptions) -> Runner:
    """`subject` with these optimizations. Raises `UsageError` when they cannot be chosen."""
    if options == PassOptions():
        return subject
    if isinstance(subject, Configurable):
        return subject.with_passes(options)
    raise UsageError(
        "the optimizations of this subject cannot be chosen",
        place=subject.name,
        next_step="--passes, --disable and --inject are for verax:O1 and the like; --disable for "
        "onnxruntime, too",
    )
