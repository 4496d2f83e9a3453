"""Work that nobody waits for: on a thread of its own, of low priority, gone when the program ends.

Native code must not run while the interpreter takes itself apart, so the process waits for the
thread when it ends, and the thread gives up as soon as it notices: whoever does long work there
calls `give_up_if_leaving` between its parts.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

NICENESS = 10
"""Added to that of the process: others go first wherever they want the processor."""
_threads: set[int] = set()


class GivenUp(BaseException):
    """The process ends, and what was to be made is of no use. Not an `Exception`: nobody may take
    it for a failure of the work."""


def start(work: Callable[[], object], name: str) -> threading.Thread:
    """Run `work` on a thread of its own, of low priority where threads have one (Linux)."""

    def run() -> None:
        ident = threading.get_ident()
        _threads.add(ident)
        try:
            with contextlib.suppress(OSError, AttributeError):
                own = threading.get_native_id()  # on Linux a thread has a priority of its own
                niceness = os.getpriority(os.PRIO_PROCESS, own) + NICENESS
                os.setpriority(os.PRIO_PROCESS, own, niceness)
            work()
        except GivenUp:
            pass
        finally:
            _threads.discard(ident)

    thread = threading.Thread(target=run, name=name, daemon=False)
    thread.start()
    return thread


def give_up_if_leaving() -> None:
    """Raise `GivenUp` on a thread of `start` when the main thread has ended; else do nothing."""
    if _threads and threading.get_ident() in _threads and not threading.main_thread().is_alive():
        raise GivenUp
