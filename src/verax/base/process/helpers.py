"""Helpers (such as child processes) that live as long as a piece of work: a check runs its subject
many times.

Outside of `helper_scope` there are no helpers, and callers work without.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar, cast


class Helper(Protocol):
    """Something that goes on until it is stopped, such as a process."""

    def stop(self) -> None:
        """End it; does nothing when it has ended."""


H = TypeVar("H", bound=Helper)


class _Shelf:
    """The helpers of one piece of work, of the process that began it."""

    def __init__(self) -> None:
        self.helpers: dict[Hashable, Helper] = {}
        self.lock, self._process = threading.Lock(), os.getpid()

    @property
    def is_ours(self) -> bool:
        """False in a forked child."""
        return self._process == os.getpid()


_current: ContextVar[_Shelf | None] = ContextVar("helpers of the work", default=None)


@contextmanager
def helper_scope() -> Iterator[None]:
    """Context (or decorator) at whose end the helpers that `helper_of` made inside are stopped.

    It holds for this thread and for those that run in its context. A nested scope does nothing:
    helpers belong to the outermost one.
    """
    outer = _current.get()
    if outer is not None and outer.is_ours:
        yield
        return
    shelf = _Shelf()
    token = _current.set(shelf)
    try:
        yield
    finally:
        _current.reset(token)
        if shelf.is_ours:
            for helper in shelf.helpers.values():
                helper.stop()


def helper_of(key: Hashable, make: Callable[[], H]) -> H | None:
    """The helper of `key`, made when there is none yet; None outside of `helper_scope`."""
    shelf = _current.get()
    if shelf is None or not shelf.is_ours:
        return None
    with shelf.lock:
        if key not in shelf.helpers:
            shelf.helpers[key] = make()
        return cast(H, shelf.helpers[key])
