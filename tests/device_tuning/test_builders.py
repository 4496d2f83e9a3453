"""Builders share what devices ask for: all of them build, and none what another has built."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from benchmarks import tuning_scaling

from verax.base.optional import installed_version
from verax.compiler.kernels.target import Target
from verax.compiler.tune.history import History
from verax.compiler.tune.search import search_on
from verax.device_tuning.builders import Builders
from verax.device_tuning.remote import RemoteNetwork
from verax.distributed import ExclusiveDevice, WorkerPool
from verax.distributed.messages import pack, unpack
from verax.distributed.serving import resolved
from verax.distributed.worker import Worker

pytestmark = pytest.mark.skipif(
    not Target.avx2().runs_here(), reason="the simulated device is of AVX2"
)
COUNT, TRIALS = 8, 40


class ThreadWorker(Worker):
    """A worker that is a thread of this process: what it is asked is done where it is asked."""

    def __init__(self, number: int) -> None:
        self._number, self._object = number, None

    def begin(self, seconds: float | None) -> dict[str, Any]:
        return {"host": "here", "process": self._number, "version": installed_version("verax")}

    def exchange(self, message: bytes, seconds: float | None) -> bytes:
        request = unpack(message)
        if "actor" in request:
            self._object = resolved(request["actor"])(self.name)
            return pack({"value": None, "received": []})
        value = getattr(self._object, request["method"])(request["value"])
        return pack({"value": value, "received": []})

    def kill(self) -> None:
        pass


class ThreadPool(WorkerPool):
    """A pool of such workers."""

    begun = 0

    def _worker(self, device: ExclusiveDevice | None) -> Worker:
        self.begun += 1
        return ThreadWorker(self.begun)


built: list[tuple[str, str]] = []
"""Which builder made what."""
everybody = threading.Event()


class WaitingBuilder(tuning_scaling.SleepingBuilder):
    """Its first object is not ready before every builder has begun one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        built.append((self.name, json.dumps(request, sort_keys=True)))
        if len({name for name, _ in built}) == COUNT:
            everybody.set()
        if not everybody.wait(60):
            everybody.set()  # nobody else is coming
        return {"kernel": {}, "code": b"", "version": "none"}


@pytest.fixture
def builders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builders]:
    monkeypatch.setattr(tuning_scaling, "RACE_SECONDS", 0.0)
    built.clear()
    everybody.clear()
    with ThreadPool(1) as pool:
        yield Builders(pool, COUNT, WaitingBuilder)


def test_eight_builders_all_build_and_nothing_is_built_twice(
    builders: Builders, tmp_path: Path
) -> None:
    """Two devices of a target search the same kernel: they share its objects, too."""
    work = tuning_scaling.workload()

    def searched(label: str) -> int:
        actor = builders._pool.actor(tuning_scaling.SleepingDevice)
        network = RemoteNetwork(actor, builders, History(tmp_path / "h"), label, 60.0, "net")
        racer = network.racer(work, lambda: False, None)  # type: ignore[arg-type]
        return len(search_on(work.spec, network.target, racer, trials=TRIALS).trials)

    with ThreadPoolExecutor(2) as devices:
        assert list(devices.map(searched, ("first", "second"))) == [TRIALS, TRIALS]
    assert len({name for name, _ in built}) == COUNT
    objects = Counter(request for _, request in built)
    assert set(objects.values()) == {1}
    assert len(objects) >= TRIALS


def test_nobody_waits_for_builders_of_a_pool_that_was_closed(builders: Builders) -> None:
    work = tuning_scaling.workload()
    builders._pool.close()
    assert builders.object(work.spec, work.schedule, "avx2").result(60) is None
    assert builders.written(work, work.schedule, "avx2") == ""
