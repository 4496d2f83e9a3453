"""The time that a piece of work may take: who has none left stops, and says what was left out.

A `Clock` belongs to a context, as the budget of memory does, and is looked at between steps of the
work, so it ends soon after its time, not at once. Outside of `clocked` there is no limit.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class OutOfTime(Exception):
    """No time is left. No `VeraxError`: what that would make of an error is no answer here."""


class Clock:
    """seconds: how long the work may take from `start` on, None for no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self._end = seconds, None if seconds is None else float("inf")

    def start(self) -> None:
        """Begin to count."""
        if self.seconds is not None:
            self._end = time.monotonic() + self.seconds

    def stop(self) -> None:
        """End the time now: what still works on a lost cause shall not go on."""
        self._end = float("-inf")

    @property
    def is_up(self) -> bool:
        """Whether the time is over."""
        return self._end is not None and time.monotonic() > self._end

    @property
    def reason(self) -> str:
        """Why something was left out."""
        return f"the {self.seconds:g} s that judging may take were over (--timeout)"


_clock: ContextVar[Clock | None] = ContextVar("clock of the work", default=None)
UNLIMITED = Clock(None)


def clock() -> Clock:
    """The clock of this context."""
    return _clock.get() or UNLIMITED


@contextlib.contextmanager
def clocked(seconds: float | None) -> Iterator[Clock]:
    """Work that may take `seconds`, once its clock is started."""
    clock = Clock(seconds)
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)


def require_time() -> None:
    """Raise `OutOfTime` when the clock of this context is up."""
    if clock().is_up:
        raise OutOfTime(clock().reason)


def limited_in_time(default: float) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function with a keyword `timeout`, seconds, which is `default` where it is None:
    it runs `clocked`, and starts the clock itself."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def act(*args: P.args, **options: P.kwargs) -> R:
            seconds = options.get("timeout")
            with clocked(default if seconds is None else seconds):  # type: ignore[arg-type]
                return function(*args, **options)

        return act

    return decorate
