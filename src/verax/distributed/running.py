"""One run of a pool: tasks out, outcomes in, workers replaced, repeats alone.

Every slot for a worker has a thread, which begins the worker, takes the next task that waits, and
puts the outcome where the run's caller hears it.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from verax.base.errors import UsageError, VeraxError
from verax.distributed.messages import pack
from verax.distributed.outcome import TaskOutcome, WorkerDiedError, WorkerLateError
from verax.distributed.worker import Worker, ask

AHEAD = 2
"""Tasks that wait in front of each worker."""
STARTS = 4
"""Times that a worker is begun in vain before its slot stays empty."""
RESTARTS, RESTART_SECONDS = 10, 0.5
"""The same where some could be begun before, and how much longer is waited behind each."""
HOSTS = 3
"""Hosts that may vanish under a task before it is taken for the reason."""
LEAVE_SECONDS = 5.0
"""What the threads get to end."""


@dataclass
class Batch:
    """The tasks of one call of `WorkerPool.run`, and where their answers go: a task with a value,
    an error, and the worker; no task when no worker can be begun."""

    answers: SimpleQueue[tuple[PoolTask | None, Any, VeraxError | None, Worker | None]] = field(
        default_factory=SimpleQueue
    )
    is_over: bool = False


@dataclass
class PoolTask:
    """A task that a worker is to do. deaths, hosts: how many of its workers died, and how many of
    its hosts vanished; fresh: in a worker that did nothing before."""

    index: int
    task: Any
    message: bytes
    timeout: float | None
    batch: Batch
    deaths: int = 0
    hosts: int = 0
    fresh: bool = False


class Run:
    """The slots of a pool's workers. make: a worker that was not begun yet. begin: begins it. note:
    is called with a worker and the digests that its host received."""

    def __init__(
        self,
        workers: int,
        make: Callable[[], Worker],
        begin: Callable[[Worker], Worker],
        note: Callable[[Worker, list[str]], None],
    ) -> None:
        self.make, self.begin, self.note = make, begin, note
        self.queue: SimpleQueue[PoolTask | None] = SimpleQueue()
        self.is_running = self.is_closed = self.has_begun = False
        self._workers, self._batch = workers, Batch()
        self._failure: VeraxError = WorkerDiedError("there is no worker")
        self._lock = threading.Lock()
        self._slots: list[_Slot] = []

    def outcomes(
        self, name: str, tasks: Iterable[Any], seconds: float | None, timeout: float | None
    ) -> Iterator[TaskOutcome]:
        """As `WorkerPool.run`. name: of the function."""
        if self.is_running:
            raise UsageError("the pool runs tasks")
        self.is_running = True
        batch = self._batch = Batch()
        until = None if seconds is None else time.monotonic() + seconds
        waiting, limit = enumerate(tasks), self._workers * (1 + AHEAD)
        pending: dict[int, PoolTask] = {}
        repeats: list[PoolTask] = []
        try:
            self._open()
            while True:
                over = until is not None and time.monotonic() >= until
                if not over and len(repeats) < max(limit, 4):
                    for index, task in itertools.islice(waiting, limit - len(pending)):
                        message = pack({"function": name, "value": task})
                        pending[index] = PoolTask(index, task, message, timeout, batch)
                        self.queue.put(pending[index])
                if not pending and repeats:  # nothing else is going on: it has the pool for itself
                    repeat = repeats.pop(0)
                    repeat.fresh = True
                    pending[repeat.index] = repeat
                    self.queue.put(repeat)
                if not pending:
                    return
                item, value, error, worker = batch.answers.get()
                if item is None or worker is None:
                    raise self._failure
                if isinstance(error, WorkerDiedError):
                    if error.host_is_gone and item.hosts < HOSTS:
                        item.hosts += 1
                        self.queue.put(item)
                        continue
                    item.deaths += 1
                    if item.deaths < 2:
                        repeats.append(pending.pop(item.index))
                        continue
                del pending[item.index]
                yield _outcome(item, value, error, worker)
        finally:
            self._abandon(batch)
            self.is_running = False

    def _open(self) -> None:
        with self._lock:
            if self.is_closed:
                raise UsageError("the pool is closed")
            if self._slots:
                if not any(slot.is_open for slot in self._slots):
                    raise self._failure
                return
            self._slots = [_Slot(self) for _ in range(self._workers)]
        for slot in self._slots:
            slot.thread.start()

    def _abandon(self, batch: Batch) -> None:
        """End the workers that are at tasks of a batch whose outcomes nobody takes any more."""
        batch.is_over = True
        remaining = []
        while True:
            try:
                remaining.append(self.queue.get_nowait())
            except Empty:
                break
        for item in remaining:
            if item is None:
                self.queue.put(None)
        for slot in self._slots:
            slot.end(batch)

    def gave_up(self, error: VeraxError) -> None:
        """A slot stays empty: no worker can be begun there."""
        with self._lock:
            self._failure = error
            if not any(slot.is_open for slot in self._slots):
                self._batch.answers.put((None, None, error, None))

    def close(self) -> None:
        """End all workers, those that are being begun among them. Who waits for outcomes hears of
        it."""
        with self._lock:
            self.is_closed = True
            self._failure = UsageError("the pool was closed while it ran tasks")
        for _ in self._slots:
            self.queue.put(None)
        with contextlib.ExitStack() as ending:
            for slot in self._slots:
                ending.callback(slot.end, None)
        until = time.monotonic() + LEAVE_SECONDS
        for slot in self._slots:
            slot.thread.join(max(0.0, until - time.monotonic()))
        self._batch.answers.put((None, None, self._failure, None))


def _outcome(item: PoolTask, value: Any, error: VeraxError | None, worker: Worker) -> TaskOutcome:
    loss = ""
    if isinstance(error, WorkerDiedError):
        loss = f"its worker died twice: {error.cause}"
    elif isinstance(error, WorkerLateError):
        loss = error.cause
    return TaskOutcome(
        item.index,
        item.task,
        value,
        None if loss else error,
        loss,
        worker.name,
        worker.host,
    )


class _Slot:
    """A slot for a worker, and its thread."""

    def __init__(self, run: Run) -> None:
        self.run, self.is_open, self.is_used = run, True, False
        self.worker: Worker | None = None
        self.beginning: Worker | None = None
        self.current: PoolTask | None = None
        self.thread = threading.Thread(target=self._work, name="verax-slot", daemon=True)

    def end(self, batch: Batch | None) -> None:
        """Kill the worker if it is at a task of `batch`; for None in any case, and the one that is
        being begun."""
        current, worker, beginning = self.current, self.worker, self.beginning
        if worker is not None and (batch is None or (current and current.batch is batch)):
            worker.kill()
        if beginning is not None and batch is None:
            beginning.kill()

    def _work(self) -> None:
        while not self.run.is_closed:
            if self.worker is None:
                try:
                    self.worker, self.is_used = self._begun(), False
                except VeraxError as error:
                    self.is_open = False
                    self.run.gave_up(error)
                    return
            item = self.run.queue.get()
            if item is None:
                break
            self.current = item
            if not item.batch.is_over:
                self._do(item)
            self.current = None
            if item.fresh and self.worker is not None:  # while others repeat, the next is made
                self.worker.kill()
                self.worker = None
        if self.worker is not None:
            self.worker.kill()

    def _begun(self) -> Worker:
        """A new worker. Where some could be begun before, one that dies at once is tried again more
        often: the host may be gone on which it was to be. Raises what the last one raised."""
        failures = 0
        while True:
            self.beginning = worker = self.run.make()
            try:
                if self.run.is_closed:  # before it was known here, so nobody has ended it
                    raise WorkerDiedError("the pool was closed")
                self.run.begin(worker)
            except Exception as error:  # Ray may raise anything
                failures += 1
                patience = RESTARTS if self.run.has_begun else STARTS
                if failures >= patience or self.run.is_closed:
                    raise _as_verax_error(error) from error
                time.sleep(RESTART_SECONDS * failures)
            else:
                self.run.has_begun = True
                return worker
            finally:
                self.beginning = None

    def _do(self, item: PoolTask) -> None:
        """Have the worker do a task. Afterwards there is none if it died."""
        worker, value, failure = self.worker, None, None
        assert worker is not None
        try:
            if item.fresh and self.is_used:
                worker.kill()
                self.worker = None
                self.worker = worker = self._begun()
                if item.batch.is_over or self.run.is_closed:  # nobody takes its outcome
                    return
            self.is_used = True
            value, received = ask(worker, item.message, item.timeout)
            self.run.note(worker, received)
        except Exception as error:  # whoever waits for the answer has to get one
            failure = _as_verax_error(error)
            if isinstance(failure, WorkerDiedError | WorkerLateError):
                worker.kill()
                self.worker = None
        item.batch.answers.put((item, value, failure, worker))


def _as_verax_error(error: Exception) -> VeraxError:
    """An error of a worker as such: what is no `VeraxError` ended it."""
    if isinstance(error, VeraxError):
        return error
    return WorkerDiedError(f"{type(error).__name__}: {error}".splitlines()[0])
