"""Builders: workers that make candidates' objects for any target, and say what a kernel writes."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from verax.base.errors import VeraxError
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.kernel_objects import kernel_object
from verax.compiler.tune.host import Host, code_digest
from verax.compiler.tune.kernel_bench import KernelBench, Workload
from verax.compiler.tune.plain import of_plain, to_plain, workload_of_plain, workload_to_plain
from verax.compiler.tune.racing import digest_of
from verax.distributed import Actor, WorkerDiedError, WorkerLateError, WorkerPool

KEPT = 256
"""Objects that are kept after they were taken: another device of the target may want them."""
BUILD_SECONDS = 300.0
TRIES = 2
"""Builders that a candidate may end before it is left to the device."""


class CandidateBuilder:
    """What runs in a builder's worker."""

    def __init__(self, _: Any = None) -> None:
        pass

    def build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The object of "spec" with "schedule" for "target", and the version that made it."""
        spec, schedule = of_plain(request["spec"]), of_plain(request["schedule"])
        product = kernel_object(spec, schedule, Target.named(request["target"]))
        return {**product, "version": code_digest()}

    def written(self, request: Mapping[str, Any]) -> str:
        """SHA-256 of what the kernel of "workload" writes here with "schedule"; "" where this
        machine does not run "target"."""
        target = Target.named(request["target"])
        if not target.runs_here():
            return ""
        workload = workload_of_plain(request["workload"])
        return written_here(workload, of_plain(request["schedule"]), target)


def written_here(workload: Workload, schedule: Schedule, target: Target) -> str:
    """SHA-256 of what a kernel writes on this machine, on the numbers that every device draws."""
    bench = KernelBench(workload, target, Host.here(target, 1))
    try:
        return digest_of(bench.result(schedule))
    finally:
        bench.close()


class Builders:
    """Some builders of a pool; with none of them, devices make candidates themselves.

    actors: their workers; built: objects that were made. Methods may be called by several threads.
    """

    def __init__(self, pool: WorkerPool, count: int, kind: type | str = CandidateBuilder) -> None:
        self._pool, self._kind, self.built = pool, kind, 0
        self._lock = threading.Lock()
        self.actors = [self._begun() for _ in range(count)]
        self._waiting: dict[int, int] = dict.fromkeys(range(count), 0)
        self._objects: OrderedDict[tuple[str, Schedule, str], Future[Any]] = OrderedDict()

    @property
    def count(self) -> int:
        return len(self.actors)

    def object(self, spec: Spec, schedule: Schedule, target: str) -> Future[Any]:
        """A future of `CandidateBuilder.build`'s answer, or of None where no builder made it. Asked
        again, it is the same."""
        key = digest(spec), schedule, target
        with self._lock:
            future = self._objects.get(key)
            if future is not None:
                self._objects.move_to_end(key)
                return future
            future = self._objects[key] = Future()
            while len(self._objects) > KEPT:
                self._objects.popitem(last=False)
        request = {"spec": to_plain(spec), "schedule": to_plain(schedule), "target": target}
        self._ask("build", request, future, TRIES)
        return future

    def written(self, workload: Workload, schedule: Schedule, target: str) -> str:
        """`CandidateBuilder.written`, "" where nobody can say."""
        future: Future[Any] = Future()
        plain = workload_to_plain(workload)
        request = {"workload": plain, "schedule": to_plain(schedule), "target": target}
        self._ask("written", request, future, TRIES)
        return future.result() or ""

    def _begun(self) -> Actor:
        return self._pool.actor(self._kind, None, timeout=BUILD_SECONDS)

    def _ask(self, method: str, request: Any, future: Future[Any], tries: int) -> None:
        """Have the builder with the least to do answer; None when none of `tries` did."""
        if not tries or not self.actors:
            future.set_result(None)
            return
        try:
            with self._lock:
                index = min(self._waiting, key=self._waiting.__getitem__)
                if not self.actors[index].is_alive:
                    self.actors[index] = self._begun()
                self._waiting[index] += 1
                answer = self.actors[index].call(method, request)
        except VeraxError:  # the pool was closed meanwhile
            future.set_result(None)
            return

        def answered(done: Future[Any]) -> None:
            with self._lock:
                self._waiting[index] -= 1
                self.built += method == "build" and done.exception() is None
            error = done.exception()
            if isinstance(error, WorkerDiedError | WorkerLateError):
                # Not on the actor's own thread, which ends it.
                again = threading.Thread(
                    target=self._ask, args=(method, request, future, tries - 1), daemon=True
                )
                again.start()
            elif isinstance(error, VeraxError):
                future.set_result(None)  # the device says why when it makes it itself
            elif error is not None:
                future.set_exception(error)
            else:
                with contextlib.suppress(Exception):
                    future.set_result(done.result())

        answer.add_done_callback(answered)
