"""The worker threads of one program: a handle to the native pool in its object code."""

from __future__ import annotations

import ctypes

from verax.base.errors import CompileError
from verax.runtime.engine import LoadedObject


class ThreadPool:
    """`threads - 1` native workers that park when idle. `handle` goes into the context."""

    def __init__(self, library: LoadedObject, threads: int) -> None:
        """Raises `CompileError` when the system gives no threads."""
        start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(library.address("pool_start"))
        self._stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("pool_stop"))
        self._library = library  # its code runs in the workers
        self.handle: int | None = start(threads)
        if self.handle is None:
            raise CompileError(
                f"the system gave no {threads - 1} worker threads", next_step="use threads=1"
            )

    def close(self) -> None:
        """Stop and join the workers; calling it again does nothing."""
        if self.handle is not None:
            handle, self.handle = self.handle, None
            self._stop(handle)
