"""Races: turns are taken, failures are recorded, ratios compare rounds with rounds."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.bench import Contestant, race
from verax.bench.worker import serve
from verax.records.benchmark import Benchmark, Timing
from verax.report.benchmark import benchmark_table

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
IMAGE = np.random.default_rng(3).random((2, 1, 24, 20), np.float32)


def record() -> Benchmark:
    timings = (
        Timing("verax", 1, "0.1", (2.0, 4.0, 2.0), 1.9, 0.5, 90.0, 30),
        Timing("onnxruntime", 1, "1.3", (3.0, 6.0, 1.0), 0.9, 0.1, 80.0, 40),
        Timing("openvino", 1, "2", (5.0, 5.0, 5.0), 4.9, 0.2, 95.0, 20),
        Timing("torch", 1, failure="it cannot read this"),
    )
    return Benchmark("net", {"x": "float32[1]"}, timings, {"cores": "2"}, (0.5, 0.75), 7)


def test_speed_is_the_median_of_ratios_within_rounds_against_the_fastest() -> None:
    assert record().speed("verax", ("onnxruntime", "openvino"), 1) == (1.5, "onnxruntime")


def test_speed_without_a_rival_is_nan() -> None:
    ratio, name = record().speed("verax", ("torch",), 1)
    assert math.isnan(ratio)
    assert name == ""


def test_the_record_survives_json() -> None:
    assert Benchmark.from_json(record().to_json()) == record()
    with pytest.raises(UsageError):
        Benchmark.from_json('{"schema": "something else"}')


def test_the_table_says_ratio_and_failure() -> None:
    caption = str(benchmark_table(record(), "verax", ("onnxruntime",)).caption)
    assert "1.500 of the speed of onnxruntime" in caption
    assert "torch: it cannot read this" in caption


def test_a_busy_machine_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 0.0, 0.0))
    found = race("nothing", [], {}, rounds=1)
    assert "busy" in found.notes[0]
    assert "busy" in str(benchmark_table(found, "verax", ()).caption)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    assert race("nothing", [], {}, rounds=1).notes == ()


def test_a_race_times_every_engine_and_records_who_fails(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    who = [
        Contestant("onnxruntime", str(EXAMPLE), 1),
        Contestant("onnxruntime", str(EXAMPLE), 2),
        Contestant("onnxruntime", str(tmp_path / "missing.onnx"), 3),
    ]
    found = race("digits", who, {"image": IMAGE}, rounds=3, seconds=0.01, calls=2)
    good, other, bad = found.timings
    assert len(good.rounds) == len(other.rounds) == 3
    assert good.calls >= 6
    assert 0 < good.best <= good.median
    assert other.difference < 1
    assert bad.rounds == ()
    assert "missing.onnx" in bad.failure
    assert found.inputs == {"image": "float32[2, 1, 24, 20]"}
    assert found.environment["onnxruntime"]


def test_a_worker_answers_in_the_protocol(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    np.savez(tmp_path / "in.npz", image=IMAGE)
    first = {
        "engine": "onnxruntime",
        "model": str(EXAMPLE),
        "threads": 1,
        "inputs": str(tmp_path / "in.npz"),
        "outputs": str(tmp_path / "out.npz"),
    }
    orders = io.StringIO(json.dumps(first) + "\n" + json.dumps({"seconds": 0.0, "calls": 4}) + "\n")
    answers = io.StringIO()
    serve(orders, answers)
    ready, turn = map(json.loads, answers.getvalue().splitlines())
    assert ready["prepare"] > 0
    assert len(turn["times"]) == 4
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["arr_0"].shape == (2, 10)
