"""What has to be done when this process is interrupted, and before it vanishes without clearing up.

It imports next to nothing, for interruptions are heard before anything else is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from collections.abc import Callable

_at_once: list[Callable[[], None]] = []
_at_the_end: list[Callable[[], None]] = []


def when_interrupted(act: Callable[[], None]) -> None:
    """Have `act` called when a command is interrupted, from another thread than the main one."""
    _at_once.append(act)


def before_vanishing(act: Callable[[], None]) -> None:
    """Have `act` called before this process ends on the spot (`os._exit`), by a command's will."""
    _at_the_end.append(act)


def interrupted() -> None:
    """Do what was asked for interruptions."""
    for act in _at_once:
        act()


def vanishing() -> None:
    """Do what was asked for the end."""
    for act in _at_the_end:
        act()
