"""Keeps PyTorch's note of a missing GPU valid: whoever traces in a thread of its own needs this.

PyTorch built for CUDA puts, where there is no GPU and something is traced for the first time, a
stand-in for the GPU's device guard into a table of the process. The stand-in belongs to the thread
that traced. When that thread ends, the table points to memory that is free again, and the next
`backward()` ends in a segmentation fault (seen with PyTorch 2.11 for CUDA 13.0).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")
_lock = threading.Lock()
_holders: list[threading.Thread] = []
"""The thread whose stand-in is in the table, once there is one."""


def hold_device_guard(torch: Any) -> None:
    """Have the stand-in made, if one is needed, by a thread that does not end before the process:
    the main thread, or else one that waits for ever."""
    enter = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    with _lock:
        if _holders or enter is None:
            return
        if threading.current_thread() is threading.main_thread():
            enter()
            _holders.append(threading.main_thread())
            return
        is_made = threading.Event()

        def hold() -> None:
            enter()
            is_made.set()
            threading.Event().wait()

        holder = threading.Thread(target=hold, name="verax-device-guard", daemon=True)
        holder.start()
        is_made.wait()
        _holders.append(holder)


def in_own_thread(torch: Any, function: Callable[..., Result], *arguments: Any) -> Result:
    """`function(*arguments)`, called in a new thread: PyTorch keeps what is being traced, and its
    modes, per thread."""
    hold_device_guard(torch)
    with ThreadPoolExecutor(1) as clean:
        return clean.submit(function, *arguments).result()
