"""`python -m benchmarks.judge`: a table, every outcome as JSON, and nothing lost by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.judge", "--workers", "1", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def test_a_small_campaign_prints_a_table_and_writes_every_outcome(tmp_path: Path) -> None:
    record = tmp_path / "judge.json"
    run = started("plants", "--limit", "1", "--only", "^bias missing$", "--json", str(record))
    table, _ = run.communicate(timeout=600)
    assert run.returncode == 0, table
    assert "bias missing" in table
    outcomes = json.loads(record.read_text())["plants"]
    assert {o["case"] for o in outcomes} == {
        "FaultCase(fault='bias missing', index=0, deep=False, in_file=False)",
        "FaultCase(fault='bias missing', index=0, deep=False, in_file=True)",
    }
    assert all(o["located"] for o in outcomes)


def test_ctrl_c_keeps_what_was_done(tmp_path: Path) -> None:
    record = tmp_path / "judge.json"
    run = started("honest", "--only", "^reference$", "--json", str(record))
    patience = time.monotonic() + 600
    while not record.exists() and time.monotonic() < patience:
        time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    table, errors = run.communicate(timeout=600)
    assert "Traceback" not in errors
    assert "reference" in table
    done = json.loads(record.read_text())["honest"]
    assert 0 < len(done) < 500


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "no part nonsense: choose of honest"),
        (("honest", "--only", "("), "'(' is no regular expression"),
        (("honest", "--workers", "-3"), "argument --workers: -3 is below 0"),
        (("honest", "--workers", "two"), "argument --workers"),
        (("honest", "--workers", "999", "--only", "^reference$"), "too many for this machine"),
    ],
)
def test_bad_arguments_are_said(arguments: tuple[str, ...], said: str) -> None:
    """And by 2: the code 1 says that there was a false alarm."""
    run = started(*arguments)
    _, errors = run.communicate(timeout=600)
    assert run.returncode == 2, errors
    assert said in errors and "Traceback" not in errors
