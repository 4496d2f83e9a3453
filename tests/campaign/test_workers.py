"""Cases in processes: all results arrive, a dead process costs its case, time is kept."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from verax.campaign.workers import NICENESS, run_cases


def double(n: int) -> int:
    return 2 * n


def die_at_three(n: int) -> int:
    if n == 3:
        os._exit(7)
    return n


def doze(n: int) -> int:
    time.sleep(0.3)
    return n


def test_every_result_arrives() -> None:
    assert sorted(run_cases(range(9), double, double)) == [2 * n for n in range(9)]


def test_a_dead_process_costs_its_own_case_only() -> None:
    found = sorted(run_cases(range(6), die_at_three, lambda n: -n))
    assert found == [-3, 0, 1, 2, 4, 5]


def test_nothing_is_begun_when_the_time_is_over() -> None:
    found = list(run_cases(range(100), doze, doze, processes=1, seconds=0.5))
    assert 1 <= len(found) < 10


def test_what_was_done_stays_when_the_caller_stops() -> None:
    results = run_cases(range(100), doze, doze)
    assert next(results) in range(100)
    began = time.monotonic()
    results.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of that")
def test_processes_end_with_a_parent_that_is_killed() -> None:
    code = "import time; from verax.campaign.workers import run_cases\n"
    code += "if __name__ == '__main__': list(run_cases([60] * 4, time.sleep, time.sleep))"
    parent = subprocess.Popen([sys.executable, "-c", code])
    workers: list[psutil.Process] = []
    end = time.monotonic() + 60
    while len(workers) < 2 and time.monotonic() < end:
        time.sleep(0.05)
        children = psutil.Process(parent.pid).children()
        # the cases are begun once the niceness is set; one child is Python's own
        workers = [p for p in children if p.nice() >= NICENESS + psutil.Process().nice()]
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert len(workers) == 2 and not alive
