"""A hunt whose cases are judged by a pool: its store gets every case once, and every finding."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.hunt.test_hunting import subject

import verax
from verax.base.errors import VeraxError
from verax.distributed import open_pool
from verax.hunt.host_session import HostSession
from verax.hunt.hosts import TEXTS, HuntOnHosts, _inside
from verax.hunt.judging import HuntTask
from verax.hunt.store import Store
from verax.hunt.worker import STORE

SEED = 12


def opened(folder: Path, fault: str) -> tuple[HuntTask, Store, dict[str, str]]:
    """A task of LeakyRelu alone, and the store of its hunt."""
    task = HuntTask(subject(fault), "", str(folder), SEED, 20.0, ("LeakyRelu",), ("operator",))
    settings = {"subject": task.subject, "verax": verax.__version__}
    return task, Store(folder / STORE, settings), settings


def rows(store: Store) -> list[tuple[Any, ...]]:
    query = "SELECT case_number, state, outcome, finding, family, aim, reason FROM cases"
    return store.connection.execute(f"{query} ORDER BY case_number").fetchall()


def on_pool(folder: Path, fault: str, cases: int, workers: int = 2) -> Store:
    task, store, settings = opened(folder, fault)
    with open_pool(workers) as pool:
        hunting = HuntOnHosts(pool, task, store, settings, 4096)
        assert not hunting.run(None, cases, None)
        assert hunting.done == cases and not hunting.claimed
    return store


def test_the_store_holds_what_one_host_would_have_found(tmp_path: Path) -> None:
    task, alone, settings = opened(tmp_path / "alone", "alpha")
    session = HostSession(task, alone, settings, 4096 << 20)
    assert not session.run(1, None, 5, None)
    session.stop()
    shared = on_pool(tmp_path / "shared", "alpha", 5)
    assert rows(shared) == rows(alone) and len(rows(alone)) == 5
    found, same = ({f.key: f for f in s.findings()} for s in (alone, shared))
    assert found and set(found) == set(same)
    for key, finding in same.items():
        expected = found[key]
        assert finding.count == expected.count and finding.confidence == expected.confidence
        folder = Path(finding.folder)
        assert folder.is_relative_to(tmp_path / "shared") and (folder / "finding.md").is_file()
        names = [p.relative_to(folder) for p in sorted(folder.rglob("*"))]
        own = Path(expected.folder)
        assert names == [p.relative_to(own) for p in sorted(own.rglob("*"))]
        texts = [p.read_text() for p in folder.rglob("*") if p.suffix in TEXTS]
        assert str(folder) in "".join(texts) and "verax-" not in "".join(texts)
        (script,) = folder.glob("*/show.py")
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        assert "should be" in done.stdout, done.stderr


def test_a_later_hunt_goes_on_and_examines_nothing_again(tmp_path: Path) -> None:
    first = on_pool(tmp_path, "alpha", 1, workers=1)
    findings = {f.key: f for f in first.findings()}
    marks = [Path(f.folder) / "finding.md" for f in findings.values()]
    before = [mark.stat().st_mtime_ns for mark in marks]
    first.close()
    second = on_pool(tmp_path, "alpha", 2, workers=1)
    assert [row[0] for row in rows(second)] == list(range(3))
    assert [mark.stat().st_mtime_ns for mark in marks] == before
    later = {f.key: f for f in second.findings()}
    assert set(findings) <= set(later)
    assert sum(f.count for f in later.values()) == sum(bool(row[3]) for row in rows(second))
    assert all(
        dataclasses.replace(later[key], count=0) == dataclasses.replace(f, count=0)
        for key, f in findings.items()
    )


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux lists them")
def test_a_worker_that_is_killed_loses_no_case(tmp_path: Path) -> None:
    task, store, settings = opened(tmp_path, "none")
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and not killed:
            time.sleep(0.01)
            for child in psutil.Process().children(recursive=True):
                words = child.cmdline() if child.is_running() else []
                if "verax.hunt.worker" in words[1:3]:
                    above = child.parent().parent()
                    os.kill(above.pid, signal.SIGKILL)
                    killed.append(above.pid)
                    return

    killing = threading.Thread(target=kill)
    killing.start()
    with open_pool(2) as pool:
        hunting = HuntOnHosts(pool, task, store, settings, 4096)
        hunting.run(None, 9, None)
    killing.join()
    assert killed
    assert [row[:3] for row in rows(store)] == [(n, "done", "right") for n in range(9)]


def test_files_of_a_worker_stay_within_the_store() -> None:
    assert _inside("findings/a/b.md") == Path("findings/a/b.md")
    for name in ("/etc/passwd", "findings/../../x"):
        with pytest.raises(VeraxError, match="outside of its store"):
            _inside(name)
