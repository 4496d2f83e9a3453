"""Races: turns are taken, failures are recorded, ratios compare rounds with rounds."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.bench import rounds
from verax.bench.rounds import Contestant, race
from verax.bench.worker import serve, watched
from verax.records.benchmark import Benchmark, Timing
from verax.report.benchmark import benchmark_table
from verax.runners.registry import ENGINES, ENTRIES, TIMED_ONLY

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
IMAGE = np.random.default_rng(3).random((2, 1, 24, 20), np.float32)


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Contestants compile the example once for all tests of this file."""
    before = os.environ.get("VERAX_CACHE")
    os.environ["VERAX_CACHE"] = str(tmp_path_factory.mktemp("programs"))
    yield
    os.environ.pop("VERAX_CACHE")
    if before is not None:
        os.environ["VERAX_CACHE"] = before


def record() -> Benchmark:
    timings = (
        Timing("verax", 1, "0.1", (2.0, 4.0, 2.0), 1.9, 0.5, 0.2, 0.1, 90.0, 99.0, 30),
        Timing("onnxruntime", 1, "1.3", (3.0, 6.0, 1.0), 0.9, 0.1, 0.1, 0.0, 80.0, 85.0, 40),
        Timing("openvino", 1, "2", (5.0, 5.0, 5.0), 4.9, 0.2, 0.1, 0.1, 95.0, 96.0, 20),
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


def test_spread_is_half_of_the_middle_half_and_start_up_ends_with_a_result() -> None:
    timing = Timing("a", 1, rounds=(1.0, 2.0, 3.0, 4.0, 100.0), prepare=0.5, first=0.25)
    assert timing.median == 3.0
    assert timing.spread == pytest.approx((4.0 - 2.0) / 2 / 3.0)
    assert timing.start_up == 0.75


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


def test_a_contestant_may_live_in_another_environment(tmp_path: Path) -> None:
    """With settings and variables of its own; nothing but verax is seen from there."""
    said = tmp_path / "said"
    outside = tmp_path / "python"
    note = f'echo "$PYTHONPATH $SAID" > {said}'
    outside.write_text(f'#!/bin/sh\n{note}\nexec {sys.executable} "$@"\n')
    outside.chmod(0o755)
    who = [
        Contestant("verax", str(EXAMPLE), 1),
        Contestant("verax", str(EXAMPLE), 1, {"opt_level": 1}, str(outside), {"SAID": "here"}),
        Contestant("verax", str(EXAMPLE), 1, {"target": "nothing"}),
    ]
    found = race("digits", who, {"image": IMAGE}, rounds=2, seconds=0.0, calls=1, warm=0.0)
    first, other, refused = found.timings
    assert not other.failure, other.failure
    assert other.difference < 1e-5
    folder, word = said.read_text().split()
    assert word == "here"
    assert "src" not in folder.split("/")
    assert "unknown target 'nothing'" in refused.failure
    assert 0 < first.imports < first.prepare < first.start_up
    assert first.peak_memory >= first.memory > 0 or sys.platform != "linux"


def test_an_engine_without_patience_takes_one_turn() -> None:
    who = [Contestant("verax", str(EXAMPLE), 1)]
    given = {"image": IMAGE}
    found = race("digits", who, given, rounds=5, seconds=0.0, calls=1, warm=0.0, patience=1e-9)
    assert len(found.timings[0].rounds) == 1


def test_who_is_far_behind_takes_two_turns_only() -> None:
    lanes = [
        rounds._Lane(Contestant(str(n), "", threads), process=None, outputs=Path(), timeout=1.0)  # type: ignore[arg-type]
        for n, threads in enumerate((1, 1, 1, 2))
    ]
    for lane, best in zip(lanes, (1.0, 2.9, 3.1, 9.0)):
        lane.lows.append(best)
    assert [lane.who.engine for lane in rounds._close_enough(lanes, 3.0)] == ["0", "1", "3"]
    assert rounds._close_enough(lanes, math.inf) == lanes
    who = [Contestant("verax", str(EXAMPLE), 1), Contestant("verax", str(EXAMPLE), 2)]
    given = {"image": IMAGE}
    found = race(
        "digits", who, given, rounds=4, seconds=0.0, calls=1, warm=0.0, behind=0.5, hasty=True
    )
    assert [len(t.rounds) for t in found.timings] == [2, 2]


def test_who_is_near_the_fastest_goes_on_until_two_turns_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lows = {
        (1, 1): [5.0, 4.0, 3.0, 3.05, 9.0],  # settled in the fourth turn
        (1, 0): [6.0, 5.0],  # far behind: no further turns
        (2, 1): [8.1, 8.0],  # settled before
        (2, 0): [9.0, 8.5, 8.0, 7.5, 7.0],  # never
    }

    def turn(lane: rounds._Lane, seconds: float, calls: int) -> None:
        low = lows[lane.who.threads, lane.who.settings["opt_level"]].pop(0)
        lane.rounds.append(low)
        lane.lows.append(low)

    monkeypatch.setattr(rounds._Lane, "turn", turn)
    monkeypatch.setattr(rounds, "REST", 0.0)
    who = [Contestant("verax", str(EXAMPLE), n, {"opt_level": level}) for n, level in lows]
    monkeypatch.setattr(rounds, "NEAR", 1.2)
    given = {"image": IMAGE}
    found = race("digits", who, given, rounds=2, seconds=0.0, calls=1, warm=0.0, further=3)
    assert [len(t.rounds) for t in found.timings] == [4, 2, 2, 5]


def test_a_worker_answers_in_the_protocol(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    np.savez(tmp_path / "in.npz", image=IMAGE)
    first = {
        "module": "onnxruntime",
        "settings": {},
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


def test_who_is_late_is_said_to_stand_somewhere(tmp_path: Path) -> None:
    order = {"limit": 0.1, "standing": str(tmp_path / "standing")}
    with watched(order):
        time.sleep(0.3)
    said = rounds._standing(Path(order["standing"]))
    assert said.startswith("; it stood at ")
    assert f"{Path(__file__).name}, line " in said
    with watched({**order, "limit": 60.0}):
        pass
    assert rounds._standing(Path(order["standing"])) == ""  # it was in time
    assert rounds._standing(tmp_path / "none") == ""


@pytest.mark.parametrize("name", sorted({e.module for e in ENGINES.values()}))
def test_a_process_that_is_timed_holds_nothing_else(name: str) -> None:
    code = f"import verax.runners.engines.{name}, verax.bench.worker, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    ours = {m for m in loaded.split() if m.startswith("verax.")}
    rooms = {m.split(".")[1] for m in ours}
    assert rooms == {"base", "bench", "runners"}, rooms
    assert not {"onnx", "torch", "openvino"} & set(loaded.split())
    assert f"verax.runners.engines.{name}" in ours


def test_every_engine_is_a_runner_or_only_timed_and_runs_files() -> None:
    assert set(ENGINES) - set(TIMED_ONLY) <= set(ENTRIES)
    assert not set(TIMED_ONLY) & set(ENTRIES)
    assert {"onnxruntime", "openvino", "tvm", "litert", "torch"} <= set(ENGINES)
    assert all(ENGINES[n].suffixes for n in ENGINES if not n.startswith("verax"))


@pytest.mark.parametrize(
    ("engine", "file", "package"),
    [
        ("verax:O0", "digits.onnx", "llvmlite"),
        ("onnxruntime:basic", "digits.onnx", "onnxruntime"),
        ("openvino", "digits.onnx", "openvino"),
        ("tvm", "digits.onnx", "tvm"),
        ("litert-builtin", "digits.tflite", "ai_edge_litert"),
        ("torch", "digits.pt2", "torch"),
    ],
)
def test_an_engine_gives_the_same_answer_as_verax(
    engine: str, file: str, package: str, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    path = EXAMPLE.with_name(file)
    model = verax.load(path)
    name = next(iter(model.inputs))
    lite = file.endswith(".tflite")  # whose batch is 1
    x = np.transpose(IMAGE[1:], (0, 2, 3, 1)).copy() if lite else IMAGE
    found = race("digits", [Contestant("verax", str(path), 1), Contestant(engine, str(path), 1)],
                 {name: x}, rounds=1, seconds=0.0, calls=1, warm=0.0)  # fmt: skip
    assert not found.timings[1].failure, found.timings[1].failure
    assert found.timings[1].difference < 1e-5
