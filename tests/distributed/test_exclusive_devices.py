"""Devices: what a text names, and that nobody shares one."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from tests.distributed import tasks

from verax.base.errors import DeviceError, UsageError
from verax.base.machine.processor import VARIABLE
from verax.distributed import ExclusiveDevice, open_pool
from verax.distributed.contents import FOLDER, host_name
from verax.distributed.device import GPUS

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pinned = pytest.mark.skipif(not CORES, reason="this system pins no process to cores")


@pytest.mark.parametrize(
    "text, device",
    [
        ("avx2,cores=4", ExclusiveDevice("avx2,cores=4", "avx2", 4)),
        ("cores=2-5,label=a", ExclusiveDevice("a", "", 4, (2, 3, 4, 5))),
        ("cuda:3,host=b", ExclusiveDevice("cuda:3,host=b", gpu=3, host="b")),
        ("cuda,label=b", ExclusiveDevice("b", gpu=0)),
        ("cuda-emulated,cores=2", ExclusiveDevice("cuda-emulated,cores=2", "cuda-emulated", 2)),
        ("avx512", ExclusiveDevice("avx512", "avx512")),
        ("neon,cores=1,host=board,label=Pi", ExclusiveDevice("Pi", "neon", 1, (), -1, "board")),
    ],
)
def test_a_text_names_a_device(text: str, device: ExclusiveDevice) -> None:
    assert ExclusiveDevice.parse(text) == device == ExclusiveDevice.of_plain(device.to_plain())


@pytest.mark.parametrize(
    "text",
    [
        *("", "cores=", "cores=x", "cores=3-1", "avx2,avx512", "a=b", "cores=0", "avx2,cores=00"),
        *("cores=1,cores=2", "label=a,cores=2,label=b", "vax,cores=1", "sm_90"),
    ],
)
def test_a_text_that_names_none_is_refused(text: str) -> None:
    said = (
        r"says nothing of a device|names no cores|is there twice|there is no target|a kind of GPU"
    )
    with pytest.raises(UsageError, match=said) as raised:
        ExclusiveDevice.parse(text)
    assert raised.value.next_step


def test_a_host_may_be_a_target_and_the_first_core_a_device() -> None:
    device = ExclusiveDevice("host,cores=0-0,host=b", "host", 1, (0,), -1, "b")
    assert ExclusiveDevice.parse("host,cores=0-0,host=b") == device


def test_processes_are_no_other_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "host"))
    with open_pool(1) as pool:
        with pytest.raises(UsageError, match="another machine") as raised:
            pool.actor(tasks.Adder, {"total": 3}, device=ExclusiveDevice("x", host="elsewhere"))
        assert "--ray" in raised.value.next_step
        here = ExclusiveDevice("y", host=host_name())
        assert pool.actor(tasks.Adder, {"total": 3}, device=here).call("add", 4).result(60) == 7


def test_a_target_that_the_processor_lacks_is_said_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "host"))
    other = "avx2" if platform.machine() == "aarch64" else "aarch64"
    with open_pool(1) as pool:
        actor = pool.actor(tasks.Adder, {"total": 3}, device=ExclusiveDevice("board", other))
        with pytest.raises(UsageError, match=f"does not run code for '{other}'") as raised:
            actor.began.result(60)
    assert raised.value.place.startswith("board on ") and "unset" not in raised.value.next_step


def test_a_machine_begins_no_thousand_workers() -> None:
    with pytest.raises(UsageError, match="too many for this machine") as raised:
        open_pool(1000)
    assert "at most" in raised.value.next_step
    open_pool(16).close()  # where there is one core, too


@pinned
def test_actors_have_their_cores_and_target_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "host"))
    monkeypatch.delenv(VARIABLE, raising=False)
    core = CORES[-1]
    device = ExclusiveDevice("a", "avx2", 1, (core,))
    with open_pool(1) as pool, open_pool(1) as other:
        first = pool.actor(tasks.Adder, {"total": 1}, device=device)
        first.began.result(60)
        expected = {"cores": [core], "target": "avx2"}
        assert first.call("surroundings").result(60) == expected
        second = other.actor(tasks.Adder, {"total": 1}, device=ExclusiveDevice("b", "", 1, (core,)))
        with pytest.raises(DeviceError, match="needs 1 cores, 0 of which are free"):
            second.began.result(60)
        shared = pool.actor(tasks.Adder, {"total": 1}, device=ExclusiveDevice("c"))
        assert shared.call("surroundings").result(60) == {"cores": CORES, "target": ""}
        first.stop()
        third = other.actor(tasks.Adder, {"total": 1}, device=ExclusiveDevice("d", "", 1, (core,)))
        third.began.result(60)
        assert third.call("surroundings").result(60) == {"cores": [core], "target": ""}


def test_a_gpu_is_held_by_one_process_and_is_the_only_one_that_it_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "host"))
    monkeypatch.delenv(VARIABLE, raising=False)
    first, again, second, emulated = map(
        ExclusiveDevice.parse, ("cuda:5,label=a", "cuda:5,label=b", "cuda:2", "cuda-emulated")
    )
    names = [d.compiled_for for d in (first, second, emulated, ExclusiveDevice.parse("avx2"))]
    assert names == ["cuda", "cuda", "cuda-emulated", "host"]
    with open_pool(1) as pool, open_pool(1) as other:
        holder = pool.actor(tasks.Adder, {"total": 1}, device=first)
        assert holder.call("environment", GPUS).result(60) == "5"
        refused = other.actor(tasks.Adder, {"total": 1}, device=again)
        with pytest.raises(DeviceError, match="needs GPU 5: another device"):
            refused.began.result(60)
        beside = other.actor(tasks.Adder, {"total": 1}, device=second)
        assert beside.call("environment", GPUS).result(60) == "2"
        without = other.actor(tasks.Adder, {"total": 1}, device=emulated)
        assert without.call("environment", VARIABLE).result(60) == "", "it is a target of its own"


@pinned
def test_a_host_that_lacks_cores_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "host"))
    with open_pool(1) as pool:
        many = pool.actor(
            tasks.Adder, {"total": 1}, device=ExclusiveDevice("m", "", len(CORES) + 1)
        )
        with pytest.raises(UsageError, match=f"has {len(CORES) + 1} cores, the host {len(CORES)}"):
            many.began.result(60)
        absent = pool.actor(tasks.Adder, {"total": 1}, device=ExclusiveDevice("n", "", 1, (9999,)))
        with pytest.raises(UsageError, match="no core 9999"):
            absent.began.result(60)
