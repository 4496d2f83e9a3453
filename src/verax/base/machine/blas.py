"""NumPy's matrix products on one thread, where several regions are judged side by side.

On small products a BLAS library's threads mostly wait for each other, and beside other threads they
take turns: half of the processor time of a check went there.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

from verax.base.process.forks import on_fork

_lock = threading.Lock()
_users = 0
_limited: Any = None


def _renew() -> None:
    global _lock
    _lock = threading.Lock()


on_fork(_renew)


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """While any thread is inside, matrix products of the process use one thread each."""
    global _users, _limited
    with _lock:
        if _users == 0:
            _take_over()
            _limited = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _take_over()
                _limited.restore_original_limits()


def _take_over() -> None:
    """Let this thread set limits: threadpoolctl 3.7 and later ignores in silence all but the thread
    that did first, which need not be the one that now enters or leaves."""
    for library in _controller().lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
