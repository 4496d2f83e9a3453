"""How often threads take turns at the interpreter."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from verax.base.process.forks import on_fork

SWITCH_SECONDS = 1e-4
"""How long a thread may be kept waiting meanwhile: LLVM's comes back a dozen times for each kernel,
and would wait the usual 5 ms each time."""
_switching = 0
_usual = 0.0
_counting = threading.Lock()


@contextlib.contextmanager
def switching_often() -> Iterator[None]:
    """While threads wait for each other's Python: let them have the interpreter soon."""
    global _switching, _usual
    with _counting:
        if _switching == 0:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_usual, SWITCH_SECONDS))
        _switching += 1
    try:
        yield
    finally:
        with _counting:
            _switching -= 1
            if _switching == 0:
                sys.setswitchinterval(_usual)


def _end_switching() -> None:
    """In a forked child: the threads that would end it do not exist."""
    global _switching, _counting
    _counting = threading.Lock()
    if _switching:
        _switching = 0
        sys.setswitchinterval(_usual)


on_fork(_end_switching)
