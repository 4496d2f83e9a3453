"""Runs cases in a few processes: progress as they finish, and nothing lost when interrupted.

A foreign runtime that kills its process costs that case only: it is run again by itself, and is
recorded as skipped when its process dies again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

from verax.base.guard import SET_PARENT_DEATH_SIGNAL, prctl

Case = TypeVar("Case")
Result = TypeVar("Result")
AHEAD = 2
"""Cases that wait in front of each process."""
NICENESS = 5
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_cases(
    cases: Iterable[Case],
    run: Callable[[Case], Result],
    died: Callable[[Case], Result],
    *,
    processes: int = 2,
    seconds: float | None = None,
) -> Iterator[Result]:
    """Results of `run(case)` as they finish, in any order.

    run: a function of a module (it is sent to other processes). died: the result of a case whose
    process dies twice. seconds: no case is begun after so much time. Ctrl-C (KeyboardInterrupt)
    ends the processes; what was yielded before stays with the caller.
    """
    waiting, began = iter(cases), time.monotonic()
    pool = _pool(processes)
    running: dict[Future[Result], Case] = {}
    try:
        while True:
            if seconds is None or time.monotonic() - began < seconds:
                for case in islice(waiting, processes * AHEAD - len(running)):
                    running[_submit(pool, run, case)] = case
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            if any(isinstance(f.exception(), BrokenProcessPool) for f in done):
                left, running = running, {}
                for future, case in left.items():
                    finished = future.done() and future.exception() is None
                    yield future.result() if finished else _alone(case, run, died)
                pool = _pool(processes)
                continue
            for future in done:
                del running[future]
                yield future.result()
    finally:
        _stop(pool)


def _submit(pool: ProcessPoolExecutor, run: Callable[[Case], Result], case: Case) -> Future[Result]:
    """A future even where the pool broke meanwhile."""
    try:
        return pool.submit(run, case)
    except BrokenProcessPool as error:
        future: Future[Result] = Future()
        future.set_exception(error)
        return future


def _alone(case: Case, run: Callable[[Case], Result], died: Callable[[Case], Result]) -> Result:
    pool = _pool(1)
    try:
        return pool.submit(run, case).result()
    except BrokenProcessPool:
        return died(case)
    finally:
        _stop(pool)


def _pool(processes: int) -> ProcessPoolExecutor:
    for name in THREADS:
        os.environ.setdefault(name, "1")  # read when the children import their libraries
    return ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), initializer=_quietly
    )


def _quietly() -> None:
    """Behind all else, deaf to Ctrl-C (the parent hears it), and never without the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if parent is not None and parent.pid != os.getppid():
        os._exit(1)
    os.nice(NICENESS)


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the pool's processes without waiting for what they are at."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
