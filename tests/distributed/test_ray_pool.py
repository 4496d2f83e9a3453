"""The pool on Ray: a cluster of simulated hosts, of which one is killed and one is slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distributed import tasks
from tests.distributed.simulated_hosts import Hosts, cluster, place
from tests.evaluation.conftest import as_folder
from tests.evaluation.test_shards import as_parquet

import verax
from verax.base.errors import InputError, UsageError
from verax.distributed import (
    ExclusiveDevice,
    RemoteError,
    WorkerDiedError,
    WorkerLateError,
    WorkerPool,
    open_pool,
)

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def tasks_run_on_all_hosts_and_arrive_once(pool: WorkerPool, hosts: Hosts, tmp_path: Path) -> None:
    outcomes = list(pool.run(tasks.nap, [0.05 + n / 1000 for n in range(24)]))
    assert sorted(o.index for o in outcomes) == list(range(24))
    assert all(o.result() == [o.task, o.host] for o in outcomes)
    assert {place(o.host) for o in outcomes} == {"a", "b"}


def contents_reach_each_host_once(pool: WorkerPool, hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "a.txt").write_text("first")
    (tmp_path / "net" / "b.txt").write_text("second")
    references = [pool.put(tmp_path / "net"), pool.put(b"third", name="c.onnx")]
    given = [references[n % 2] for n in range(24)]
    outcomes = list(pool.run(tasks.read, given))
    expected = [["first", "second"], ["third"]]
    assert all(o.result()[2:] == expected[o.index % 2] for o in outcomes)
    assert all(o.result()[1] == "c.onnx" for o in outcomes if o.index % 2)
    seen = {o.host for o in outcomes}
    assert set(pool.transfers.values()) == {1}
    assert len(pool.transfers) == 3 * len(seen)
    again = list(pool.run(tasks.read, given))
    assert len(again) == 24 and set(pool.transfers.values()) == {1}
    pool.forget(references[1])
    (outcome,) = pool.run(tasks.read, [references[1]])
    assert outcome.result()[2:] == ["third"], "hosts keep what they have"


def errors_deaths_and_late_tasks(pool: WorkerPool, hosts: Hosts, tmp_path: Path) -> None:
    ours, other = sorted(pool.run(tasks.raise_error, ["ours", "b"]), key=lambda o: o.index)
    assert type(ours.error) is InputError and type(other.error) is RemoteError
    given = [{"file": str(tmp_path / str(n)), "deaths": d} for n, d in enumerate([0, 1, 2])]
    outcomes = {o.index: o for o in pool.run(tasks.kill_worker, given)}
    assert sorted(outcomes) == [0, 1, 2]
    assert [n for n, o in outcomes.items() if o.loss] == [2]
    assert [(tmp_path / str(n)).stat().st_size for n in range(3)] == [1, 2, 2]
    late = {o.index: o for o in pool.run(tasks.nap, [0.01, 60, 0.02], timeout=1.0)}
    assert {n: o.loss for n, o in late.items()} == {0: "", 1: "no answer within 1 s", 2: ""}


def actors_and_devices(pool: WorkerPool, hosts: Hosts, tmp_path: Path) -> None:
    device = ExclusiveDevice("first", "avx2", 0, host="a")
    actor = pool.actor(tasks.Adder, {"total": 3}, device=device, timeout=60)
    actor.began.result(60)
    assert place(actor.host) == "a" and actor.call("add", 4).result(60) == 7
    assert actor.call("surroundings").result(60)["target"] == "avx2"
    call = actor.call("sleep", 60, timeout=0.5)
    with pytest.raises(WorkerLateError):
        call.result(60)
    dying = pool.actor(tasks.Adder, {"total": 3}, device=ExclusiveDevice("b"), timeout=60)
    with pytest.raises(WorkerDiedError):
        dying.call("die").result(60)
    assert not dying.is_alive
    nowhere = pool.actor(
        tasks.Adder, {"total": 3}, device=ExclusiveDevice("c", host="z"), timeout=60
    )
    with pytest.raises(UsageError, match="no host 'z'"):
        nowhere.began.result(60)


def evaluating_gives_the_record_of_one_process(hosts: Hosts, tmp_path: Path) -> None:
    """Of a folder of images, an .npz file and Parquet files."""
    random = np.random.default_rng(405)
    images = random.integers(0, 255, (150, 24, 20), np.uint8)
    labels = random.integers(0, 10, 150)
    options: dict[str, Any] = {"against": "verax:O0", "threads": 1, "opt_level": 1, "batch": 7}
    np.savez(tmp_path / "set.npz", images=images, labels=labels)
    folder = as_folder(tmp_path / "folder", images, labels)
    parquet = as_parquet(tmp_path / "parquet", images, labels)
    for data in (folder, tmp_path / "set.npz", parquet):
        alone = verax.evaluate(DIGITS, data, **options)
        shared = verax.evaluate(DIGITS, data, **options, workers=2, ray=hosts.address)
        assert shared == alone and shared.samples == 150
    assert {p.name for p in (hosts.folder).iterdir()} <= {"a", "b"}


def no_task_is_lost_or_counted_twice_when_a_host_is_killed(
    pool: WorkerPool, hosts: Hosts, tmp_path: Path
) -> None:
    """Host b vanishes while its workers are at tasks, c joins, and a is slow."""
    hosts.add("c")
    seen: set[str] = set()
    outcomes, taken = [], []
    killing = threading.Thread(target=hosts.kill, args=("b",))

    def naps() -> Iterator[float]:
        """So many that c has begun workers, however slow this machine is."""
        while len(taken) < 60 or ("c" not in seen and len(taken) < 4000):
            taken.append(0.1)
            yield 0.1

    for outcome in pool.run(tasks.nap_longer_on_a, naps()):
        outcomes.append(outcome)
        seen.add(place(outcome.host))
        if "b" in seen and not killing.ident:
            killing.start()
    killing.join()
    assert sorted(o.index for o in outcomes) == list(range(len(taken))), "each once"
    assert all(o.is_done for o in outcomes), [o.loss for o in outcomes if not o.is_done]
    assert seen == {"a", "b", "c"}


def test_a_cluster_of_hosts(tmp_path: Path) -> None:
    """One test, as beginning a cluster takes seconds."""
    with cluster(tmp_path / "hosts", {"a": 2, "b": 2}) as hosts:
        (tmp_path / "sets").mkdir()
        evaluating_gives_the_record_of_one_process(hosts, tmp_path / "sets")
        with open_pool(4, hosts.address) as pool:
            for number, check in enumerate(CHECKS):
                folder = tmp_path / str(number)
                folder.mkdir()
                check(pool, hosts, folder)


CHECKS = (
    tasks_run_on_all_hosts_and_arrive_once,
    contents_reach_each_host_once,
    errors_deaths_and_late_tasks,
    actors_and_devices,
    no_task_is_lost_or_counted_twice_when_a_host_is_killed,
)
