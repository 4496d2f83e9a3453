"""The pool: tasks go to workers as these become free, outcomes come back as they are ready.

Each worker has a thread of this process, which gives it one request at a time and waits for the
answer, so that its death and its silence are known for the request that it was at. What differs
between processes and Ray is in `worker.Worker`: how one is begun, asked and ended.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from os import PathLike
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from verax.base.errors import UsageError, VeraxError
from verax.base.optional import installed_version
from verax.distributed.contents import Reference, reference_to_bytes, reference_to_file
from verax.distributed.device import ExclusiveDevice
from verax.distributed.messages import pack
from verax.distributed.outcome import TaskOutcome, WorkerDiedError, WorkerLateError
from verax.distributed.running import Run
from verax.distributed.serving import reference_name
from verax.distributed.worker import Worker, ask

CALL_SECONDS = 600.0
"""What one call of an actor may take when nobody says."""
LEAVE_SECONDS = 5.0
"""What the threads of workers get to end."""


def require_count(workers: int) -> None:
    """Raise `UsageError` for a number of workers that do nothing."""
    if workers < 1:
        raise UsageError(f"{workers} workers do nothing", next_step="give --workers 1 or more")


class WorkerPool(ABC):
    """Workers for tasks, and actors. It is a context, at whose end all of them are ended.

    workers: how many tasks run at a time. transfers: how often contents were brought to a host, by
    (host, SHA-256); no number is above 1 unless somebody removed them there.
    """

    def __init__(self, workers: int) -> None:
        require_count(workers)
        self.workers = workers
        self.transfers: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._actors: list[Actor] = []
        self._run: Run | None = None
        self._is_closed = False

    @abstractmethod
    def _worker(self, device: ExclusiveDevice | None) -> Worker:
        """A worker that was not begun yet, with a device for itself."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that there are now."""
        return ()

    def run(
        self,
        function: Callable[[Any], Any] | str,
        tasks: Iterable[Any],
        *,
        seconds: float | None = None,
        timeout: float | None = None,
    ) -> Iterator[TaskOutcome]:
        """Outcomes of `function(task)` as they are ready, in any order, exactly one for each task
        that was taken from `tasks`.

        function: a function of one argument, of a module that workers can import, or
        "package.module:function". tasks: plain data (see `messages.PLAIN`), taken from the iterable
        by the caller's thread, a few more than there are workers. seconds: no task is taken after
        so much time; those that were are finished. timeout: seconds that one task may take; what
        takes longer is lost, and its worker is ended. A task whose worker dies is run again once,
        at the end, alone (where its host is gone, at once); when that dies, too, it is lost.
        Exceptions of the function are outcomes; see `TaskOutcome`. One run of a pool at a time.

        Ending the iteration early, or Ctrl-C, ends the workers that are at its tasks; what was
        yielded stays with the caller, and the pool can be used again. Raises `UsageError` for
        tasks that are no plain data, and `WorkerDiedError` when no worker can be begun.
        """
        if self._is_closed or (self._run is not None and self._run.is_running):
            raise UsageError("the pool is closed" if self._is_closed else "the pool runs tasks")
        if self._run is None:
            self._run = Run(
                self.workers,
                lambda: self._worker(None),
                lambda worker: self._begun(worker, None),
                self._note,
            )
        return self._run.outcomes(reference_name(function), tasks, seconds, timeout)

    def actor(
        self,
        kind: type | str,
        settings: Any = None,
        *,
        device: ExclusiveDevice | None = None,
        timeout: float = CALL_SECONDS,
    ) -> Actor:
        """An object `kind(settings)` in a worker of its own, beside those of `run`.

        kind: a class of a module that workers can import, or "package.module:Class"; its methods
        take one argument. settings: plain data. device: what it has for itself: it is pinned to
        the device's cores, and VERAX_TARGET is the device's target. timeout: seconds that one call
        may take, and beginning. It returns at once; `Actor.began` says what came of it.
        """
        if self._is_closed:
            raise UsageError("the pool is closed")
        name = reference_name(kind)
        worker = self._worker(device)
        actor = Actor(lambda: self._begun(worker, timeout), worker, name, settings, device, timeout)
        actor._note = self._note
        self._actors.append(actor)
        return actor

    def put(self, content: str | PathLike[str] | bytes, name: str = "content") -> Reference:
        """A reference to a file, to all files of a folder, or to bytes, for tasks to carry; `fetch`
        makes it a path in a worker. Each host receives it once.

        name: of the file that bytes become. Raises `UsageError`, `InputError`.
        """
        if isinstance(content, bytes):
            reference = reference_to_bytes(content, name)
        else:
            reference = reference_to_file(content)
        self._offer(reference, content if isinstance(content, bytes) else None)
        return reference

    def _offer(self, reference: Reference, content: bytes | None) -> None:
        """Have contents ready for hosts that lack them."""
        return  # where there is one host, there is none

    def forget(self, reference: Reference) -> None:
        """Contents that no later task refers to need not be ready any more, once for each `put`."""
        return

    def _begun(self, worker: Worker, seconds: float | None) -> Worker:
        try:
            hello = worker.begin(seconds)
        except BaseException:  # what refused to begin must not stay
            worker.kill()
            raise
        worker.host = str(hello["host"])
        worker.name = f"{worker.host}:{hello['process']}"
        if hello["version"] != (own := installed_version("verax")):
            worker.kill()
            raise UsageError(
                f"the worker has Verax {hello['version']}, this is {own}",
                place=worker.name,
                next_step="install the same version on all hosts",
            )
        return worker

    def _note(self, worker: Worker, received: list[str]) -> None:
        with self._lock:
            self.transfers.update((worker.host, digest) for digest in received)

    def close(self) -> None:
        """End all workers and actors."""
        self._is_closed = True
        with contextlib.ExitStack() as ending:  # each is ended, whatever ending another raises
            if self._run is not None:
                ending.callback(self._run.close)
            for actor in self._actors:
                ending.callback(actor.end)
        until = time.monotonic() + LEAVE_SECONDS
        for actor in self._actors:
            actor.join(until - time.monotonic())

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Actor:
    """An object in a worker of its own. Calls are made one at a time, in their order.

    began: a future of the worker's name once the object exists; it fails with what failed
    (`DeviceError` when others hold the device). device: what it has for itself.
    """

    def __init__(
        self,
        begin: Callable[[], Worker],
        worker: Worker,
        kind: str,
        settings: Any,
        device: ExclusiveDevice | None,
        timeout: float,
    ) -> None:
        self.device, self.began = device, Future[str]()
        self._begin, self._worker, self._timeout = begin, worker, timeout
        self._first = {"actor": kind, "value": settings}
        pack(self._first)
        self._note: Callable[[Worker, list[str]], None] = lambda worker, received: None
        self._requests: SimpleQueue[tuple[dict[str, Any], float, Future[Any]] | None]
        self._requests = SimpleQueue()
        self._failure: VeraxError | None = None
        self._is_over, self._lock = False, threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="verax-actor", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False once it is known that it died, hung, was stopped or could not be begun."""
        return self._failure is None

    @property
    def worker(self) -> str:
        """Its worker's name, "" until it has begun."""
        return self._worker.name

    @property
    def host(self) -> str:
        """Its host, "" until it has begun."""
        return self._worker.host

    def call(self, method: str, value: Any = None, *, timeout: float | None = None) -> Future[Any]:
        """A future of `object.method(value)`; for `concurrent.futures.wait`, too.

        timeout: seconds that the call may take, from its turn on. It fails with what the method
        raises (see `TaskOutcome.error`), with `WorkerDiedError` when the worker is gone, and with
        `WorkerLateError` when it takes longer: then the worker is ended, too, and every call behind
        it fails at once. Raises `UsageError` for a value that is no plain data.
        """
        request = {"method": method, "value": value}
        pack(request)
        future: Future[Any] = Future()
        with self._lock:
            if not self._is_over:
                seconds = self._timeout if timeout is None else timeout
                self._requests.put((request, seconds, future))
                return future
        future.set_exception(self._failure or WorkerDiedError("the actor was stopped"))
        return future

    def stop(self) -> None:
        """End it at once, and with it what it holds; calls that wait, and later ones, fail."""
        self.end()
        self.join(LEAVE_SECONDS)

    def end(self) -> None:
        """As `stop`, without waiting for its thread."""
        if self._failure is None:
            self._failure = WorkerDiedError("the actor was stopped", place=self.worker)
        self._requests.put(None)
        self._worker.kill()

    def join(self, seconds: float) -> None:
        """Wait so long for the thread of an actor that was ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join(max(0.0, seconds))

    def _serve(self) -> None:
        future: Future[Any] = self.began
        try:
            self._begin()
            if self._failure is None:
                _, received = ask(self._worker, self._first, self._timeout)
                self._note(self._worker, received)
                future.set_result(self._worker.name)
        except VeraxError as error:
            self._failure = self._failure or error
        except Exception as error:  # whoever waits has to hear of it
            cause = f"the actor could not be begun ({type(error).__name__}: {error})"
            self._failure = self._failure or WorkerDiedError(cause)
        if not future.done():
            future.set_exception(self._failure or WorkerDiedError("the actor did not begin"))
            self._worker.kill()
        while (item := self._requests.get()) is not None:
            self._answer(*item)
        with self._lock:
            self._is_over = True  # what is asked from now on is answered by `call`
        with contextlib.suppress(Empty):
            while True:
                if (item := self._requests.get_nowait()) is not None:
                    self._answer(*item)

    def _answer(self, request: dict[str, Any], seconds: float, future: Future[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if self._failure is not None:
            future.set_exception(self._failure)
            return
        try:
            value, received = ask(self._worker, request, seconds)
        except (WorkerDiedError, WorkerLateError) as error:
            self._failure = self._failure or error
            future.set_exception(self._failure)
            self._worker.kill()
        except Exception as error:  # whoever waits for the answer has to get one
            future.set_exception(error)
        else:
            self._note(self._worker, received)
            future.set_result(value)
