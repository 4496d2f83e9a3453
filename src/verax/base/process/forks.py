"""What must be made anew in the child of a fork.

The child has one thread, the one that forked: a lock that another thread held is held for ever, and
worker threads are gone. Whoever owns such a thing says here how it is renewed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Renewed(Protocol):
    """Owns locks or threads."""

    def renew_in_child(self) -> None:
        """Called in the child, before anything else runs there: make new locks, forget threads."""


_owners: WeakSet[Renewed] = WeakSet()


def renew_in_child(owner: Renewed) -> None:
    """Have `owner.renew_in_child()` called in the child of every fork while `owner` lives."""
    _owners.add(owner)


def on_fork(
    child: Callable[[], object],
    *,
    before: Callable[[], object] | None = None,
    parent: Callable[[], object] | None = None,
) -> None:
    """Have functions called around every fork of this process, where systems can fork.

    before: in the parent, where a fork may have to wait until nobody is in a library whose state
    cannot be made anew; parent, child: afterwards.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            after_in_child=child,
            before=before or _nothing,
            after_in_parent=parent or _nothing,
        )


def _nothing() -> None:
    pass


def _renew() -> None:
    for owner in list(_owners):
        owner.renew_in_child()


on_fork(_renew)
