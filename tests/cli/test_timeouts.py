"""`--timeout` ends a run of the subject that takes longer, of every kind of subject."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import onnx
import pytest
from onnx import helper

from verax.base.process.processes import SubjectError
from verax.records.benchmark import Benchmark
from verax.runners import own
from verax.runners.children.limited import within

from .conftest import Cli


@pytest.fixture
def hanging(tmp_path: Path) -> str:
    """A program that gives no answer."""
    path = tmp_path / "hanging.py"
    path.write_text("import time\ntime.sleep(60)\n")
    return f"cmd:{sys.executable} -I -S {path}"


@pytest.mark.parametrize("command", ["check", "bisect"])
def test_a_program_that_takes_longer_is_stopped(
    cli: Cli, tiny: Path, hanging: str, command: str, tmp_path: Path
) -> None:
    found = cli(command, tiny, hanging, "--timeout", "0.5", "--json", tmp_path / "record.json")
    assert found.code == 2
    assert "no answer in 0.5 s and was stopped" in found.err
    assert "--timeout" in found.err
    assert not (tmp_path / "record.json").exists()


@pytest.mark.parametrize("command", ["check", "bisect"])
def test_a_subject_in_this_process_that_takes_longer_is_given_up(
    cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(own.VeraxRunner, "run", lambda *_: time.sleep(5))
    found = cli(command, tiny, "verax:O0", "--timeout", "0.2")
    assert found.code == 2
    assert "no answer in 0.2 s and was given up" in found.err


def test_two_model_files_are_compared_within_the_time(cli: Cli, tiny: Path) -> None:
    other = tiny.with_name("other.onnx")
    loaded = onnx.load(tiny)
    loaded.graph.node[0].name = "called otherwise"
    unused = helper.make_node("Identity", [loaded.graph.output[0].name], ["again"])
    loaded.graph.node.append(unused)
    loaded.graph.output[0].name = "again"
    onnx.save(loaded, other)
    found = cli("check", tiny, other, "--timeout", "0.0001")
    assert found.code == 3
    assert "the 0.0001 s that judging may take were over" in " ".join(found.out.split())
    assert cli("check", tiny, other, "--timeout", "600").code == 0


def test_who_is_in_time_is_judged_as_ever(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    for subject in ("verax:O1", "reference"):
        record = tmp_path / "record.json"
        assert cli("check", tiny, subject, "--timeout", "600", "--json", record).code == 0
        assert json.loads(record.read_text())["kind"] in ("identical", "rounding")
    assert cli("check", "--replay", record).code == 0
    assert cli("bisect", tiny, "verax:O1", "--timeout", "inf").code == 0


def test_an_engine_that_takes_longer_is_in_the_table_as_failed(
    cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record.json"
    found = cli("bench", tiny, "--rounds", "1", "--timeout", "0.01", "--json", record)
    assert found.code == 2  # Verax is one of them
    timings = Benchmark.from_json(record.read_text()).timings
    assert timings
    for timing in timings:
        assert timing.failure == "it gave no answer in 0.01 s and was stopped"


@pytest.mark.parametrize("text", ["0", "-3", "nan", "soon"])
@pytest.mark.parametrize("command", ["check", "bisect", "bench"])
def test_what_is_no_time_is_refused(cli: Cli, tiny: Path, command: str, text: str) -> None:
    found = cli(command, tiny, "--timeout", text)
    assert found.code == 2
    assert "--timeout" in found.err
    assert "bug of Verax" not in found.err


def test_what_an_act_gives_or_raises_comes_through() -> None:
    assert within(60, "subject", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, "subject", lambda: 1 // 0)
    with pytest.raises(SubjectError, match="given up"):
        within(0.01, "subject", lambda: time.sleep(0.5))
