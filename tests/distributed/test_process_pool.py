"""The pool of processes: each outcome arrives once, a death costs its task, none waits for ever."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.distributed import tasks

from verax.base.errors import InputError, UsageError
from verax.distributed import (
    RemoteError,
    WorkerDiedError,
    WorkerLateError,
    WorkerPool,
    open_pool,
)
from verax.distributed.serving import NICENESS

DOUBLED = {n: 2 * n for n in range(23)}


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with open_pool(2) as opened:
        yield opened


def test_every_outcome_arrives_once(pool: WorkerPool) -> None:
    outcomes = list(pool.run(tasks.double, range(23)))
    assert sorted(o.index for o in outcomes) == list(range(23))
    assert {o.task: o.result() for o in outcomes} == DOUBLED
    assert len({o.worker for o in outcomes}) <= 2 and {o.host for o in outcomes} == set(pool.hosts)


def test_plain_data_comes_back_as_it_was(pool: WorkerPool) -> None:
    value = {
        "floats": [0.1, -0.0, 5e-324, math.inf, 1e308],
        "bytes": [b"", bytes(range(256)), {"inner": b"\0" * 70_000}],
        "texts": ["é", "$bytes", ""],
        "none": None,
        "large": 2**80,
    }
    (outcome,) = pool.run(tasks.echo, [value])
    assert outcome.result() == value
    assert math.copysign(1, outcome.result()["floats"][1]) == -1
    (outcome,) = pool.run(tasks.echo, [math.nan])
    assert math.isnan(outcome.result())


def test_tasks_are_taken_as_workers_become_free(pool: WorkerPool) -> None:
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    outcomes = pool.run(tasks.double, endless())
    for _ in range(5):
        next(outcomes)
    assert taken <= 5 + 3 * pool.workers
    outcomes.close()  # type: ignore[attr-defined]
    assert {o.task: o.result() for o in pool.run(tasks.double, range(23))} == DOUBLED


def test_what_cannot_be_sent_is_refused_by_name(pool: WorkerPool) -> None:
    with pytest.raises(UsageError, match="a set is no plain data"):
        list(pool.run(tasks.double, [1, {2}]))
    with pytest.raises(UsageError, match="at the top of a module"):
        pool.run(lambda n: n, [1])
    (outcome,) = pool.run(tasks.not_plain, [1])
    with pytest.raises(UsageError, match="a object is no plain data"):
        outcome.result()
    (outcome,) = pool.run("tests.distributed.tasks:nothing", [1])
    assert "has no attribute 'nothing'" in str(outcome.error)


def test_errors_are_outcomes_and_stay_what_they_were(pool: WorkerPool) -> None:
    ours, other = sorted(pool.run(tasks.raise_error, ["ours", "by zero"]), key=lambda o: o.index)
    assert not ours.is_done and type(ours.error) is InputError
    assert (ours.error.cause, ours.error.place) == ("three is no shape", "input x")
    with pytest.raises(RemoteError, match="ZeroDivisionError: by zero") as raised:
        other.result()
    assert "in raise_error" in raised.value.trace


def test_a_death_costs_its_own_task_only(pool: WorkerPool, tmp_path: Path) -> None:
    given = [{"file": str(tmp_path / str(n)), "deaths": d} for n, d in enumerate([0, 1, 2, 0, 0])]
    outcomes = {o.index: o for o in pool.run(tasks.kill_worker, given)}
    assert sorted(outcomes) == [0, 1, 2, 3, 4]
    assert [n for n, o in outcomes.items() if not o.is_done] == [2]
    assert outcomes[2].loss == "its worker died twice: signal SIGKILL: it said nothing"
    assert [(tmp_path / str(n)).stat().st_size for n in range(5)] == [1, 2, 2, 1, 1]
    with pytest.raises(WorkerDiedError, match="died twice"):
        outcomes[2].result()


def test_a_repeat_is_alone(pool: WorkerPool, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    given = [{"folder": str(folder), "name": n, "dies": n == 1} for n in range(8)]
    company = {o.index: o.result() for o in pool.run(tasks.count_company, given)}
    assert company.pop(1) == 0 and max(company.values()) == 1
    assert sorted(company) == [0, 2, 3, 4, 5, 6, 7]


def test_what_takes_too_long_is_lost_and_nothing_else(pool: WorkerPool) -> None:
    began = time.monotonic()
    outcomes = {o.index: o for o in pool.run(tasks.nap, [0.01, 60, 0.02, 0.03], timeout=1.0)}
    assert [n for n, o in outcomes.items() if o.loss] == [1]
    assert outcomes[1].loss == "no answer within 1 s"
    assert time.monotonic() - began < 30


def test_nothing_is_taken_when_the_time_is_over(pool: WorkerPool) -> None:
    outcomes = list(pool.run(tasks.nap, [0.2] * 100, seconds=0.5))
    assert 1 <= len(outcomes) < 30 and all(o.is_done for o in outcomes)
    assert sorted(o.index for o in outcomes) == list(range(len(outcomes)))


def test_who_stops_listening_waits_for_nobody(pool: WorkerPool) -> None:
    outcomes = pool.run(tasks.nap, [0.01, 60, 60])
    assert next(outcomes).index == 0
    began = time.monotonic()
    outcomes.close()  # type: ignore[attr-defined]
    assert [o.result() for o in pool.run(tasks.double, [4])] == [8]
    assert time.monotonic() - began < 30


def test_one_run_at_a_time(pool: WorkerPool) -> None:
    outcomes = pool.run(tasks.double, [1, 2])
    next(outcomes)
    with pytest.raises(UsageError, match="runs tasks"):
        next(pool.run(tasks.double, [1]))
    assert len(list(outcomes)) == 1


def test_a_pool_whose_workers_cannot_begin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with open_pool(2) as broken, pytest.raises(WorkerDiedError):
        list(broken.run(tasks.double, [1]))


def test_zero_and_closed_pools() -> None:
    with pytest.raises(UsageError, match="-1 workers"):
        open_pool(-1)
    with open_pool(1) as closed:
        pass
    with pytest.raises(UsageError, match="closed"):
        closed.run(tasks.double, [1])


def test_an_actor_keeps_its_state_and_says_what_fails(pool: WorkerPool) -> None:
    actor = pool.actor(tasks.Adder, {"total": 5})
    assert actor.began.result(60) == actor.worker and actor.is_alive
    calls = [actor.call("add", n) for n in (1, 10, 100)]
    assert [c.result(60) for c in calls] == [6, 16, 116]
    with pytest.raises(RemoteError, match="KeyError: 'a'"):
        actor.call("fail", "a").result(60)
    assert actor.call("add", 1000).result(60) == 1116
    actor.stop()
    assert not actor.is_alive
    refused = pool.actor(tasks.Adder, {"refuse": True})
    with pytest.raises(InputError, match="no such sum"):
        refused.began.result(60)


def test_an_actor_that_hangs_or_dies_is_waited_for_no_longer(pool: WorkerPool) -> None:
    hanging = pool.actor(tasks.Adder, {"total": 1})
    calls = [hanging.call("sleep", 60, timeout=0.3), hanging.call("add", 1)]
    for call in calls:
        with pytest.raises(WorkerLateError, match=r"no answer within 0.3 s"):
            call.result(60)
    assert not hanging.is_alive
    dying = pool.actor(tasks.Adder, {"total": 1})
    calls = [dying.call("die"), dying.call("add", 1)]
    for call in calls:
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            call.result(60)


def test_contents_are_used_where_they_lie(pool: WorkerPool, tmp_path: Path) -> None:
    (tmp_path / "net" / "inner").mkdir(parents=True)
    (tmp_path / "net" / "a.txt").write_text("first")
    (tmp_path / "net" / "inner" / "b.txt").write_text("second")
    file, folder = pool.put(tmp_path / "net" / "a.txt"), pool.put(tmp_path / "net")
    raw = pool.put(b"third", name="c.onnx")
    outcomes = sorted(pool.run(tasks.read, [file, folder, raw]), key=lambda o: o.index)
    assert [o.result()[1:] for o in outcomes] == [
        ["a.txt", "first"],
        ["net", "first", "second"],
        ["c.onnx", "third"],
    ]
    assert not pool.transfers
    assert file.digest != folder.digest
    (tmp_path / "net" / "a.txt").write_text("another")
    (outcome,) = pool.run(tasks.read, [file])
    with pytest.raises(InputError, match="changed or removed"):
        outcome.result()
    with pytest.raises(UsageError, match="no such file"):
        pool.put(tmp_path / "nothing")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of that")
def test_processes_end_with_a_parent_that_is_killed() -> None:
    code = "from verax.distributed import open_pool\nlist(open_pool(2).run('time:sleep', [60] * 4))"
    parent = subprocess.Popen([sys.executable, "-c", code])
    workers: list[psutil.Process] = []
    end = time.monotonic() + 60
    while len(workers) < 2 and time.monotonic() < end:
        time.sleep(0.05)
        children = psutil.Process(parent.pid).children(recursive=True)
        workers = [p for p in children if p.nice() >= NICENESS + psutil.Process().nice()]
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert len(workers) == 2 and not alive


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal")
def test_an_interruption_ends_everything_and_loses_nothing_that_came(tmp_path: Path) -> None:
    written = tmp_path / "outcomes"
    code = (
        "import sys\n"
        "from verax.distributed import open_pool\n"
        "with open_pool(2) as pool, open(sys.argv[1], 'w', buffering=1) as stream:\n"
        "    for outcome in pool.run('time:sleep', [0.01, 0.02, 0.03, 60, 60]):\n"
        "        print(outcome.index, file=stream)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(written)], stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (
        written.exists() and written.read_text().count("\n") == 3
    ):
        time.sleep(0.05)
    children: list[Any] = psutil.Process(parent.pid).children(recursive=True)
    parent.send_signal(2)
    _, errors = parent.communicate(timeout=60)
    assert b"KeyboardInterrupt" in errors and len(children) >= 2
    assert sorted(written.read_text().split()) == ["0", "1", "2"]
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
