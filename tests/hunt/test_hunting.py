"""A hunt finds injected faults, names them, and blames nobody who is right."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verax.base.errors import UsageError
from verax.hunt.session import HuntResult, hunt

RUNTIME = Path(__file__).parents[2] / "examples" / "hunt" / "faulty_runtime.py"


def subject(fault: str) -> str:
    return f"cmd:{sys.executable} {RUNTIME} {fault} {{model}} {{input}} {{output}}"


def hunted(fault: str, folder: Path, cases: int = 4, **options) -> HuntResult:
    options = {"operators": ("LeakyRelu",), "families": ("operator",), **options}
    return hunt(subject(fault), cases=cases, seed=12, store=folder, **options)


def test_an_injected_fault_is_found_named_made_small_and_confirmed(tmp_path: Path) -> None:
    result = hunted("alpha", tmp_path / "store")
    findings = [f for f in result.findings if f.operator == "LeakyRelu"]
    assert findings and findings == list(result.findings)
    finding = findings[0]
    assert finding.classification == "mistake" and finding.confidence == "high"
    assert finding.cause == "computed as LeakyRelu with slope 0.01"
    assert "onnx.reference agrees with our reference" in finding.argument
    folder = Path(finding.folder)
    text = (folder / "finding.md").read_text()
    assert "LeakyRelu" in text and "Second opinions" in text and "Confidence: high" in text
    (case,) = (p for p in folder.iterdir() if p.is_dir())
    done = subprocess.run(
        [sys.executable, str(case / "show.py")], capture_output=True, text=True, check=False
    )
    assert "should be" in done.stdout, done.stderr
    assert result.exit_code == 1 and result.cases == 4


def test_a_correct_subject_is_left_in_peace(tmp_path: Path) -> None:
    result = hunt("verax:O1", cases=25, seed=77, store=tmp_path)
    assert result.findings == () and result.exit_code == 0
    assert result.counts.get("right", 0) >= 20


@pytest.mark.parametrize(("fault", "words"), [("crash", "SIGSEGV"), ("hang", "no answer in")])
def test_a_crash_and_a_hang_are_findings(tmp_path: Path, fault: str, words: str) -> None:
    result = hunted(fault, tmp_path, cases=1, run_seconds=3.0)
    (finding,) = result.findings
    assert finding.classification == fault and finding.operator == "LeakyRelu"
    assert words in finding.message
    assert (Path(finding.folder) / "show.py").is_file()


def test_too_much_memory_is_a_finding(tmp_path: Path) -> None:
    result = hunted("memory", tmp_path, cases=1, run_seconds=30.0, memory_mb=300)
    (finding,) = result.findings
    assert finding.classification == "memory" and "MiB" in finding.message


def test_a_refusal_is_a_finding_that_others_are_asked_about(tmp_path: Path) -> None:
    (finding,) = hunted("refuse", tmp_path, cases=1).findings
    assert finding.classification == "refusal" and "out of luck" in finding.message
    assert "onnx.reference agrees" in finding.argument


def test_a_hunt_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    for count in (3, 5):
        hunt("verax:O1", cases=2 if count == 5 else 3, seed=8, store=tmp_path)
        with_counts = hunt("verax:O1", seconds=0.0, seed=8, store=tmp_path)
        assert sum(with_counts.counts.values()) == count


def test_kill_9_leaves_a_store_that_the_next_hunt_takes(tmp_path: Path) -> None:
    words = (
        f"from verax.hunt.session import hunt; hunt('verax:O1', seed=9, store={str(tmp_path)!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", words])
    store = tmp_path / "hunt.sqlite"
    _wait_for(lambda: store.exists() and _done(tmp_path) >= 3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    before = _done(tmp_path)
    result = hunt("verax:O1", cases=2, seed=9, store=tmp_path)
    assert sum(result.counts.values()) >= before + 2
    rows = _rows(
        tmp_path, "SELECT case_number FROM cases WHERE state = 'done' ORDER BY case_number"
    )
    assert [n for (n,) in rows] == list(range(len(rows)))


def test_ctrl_c_ends_a_hunt_with_its_figures(tmp_path: Path) -> None:
    words = "from verax.cli.main import main; main()"
    record = tmp_path / "hunt.json"
    process = subprocess.Popen(
        [sys.executable, "-c", words, "hunt", "verax:O1", "--store", str(tmp_path / "s"),
         "--json", str(record)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for(lambda: (tmp_path / "s" / "hunt.sqlite").exists() and _done(tmp_path / "s") >= 2)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert "interrupted" in printed and "distinct findings" in printed, errors
    assert process.returncode == 0 and "Traceback" not in errors
    assert json.loads(record.read_text())["was_interrupted"] is True
    assert not _rows(tmp_path / "s", "SELECT 1 FROM cases WHERE state = 'running'")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cmd:python run.py {input} {output}", "not told which network"),
        ("examples/digits/digits.onnx", "runs any network"),
        ("onnxruntim", "is 'onnxruntime' meant"),
    ],
)
def test_subjects_that_run_no_other_network_are_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        hunt(text, cases=1, store=tmp_path)
    with pytest.raises(UsageError, match="no family 'near'"):
        hunt("verax:O1", cases=1, store=tmp_path, families=("near",))


def _rows(folder: Path, query: str) -> list[tuple[int]]:
    with sqlite3.connect(folder / "hunt.sqlite", timeout=30) as connection:
        return connection.execute(query).fetchall()


def _done(folder: Path) -> int:
    try:
        return _rows(folder, "SELECT COUNT(*) FROM cases WHERE state = 'done'")[0][0]
    except sqlite3.OperationalError:  # the table is not made yet
        return 0


def _wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)
