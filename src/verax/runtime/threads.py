"""`ThreadPool`: the worker threads of a loaded network, made by its own object code.

The object defines `pool_start` and `pool_stop` (see `kernels.llvm.thread_pool`); what runs on
the pool is the object's business.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Protocol

from verax.base.errors import CompileError
from verax.base.process.forks import renew_in_child


class Library(Protocol):
    """Code in this process (`runtime.engine.LoadedObject`)."""

    def address(self, name: str) -> int: ...


class ThreadPool:
    """`threads` - 1 parked workers. `handle` is what the object's code takes; None once closed.

    The library must outlive the pool. In a forked child the workers do not exist: work is done by
    the caller, closing does nothing, and whoever wants workers there makes a new pool.
    CompileError: the system makes no threads.
    """

    def __init__(self, library: Library, threads: int) -> None:
        start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(library.address("pool_start"))
        self._stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("pool_stop"))
        self._library = library
        self._lock = threading.Lock()
        self.handle: int | None = start(threads)
        if self.handle is None:
            raise CompileError(
                f"the system gave no {threads - 1} worker threads", next_step="use threads=1"
            )
        renew_in_child(self)

    def renew_in_child(self) -> None:
        """See `base.process.forks`."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop and join the workers. Nothing may run on the pool; closing twice is harmless."""
        with self._lock:
            handle, self.handle = self.handle, None
        if handle:
            self._stop(handle)
