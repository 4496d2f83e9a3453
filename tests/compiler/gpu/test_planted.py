"""Faults planted in the source of kernels show on the emulated GPU, and so do its fences."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from benchmarks import gpu_planted
from benchmarks.gpu_planted import CRASH, UNNOTICED, in_a_process, reason, results, unseen

from verax.runtime.gpu.emulated import VARIABLE, EmulatedDevice
from verax.runtime.gpu.fences import PAGE


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERAX_CACHE", "off")


def test_faults_of_a_sum_show() -> None:
    found = list(results("sum of rows"))
    assert [r.noticed for r in found if r.fault == "no barrier"].count(UNNOTICED) <= 1
    assert {r.noticed for r in found} >= {UNNOTICED, gpu_planted.BITS}


@pytest.mark.slow
def test_faults_show_or_are_argued() -> None:
    found = [r for name in gpu_planted.SAMPLES for r in results(name)]
    assert len(found) > 100
    assert [r for r in unseen(found) if not reason(r)] == []


@pytest.mark.parametrize("nbytes", [1, 4080, 4096, 9000])
@pytest.mark.parametrize(
    ("order", "outside"), [("fenced", "behind"), ("reversed,fenced", "before")]
)
def test_a_fence_ends_who_steps_aside(
    nbytes: int, order: str, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, order)
    device = EmulatedDevice()
    address = device.allocate(nbytes)
    rounded = -(-nbytes // 16) * 16
    array = np.arange(nbytes, dtype=np.uint8)
    device.write(address, array)
    assert device.owns(address, nbytes) and not device.owns(address, nbytes + 1)

    def written(offset: int) -> int:
        ctypes.memset(address + offset, 1, 1)
        return offset

    beside = rounded if outside == "behind" else -1
    for inside in (0, nbytes - 1):
        assert in_a_process(lambda at=inside: written(at)) == inside
    assert in_a_process(lambda: written(beside)) == CRASH
    read = np.zeros_like(array)
    device.read(read, address)
    assert (read == array).all() and address % (16 if outside == "behind" else PAGE) == 0
    device.free(address)
    assert not device.owns(address, 1)
