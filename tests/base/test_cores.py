"""How many threads are used by default, and what decided."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verax.base.machine import cores
from verax.base.option_groups.settings import Settings


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six cores, no wishes, and the files of a system below a folder; it is given back."""
    monkeypatch.delenv(cores.VARIABLE, raising=False)
    monkeypatch.setattr(cores, "PROC", tmp_path / "proc")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    (tmp_path / "proc").mkdir()
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def version_2(machine: Path, membership: str, root: str = "/") -> Path:
    """A unified hierarchy; the folder where it is mounted, with a blank in its name."""
    place = machine / "sys fs"
    write(machine / "proc" / "cgroup", f"0::{membership}")
    shown = str(place).replace(" ", "\\040")
    write(
        machine / "proc" / "mountinfo", f"41 31 0:38 {root} {shown} rw - cgroup2 cgroup2 rw,nodev"
    )
    return place


def test_the_cores_of_this_process_are_the_default(machine: Path) -> None:
    assert Settings().thread_count == 6
    assert "may run on" in cores.deciding().reason


def test_systems_without_an_affinity_mask_have_all_cores(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert Settings().thread_count == 10
    assert cores.deciding().reason == "cores of this machine"
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert Settings().thread_count == 1


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 6), ("max 100000", 6)],
)
def test_a_quota_of_version_2_counts(machine: Path, quota: str, threads: int) -> None:
    place = version_2(machine, "/jobs/mine")
    write(place / "jobs" / "mine" / "cpu.max", quota)
    assert Settings().thread_count == threads
    assert ("quota" in cores.deciding().reason) == (threads < 6)


def test_the_smallest_quota_of_all_levels_counts(machine: Path) -> None:
    place = version_2(machine, "/jobs/mine")
    write(place / "jobs" / "mine" / "cpu.max", "500000 100000")
    write(place / "jobs" / "cpu.max", "300000 100000")
    assert Settings().thread_count == 3
    assert cores.deciding().reason == "CPU quota of the cgroup: 3 cores"


@pytest.mark.parametrize(("membership", "root"), [("/a/b", "/a/b"), ("/a/b", "/"), ("/", "/")])
def test_a_container_sees_its_own_quota_at_the_mount(
    machine: Path, membership: str, root: str
) -> None:
    place = version_2(machine, membership, root)
    write(place / "cpu.max", "400000 100000")
    assert Settings().thread_count == 4


def test_a_quota_of_version_1_counts(machine: Path) -> None:
    place = machine / "cpu"
    write(machine / "proc" / "cgroup", "5:memory:/far\n4:cpu,cpuacct:/jobs\n0::/")
    write(
        machine / "proc" / "mountinfo",
        f"33 31 0:30 / {machine}/memory rw - cgroup cgroup rw,memory\n"
        f"34 31 0:31 / {place} rw shared:9 - cgroup cgroup rw,cpu,cpuacct",
    )
    write(place / "jobs" / "cpu.cfs_quota_us", "350000")
    write(place / "jobs" / "cpu.cfs_period_us", "100000")
    write(place / "cpu.cfs_quota_us", "-1")
    write(place / "cpu.cfs_period_us", "100000")
    assert Settings().thread_count == 3
    write(place / "jobs" / "cpu.cfs_quota_us", "-1")
    assert Settings().thread_count == 6


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "1:cpu", "0::/x\0"])
def test_files_of_another_kind_are_no_quota(machine: Path, text: str) -> None:
    write(machine / "proc" / "cgroup", text)
    write(machine / "proc" / "mountinfo", "31 23 0:28\n - \n\n0 0 0:0 / - cgroup2")
    assert Settings().thread_count == 6


@pytest.mark.parametrize(
    ("wish", "threads"),
    [("4", 4), (" 2 ", 2), ("3,2", 3), ("9", 6), ("0", 6), ("-1", 6), ("two", 6), ("²", 6)],
)
def test_what_openmp_is_told_counts(
    machine: Path, monkeypatch: pytest.MonkeyPatch, wish: str, threads: int
) -> None:
    monkeypatch.setenv(cores.VARIABLE, wish)
    assert Settings().thread_count == threads
    assert (cores.deciding().reason == cores.VARIABLE) == (threads < 6)


def test_the_first_of_equal_limits_decides_and_an_explicit_number_wins(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = version_2(machine, "/")
    write(place / "cpu.max", "200000 100000")
    monkeypatch.setenv(cores.VARIABLE, "2")
    assert [limit.threads for limit in cores.limits()] == [6, 2, 2]
    assert "quota" in cores.deciding().reason
    assert Settings(threads=5).thread_count == 5
