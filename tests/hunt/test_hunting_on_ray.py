"""A hunt on a simulated Ray cluster, one of whose hosts vanishes: its store is that of one host."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil
import pytest
from tests.distributed.simulated_hosts import Hosts, cluster
from tests.hunt.test_hunting_on_hosts import opened, rows

from verax.distributed import open_pool
from verax.hunt.host_session import HostSession
from verax.hunt.hosts import HuntOnHosts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Ray's cluster utilities need Unix")
CASES = 6


def processes(hosts: Hosts, name: str) -> list[psutil.Process]:
    """What runs on a simulated host."""
    (raylet,) = hosts.nodes[name].all_processes["raylet"]
    return psutil.Process(raylet.process.pid).children(recursive=True)


def is_judging(process: psutil.Process) -> bool:
    try:
        return "verax.hunt.worker" in process.cmdline()[1:3]
    except psutil.Error:
        return False


def test_a_host_that_vanishes_costs_a_hunt_no_case_and_no_finding(tmp_path: Path) -> None:
    task, alone, settings = opened(tmp_path / "alone", "alpha")
    session = HostSession(task, alone, settings, 4096 << 20)
    assert not session.run(1, None, CASES, None)
    session.stop()
    task, store, settings = opened(tmp_path / "shared", "alpha")
    left: list[psutil.Process] = []

    def kill(hosts: Hosts) -> None:
        end = time.monotonic() + 300
        while time.monotonic() < end and not left:
            time.sleep(0.01)
            own = processes(hosts, "b")
            if any(is_judging(process) for process in own):
                left.extend(own)
                hosts.kill("b")

    with cluster(tmp_path / "hosts", {"a": 1, "b": 1}) as hosts:
        killing = threading.Thread(target=kill, args=(hosts,))
        killing.start()
        with open_pool(2, hosts.address) as pool:
            hunting = HuntOnHosts(pool, task, store, settings, 4096)
            assert not hunting.run(None, CASES, None)
            assert hunting.done == CASES and not hunting.claimed
        killing.join()
        _, alive = psutil.wait_procs(left, timeout=60)
        assert left and not alive, "what ran on the host ends with it"
    assert rows(store) == rows(alone) and len(rows(alone)) == CASES
    found, same = ({f.key: f.count for f in s.findings()} for s in (alone, store))
    assert found and found == same
    assert all((Path(f.folder) / "finding.md").is_file() for f in store.findings())
