"""Parts of one piece of work, on threads of their own where the work around them leaves cores idle.

NumPy computes outside of the interpreter's lock, so threads help as soon as arrays are large. Who
divides the cores says how many each of its parts may use (`sharing`); outside of that it is one, so
that nothing grows by itself into more threads than cores. Results never depend on the number.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_threads: ContextVar[int] = ContextVar("threads that this part of the work may use", default=1)


def threads() -> int:
    """How many threads this part of the work may use."""
    return _threads.get()


@contextlib.contextmanager
def sharing(count: int) -> Iterator[None]:
    """Inside, and in what copies this context, work may use `count` threads, at least one."""
    token = _threads.set(max(1, count))
    try:
        yield
    finally:
        _threads.reset(token)


def in_turn(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield function(item) of every item, in their order, several at a time.

    The items are taken from their iterator one by one in this thread, no more at a time than there
    are threads: what an item holds need not exist for all of them. What is raised is raised here,
    at its turn; each call has a copy of this context, on one thread."""
    count = threads()
    if count == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(count) as pool, sharing(1):
        waiting = []
        for item in items:
            waiting.append(pool.submit(contextvars.copy_context().run, function, item))
            if len(waiting) == count:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


class Behind(Generic[T, R]):
    """Work that goes on behind what gives it items: `function` of each, then `then` of the item and
    the result, in order and in the thread that gives. At the end of the context all is done, unless
    it is left by an error."""

    def __init__(self, function: Callable[[T], R], then: Callable[[T, R], None]) -> None:
        self.function, self.then, self.count = function, then, threads()
        self._waiting: deque[tuple[T, Future[R]]] = deque()
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def __enter__(self) -> Behind[T, R]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)

    def add(self, item: T) -> None:
        """Begin with an item, when no more than the number of threads are under way."""
        if self._pool is None:
            self.then(item, self.function(item))
            return
        run = contextvars.copy_context().run
        self._waiting.append((item, self._pool.submit(run, self.function, item)))
        if len(self._waiting) > self.count:
            self._take()

    def finish(self) -> None:
        """Wait for all that is under way."""
        while self._waiting:
            self._take()

    def _take(self) -> None:
        item, future = self._waiting.popleft()
        self.then(item, future.result())
