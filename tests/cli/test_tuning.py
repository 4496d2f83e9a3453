"""`verax tune`: the table, the record, and what is said of bad arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from verax.compiler.tune import racing
from verax.compiler.tune.history import History
from verax.records.tuning import TuningRecord


def test_a_network_is_tuned(cli: Cli, digits: Path, tmp_path: Path) -> None:
    history, record = tmp_path / "tuning.jsonl", tmp_path / "record.json"
    done = cli(
        "tune", digits, "--shape", "n=2", "--trials", 1, "--threads", 1, "--history", history,
        "--time-budget", 5, "--json", record, "-O", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "all outputs have the same bits before and after" in done.out
    assert "kernels tuned with" in done.out
    assert str(history) in done.out
    assert history.read_text().startswith('{"schema":"verax.tuning/1"')
    found = TuningRecord.from_json(record.read_text())
    assert found.opt_level == 1
    assert found.model == str(digits)
    assert any(k.trials for k in found.kernels)
    to_file = ("compile", digits, "--shape", "n=2", "-o", tmp_path / "net.vx", "--plan")
    again = cli(*to_file, "--history", history)
    assert again.code == 0
    assert "schedules: " in again.out
    off = cli(*to_file)
    assert "schedules: " not in off.out


def test_a_fault_is_exit_code_1(
    cli: Cli, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(racing.BenchRacer, "_trial", _refuse)
    done = cli("tune", tiny, "--history", tmp_path / "h", "--trials", 1, "--time-budget", 5)
    assert done.code == 1
    assert "fault: " in done.out


def _refuse(self: racing.BenchRacer, schedule: object) -> racing.Trial:
    return racing.Trial(schedule, False, refused=racing.OTHER_BITS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "VERAX_CACHE is off"),
        (("--history", "H", "--time-budget", "0"), "the option time_budget"),
        (("--history", "H", "--time-budget", "nan"), "the option time_budget"),
        (("--history", "MODEL"), "another file"),
        (("--history", "MODEL/h"), "cannot be"),
        (("--history", "H", "--json", "MODEL"), "would replace it"),
        (("--history", "H", "--json", "H"), "would replace it"),
        (("--history", "H", "--device", "cores=0"), "names no cores"),
        (
            ("--history", "H", "--device", "cores=1", "--workers", "999"),
            "too many for this",
        ),
    ],
)
def test_bad_arguments_are_said(
    cli: Cli, tiny: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    before = tiny.read_bytes()
    named = [a.replace("MODEL", str(tiny)).replace("H", str(tmp_path / "h"), 1) if a[0] != "-" else
             a for a in arguments]  # fmt: skip
    done = cli("tune", tiny, *named)
    assert done.code == 2
    assert said in done.err
    assert tiny.read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for another process")
def test_ctrl_c_keeps_what_was_measured(digits: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    command = ["tune", str(digits), "--shape", "n=8", "--threads", "1", "--history", str(path),
               "--time-budget", "300", "--trials", "4"]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "verax.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and not (path.exists() and b'"measured"' in path.read_bytes()):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    kept = f"what was measured is in {path}; the same command with --resume goes on from there"
    assert err == f"{kept}\ninterrupted\n"
    found = History(path).read()
    assert found.lines >= 4
    assert found.unreadable == 0


def test_a_program_is_not_tuned(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    assert cli("compile", tiny, "--shape", "n=1", "-o", tmp_path / "net.vx").code == 0
    done = cli("tune", tmp_path / "net.vx", "--history", tmp_path / "h")
    assert done.code == 2
    assert "has its schedules" in done.err
