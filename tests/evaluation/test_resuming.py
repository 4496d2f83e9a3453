"""A run that is killed goes on where it was; another network, other data and damage are refused."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import InputError, UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.sums.linear import MatMul
from verax.records.evaluation import EvaluationRecord

COUNT, SAMPLES = "calls", 24
SLOW = """
import sys, time
import numpy as np
from pathlib import Path
from tests.evaluation.test_resuming import evaluated
evaluated(Path(sys.argv[1]), pause=0.1, metric=len(sys.argv) > 2)
"""


def linear(seed: int = 40) -> Graph:
    """x [n, 6] to scores [n, 4]."""
    weights = np.random.default_rng(seed).standard_normal((6, 4)).astype(np.float32)
    b = Builder("linear")
    x = b.input("x", TensorType.parse("float32[n, 6]"))
    return b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["scores"], "product")])


def spread(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Two numbers that every score and label moves."""
    return {"sum": float(predictions.sum()), "labels": float((labels * predictions[:, 0]).sum())}


def evaluated(
    folder: Path, pause: float = 0.0, metric: bool = False, seed: int = 40, data: int = 41
) -> EvaluationRecord:
    """Three samples at a time, noting each in `folder`; the subject notes that it was called."""
    random = np.random.default_rng(data)
    x = random.standard_normal((SAMPLES, 6)).astype(np.float32)
    graph = linear(seed)

    def subject(x: np.ndarray) -> np.ndarray:
        time.sleep(pause)
        with (folder / COUNT).open("a") as stream:
            stream.write(f"{len(x)}\n")
        return -(x @ graph.constants["w"]) if x[0, 0] > 0 else x @ graph.constants["w"]

    return verax.evaluate(
        graph,
        x,
        np.arange(SAMPLES) % 4,
        against=subject,
        batch=3,
        resume=folder / "notes.jsonl",
        metric=spread if metric else None,
    )


@pytest.mark.parametrize("metric", [False, True])
def test_a_run_that_was_killed_goes_on(tmp_path: Path, metric: bool) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir(), whole.mkdir()
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(killed), *["metric"] * metric],
        env={**os.environ, "PYTHONPATH": path},
    )
    notes = killed / "notes.jsonl"
    end = time.monotonic() + 60
    while not notes.exists() or notes.read_bytes().count(b"\n") < 4:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = notes.read_bytes().count(b"\n") - 1
    assert 3 <= done < SAMPLES // 3
    with notes.open("ab") as stream:
        stream.write(b'{"rows": [[0, 1, 2')  # half a line
    before = len((killed / COUNT).read_text().split())
    again = evaluated(killed, metric=metric)
    assert len((killed / COUNT).read_text().split()) - before == SAMPLES // 3 - done
    assert again == evaluated(whole, metric=metric)
    assert again.comparison is not None and again.comparison.flips
    assert bool(again.accuracy.metrics) == metric


def test_a_finished_run_runs_nothing_again(tmp_path: Path) -> None:
    first = evaluated(tmp_path)
    (tmp_path / COUNT).unlink()
    assert evaluated(tmp_path) == first and not (tmp_path / COUNT).exists()


def test_another_network_or_other_data_are_refused(tmp_path: Path) -> None:
    evaluated(tmp_path)
    with pytest.raises(UsageError, match="begun with another network"):
        evaluated(tmp_path, seed=50)
    with pytest.raises(UsageError, match="begun with another data"):
        evaluated(tmp_path, data=51)
    with pytest.raises(UsageError, match="begun with another options"):
        evaluated(tmp_path, metric=True)


def test_damage_and_foreign_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text("my diary")
    with pytest.raises(InputError, match="no file of an evaluation"):
        evaluated(tmp_path)
    assert notes.read_text() == "my diary"
    notes.write_text("my diary\n")
    with pytest.raises(InputError, match="line 1 is none"):
        evaluated(tmp_path)
    assert notes.read_text() == "my diary\n"
    notes.unlink()
    evaluated(tmp_path)
    lines = notes.read_text().splitlines(keepends=True)
    for wrong in ("{}\n", '{"rows": [[1]]}\n', "[]\n", "\n"):
        notes.write_text("".join([lines[0], wrong, *lines[2:]]))
        with pytest.raises(InputError, match="line 2 is none"):
            evaluated(tmp_path)
    notes.write_text("".join([*lines, lines[1]]))
    with pytest.raises(InputError, match="more than the 24 samples"):
        evaluated(tmp_path)


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    evaluated(tmp_path)
    with (tmp_path / "notes.jsonl").open("r+b") as stream:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another process"):
            evaluated(tmp_path)


def test_the_file_holds_no_more_than_it_needs(tmp_path: Path) -> None:
    record = evaluated(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "notes.jsonl").read_text().splitlines()]
    assert [len(line["rows"]) for line in lines[1:]] == [3] * (SAMPLES // 3)
    assert not any("scores" in line for line in lines)
    assert replace(record, seed=1) != record
