"""Programs for many sizes have the same bits on all targets, and on an emulated ARM64."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.compiler.digests_of_sizes import CASES, digests
from verax.base.machine.processor import runs_here
from verax.base.option_groups.settings import Settings

ARM = os.environ.get("VERAX_ARM64_PYTHON", "")
"""A Python of an emulated ARM64 with this package and its tests on its path."""


@pytest.mark.parametrize("level", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_targets_agree(level: int) -> None:
    want = digests(Settings(level, threads=1))
    assert want.keys() == CASES.keys()
    assert len({*want.values()}) == len(CASES)
    for target in ("avx2", "avx512", "cuda-emulated"):
        if runs_here(target):
            assert digests(Settings(level, threads=2, target=target)) == want


@pytest.mark.slow
@pytest.mark.skipif(not ARM, reason="VERAX_ARM64_PYTHON names no emulated Python")
@pytest.mark.parametrize("level", [1, 3])
def test_an_emulated_arm64_agrees(level: int) -> None:
    command = [ARM, "-m", "tests.compiler.digests_of_sizes", str(level)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == digests(Settings(level, threads=1))
