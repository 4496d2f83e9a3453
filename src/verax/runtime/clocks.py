"""Clocks of this processor by which code is timed."""

from __future__ import annotations

import time
from collections.abc import Callable

FINE_SECONDS = 1e-6
"""What a clock must tell apart."""


def thread_clock() -> Callable[[], int]:
    """Nanoseconds of processor time of the caller's thread, to which other programs add little;
    real time where the system counts those too coarsely."""
    is_fine = time.get_clock_info("thread_time").resolution <= FINE_SECONDS
    return time.thread_time_ns if is_fine else time.perf_counter_ns
