"""Devices on a simulated Ray cluster: a host vanishes, is slow, of another target, or lies.

No record is lost, and none is another's; whoever is killed, nothing is measured twice.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Cli, cli  # noqa: F401
from tests.device_tuning.misbehaving import MisbehavingDevice
from tests.device_tuning.test_devices import lines, measured
from tests.distributed.simulated_hosts import Hosts, cluster, place
from verax.cli.work import tune
from verax.compiler.kernels.target import Target
from verax.compiler.tune.history import History
from verax.device_tuning import quarantine, tune_devices

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Ray's cluster utilities need Unix"),
    pytest.mark.skipif(not Target.avx2().runs_here(), reason="the devices are of AVX2"),
]
TRIALS = 6
PATIENCE = 400.0
"""Seconds that one answer may take: three devices share two cores here."""
HOSTS = {"maker": 1, "a": 0, "b": 0, "c": 0}
"""Cores of the simulated hosts: builders have a host of their own, devices need no cores."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with cluster(tmp_path_factory.mktemp("cluster"), HOSTS) as opened:
        yield opened


@pytest.fixture
def run(
    cli: Cli,  # noqa: F811
    tiny: Path,
    hosts: Hosts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """`verax tune --ray` on devices: its exit code, what came of each, and what it said."""
    measure = functools.partial(tune_devices, measuring=MisbehavingDevice, patience=PATIENCE)
    monkeypatch.setattr(tune, "tune_devices", measure)

    def tuned(*devices: str, resume: bool = False) -> tuple[int, dict[str, Any], str]:
        written = tmp_path / "tuned.json"
        words = [word for device in devices for word in ("--device", device)]
        done = cli(
            *("tune", tiny, "--shape", "n=3", "--threads", 1, "--trials", TRIALS, "-O", 1),
            *("--time-budget", 900, "--history", tmp_path / "history", "--json", written),
            *("--ray", hosts.address, "--workers", 1),
            *words,
            *(["--resume"] if resume else []),
        )
        results = json.loads(written.read_text())["devices"]
        return done.code, {result["label"]: result for result in results}, done.out + done.err

    return tuned


def when(happened: Callable[[], bool], action: Callable[[], None]) -> threading.Thread:
    """A thread that does something once something else has happened."""

    def watch() -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if happened():
                action()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def assert_attributed(history: Path, devices: dict[str, tuple[str, str]]) -> None:
    """Each line is of a device, its host and its target, and each candidate is there once.

    devices: host and target by label.
    """
    assert History(history).read().unreadable == 0
    assert set(measured(history).values()) == {1}
    kinds = ("measured", "workload", "chosen")
    for line in (line for kind in kinds for line in lines(history, kind)):
        host, target = devices[line["device"]]
        assert place(line["machine"]) == host
        assert line["host"]["target"].split()[0] == target


def counts(history: Path) -> Counter[str]:
    """How many candidates each device has measured."""
    return Counter(device for device, _, _ in measured(history))


def test_hosts_that_vanish_are_slow_or_lie_cost_no_record(
    run: Callable[..., tuple[int, dict[str, Any], str]], hosts: Hosts, tmp_path: Path
) -> None:
    """Host a vanishes in its device's second race; it comes back, and the rest is measured."""
    history, own = tmp_path / "history", Target.host().name
    devices = {
        "hangs": ("a", "avx2"),
        "slow": ("b", own),
        "claims": ("c", "avx2"),
    }
    killing = when((hosts.folder / "a" / "hangs-before").exists, lambda: hosts.kill("a"))
    code, found, said = run(
        "avx2,host=a,label=hangs", "host,host=b,label=slow", "avx2,host=c,label=claims"
    )
    killing.join()
    assert "a" not in hosts.nodes
    assert code == 1, "bits differed"
    assert "its host is gone" in found["hangs"]["ends"][0]
    assert "no host 'a'" in found["hangs"]["error"] and found["hangs"]["record"] is None
    assert found["claims"]["is_quarantined"] and "in quarantine" in said
    assert found["slow"]["error"] == "" and found["slow"]["ends"] == []
    assert found["slow"]["record"]["device"] == "slow"
    assert_attributed(history, devices)
    assert "claims" not in {entry["device"] for entry in lines(history, "chosen")}
    assert "claims" not in counts(history)
    (line,) = lines(history, "quarantine")
    assert (line["device"], place(line["machine"])) == ("claims", "c")
    assert quarantine.main([line["repro"]]) == 0, "this machine gives the right bits"
    kernels = len({kernel for _, kernel, _ in measured(history)})
    before = counts(history)
    assert before["slow"] == TRIALS * kernels
    assert 0 < before["hangs"] < TRIALS * kernels, "what it answered before it vanished"

    hosts.add("a", 0)
    code, found, said = run("avx2,host=a,label=hangs", resume=True)
    assert code == 0 and found["hangs"]["error"] == ""
    assert f"resumed: {before['hangs']} candidates" in said
    assert_attributed(history, devices)
    assert counts(history) == {**before, "hangs": TRIALS * kernels}


def test_a_coordinator_that_is_killed_measures_nothing_twice(
    tiny: Path, hosts: Hosts, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    command = [
        *(sys.executable, "-m", "verax.cli.main", "tune", str(tiny), "--shape", "n=3"),
        *("--threads", "1", "--trials", str(5 * TRIALS), "-O", "1", "--time-budget", "600"),
        *("--device", "avx2,host=b,label=board", "--history", str(history)),
        *("--ray", hosts.address),
    ]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet)
    while process.poll() is None and not (history.exists() and measured(history)):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = measured(history)
    assert before
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"resumed: {sum(before.values())} candidates" in done.stdout
    after = measured(history)
    assert set(after.values()) == {1}
    assert before.keys() < after.keys()
    assert_attributed(history, {"board": ("b", "avx2")})
    assert not servers(), "workers end with the command that had them"


def servers() -> list[str]:
    """Workers that run on the cluster of this process."""
    end = time.monotonic() + 60
    while True:
        titles = [
            " ".join(child.cmdline())
            for child in psutil.Process().children(recursive=True)
            if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
        ]
        found = [title for title in titles if "ray::Server" in title]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)
