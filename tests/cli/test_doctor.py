"""`verax doctor` says how many threads are used, and what decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Cli


def test_what_decided_the_number_of_threads_is_said(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = cli("doctor", "--json", tmp_path / "doctor.json")
    assert found.code == 0, found.out
    said = json.loads((tmp_path / "doctor.json").read_text())["threads"]
    assert said["count"] == 1
    (line,) = [text for text in found.out.splitlines() if text.startswith("threads ")]
    assert f"1: {said['decided_by']} (decides)" in line
    assert [1, "OMP_NUM_THREADS"] in said["limits"]
    assert "native code, 1 threads" in found.out
