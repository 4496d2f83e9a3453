"""Whatever a pool has begun ends with it, and nobody waits for what is not coming any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from tests.distributed import tasks

from verax.base.errors import UsageError, VeraxError
from verax.base.optional import installed_version
from verax.distributed import ExclusiveDevice, WorkerDiedError, WorkerPool, open_pool
from verax.distributed.messages import pack
from verax.distributed.worker import Worker


class FakeWorker(Worker):
    """A worker that is begun as `beginning` does it, and answers 7 to everything."""

    def __init__(self, beginning: Callable[[FakeWorker], None]) -> None:
        self._beginning = beginning
        self.is_begun, self.is_ended = threading.Event(), threading.Event()

    def begin(self, seconds: float | None) -> dict[str, Any]:
        self.is_begun.set()
        self._beginning(self)
        return {"host": "here", "process": 1, "version": installed_version("verax")}

    def exchange(self, message: bytes, seconds: float | None) -> bytes:
        return pack({"value": 7, "received": []})

    def kill(self) -> None:
        self.is_ended.set()


class FakePool(WorkerPool):
    """A pool of such workers."""

    def __init__(self, workers: int, beginning: Callable[[FakeWorker], None]) -> None:
        super().__init__(workers)
        self.beginning, self.made = beginning, list[FakeWorker]()

    def _worker(self, device: ExclusiveDevice | None) -> Worker:
        self.made.append(FakeWorker(self.beginning))
        return self.made[-1]

    def __enter__(self) -> FakePool:
        return self


def wait_for_room(worker: FakeWorker) -> None:
    """There is none, as long as nobody ends it."""
    if not worker.is_ended.wait(120):
        raise AssertionError("nobody ended it")
    raise WorkerDiedError("it was ended")


def refuse(worker: FakeWorker) -> None:
    raise UsageError("there is no such target")


def later(function: Callable[[], Any]) -> Future[Any]:
    """What a function gives or raises on a thread of its own."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def test_workers_that_wait_for_room_end_with_their_pool() -> None:
    pool = FakePool(3, wait_for_room)
    answer = later(lambda: list(pool.run("time:sleep", [0.0])))
    while len(pool.made) < 3 or not all(worker.is_begun.is_set() for worker in pool.made):
        time.sleep(0.01)
    pool.close()
    with pytest.raises(VeraxError):
        answer.result(60)
    assert all(worker.is_ended.is_set() for worker in pool.made)
    assert len(pool.made) == 3, "none is begun anew"


def test_workers_that_refuse_to_begin_are_ended() -> None:
    with FakePool(1, refuse) as pool:
        with pytest.raises(UsageError, match="no such target"):
            list(pool.run("time:sleep", [0.0]))
        assert pool.made and all(worker.is_ended.is_set() for worker in pool.made)
        actor = pool.actor("collections:deque")
        with pytest.raises(UsageError, match="no such target"):
            actor.began.result(60)
        actor.stop()
        assert all(worker.is_ended.is_set() for worker in pool.made)


def test_who_waits_for_outcomes_of_a_pool_that_is_closed_hears_of_it() -> None:
    pool = open_pool(1)
    outcomes = pool.run(tasks.nap, [0.01, 60, 61])
    assert next(outcomes).index == 0
    following = later(lambda: next(outcomes))
    pool.close()
    with pytest.raises(UsageError, match="closed while it ran"):
        following.result(60)


def test_a_run_that_was_not_begun_when_its_pool_closed_is_refused() -> None:
    pool = FakePool(1, lambda worker: None)
    outcomes = pool.run("time:sleep", [0.0])
    pool.close()
    with pytest.raises(UsageError, match="the pool is closed"):
        later(lambda: next(outcomes)).result(60)
    assert not pool.made


def test_of_two_runs_that_were_asked_for_one_runs() -> None:
    with FakePool(1, lambda worker: None) as pool:
        first, second = pool.run("time:sleep", [0.1, 0.2]), pool.run("time:sleep", [0.3])
        assert next(first).result() == 7
        with pytest.raises(UsageError, match="the pool runs tasks"):
            next(second)
        assert [outcome.index for outcome in first] == [1]


def test_a_call_of_an_actor_that_was_stopped_fails_at_once() -> None:
    with FakePool(1, lambda worker: None) as pool:
        actor = pool.actor("collections:deque")
        assert actor.call("count", 2).result(60) == 7
        actor.stop()
        with pytest.raises(WorkerDiedError, match="stopped"):
            actor.call("count", 2).result(60)


def test_one_that_cannot_be_ended_keeps_no_other_from_ending() -> None:
    with FakePool(1, lambda worker: None) as pool:
        actors = [pool.actor("collections:deque") for _ in range(3)]
        for actor in actors:
            actor.began.result(60)

        def fail() -> None:
            raise KeyboardInterrupt

        pool.made[1].kill = fail  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            pool.close()
        assert [worker.is_ended.is_set() for worker in pool.made] == [True, False, True]
        pool.made[1].kill = lambda: None  # type: ignore[method-assign]
