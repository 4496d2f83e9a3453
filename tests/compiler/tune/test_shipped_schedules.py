"""What comes with Verax is taken where nothing was measured, on the processors that it was measured
on, and changes no bit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from verax.base.machine.processor import processor_family
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts import default_history, shipped
from verax.compiler.artifacts.default_history import tuned_schedules
from verax.compiler.artifacts.shipped import FOLDER, ShippedSchedules, file_name, shipped_path
from verax.compiler.compile import compile as compile_graph
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.kernels.target import Target
from verax.compiler.network_bench import NetworkBench
from verax.compiler.tune.history import LINE, ChosenSchedule, Contents, History, chosen_line
from verax.compiler.tune.host import Host
from verax.compiler.tune.lookup import Tuned, encoded
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

SETTINGS = Settings(opt_level=1, threads=1)
HERE = Host.here(Target.host(), 1)
OLDER = dataclasses.replace(HERE, code="of another version", processor="Another of them")
FEEDS = {"x": np.random.default_rng(8110).standard_normal((2, 35, 9, 11)).astype(np.float32)}


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(8111)
    b = Builder("small")
    x = b.input("x", TensorType.of(FEEDS["x"]))
    w = rng.standard_normal((50, 35, 3, 2), np.float32)
    return b.graph([b.add(REGISTRY["Conv"](), [x, b.constant(w)])])


@pytest.fixture(scope="module")
def kernel(graph: Graph) -> tuple[Spec, Schedule]:
    """The convolution, and a schedule that the rules do not choose."""
    workload = NetworkBench(graph, SETTINGS, FEEDS).profile()[0].workload
    return workload.spec, dataclasses.replace(workload.schedule, unroll=2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of the one that comes with Verax; nothing was measured here."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "shipped")
    monkeypatch.setattr(default_history, "default_history", lambda: str(tmp_path / "own.jsonl"))
    (tmp_path / "shipped").mkdir()
    return tmp_path / "shipped"


def ship(folder: Path, kernel: tuple[Spec, Schedule], host: Host = OLDER) -> Path:
    """Have a file of this machine's name come with Verax that says what a host found."""
    path = folder / file_name(HERE.target.partition(" ")[0], processor_family(), 1)
    spec, schedule = kernel
    entry = ChosenSchedule(digest(spec), host, encoded(schedule), 1.5)
    path.write_text(json.dumps({"schema": LINE, **chosen_line(entry)}) + "\n")
    return path


def test_what_another_of_the_family_found_is_taken_and_said(
    folder: Path, graph: Graph, kernel: tuple[Spec, Schedule]
) -> None:
    by_rule = compile_graph(graph, SETTINGS)
    assert tuned_schedules(True, SETTINGS) is None
    ship(folder, kernel)
    schedules = tuned_schedules(True, SETTINGS)
    assert isinstance(schedules, ShippedSchedules)
    exe = compile_graph(graph, SETTINGS, tuned=schedules)
    assert exe.plan.tuning == (
        "0 of 1 kernels tuned exactly here; 1 as shipped, measured on Another of them"
    )
    assert "unrolled by 2" in str(exe.plan)
    assert "unrolled by 2" not in str(by_rule.plan)
    mine, its = exe.run(FEEDS), by_rule.run(FEEDS)
    assert [a.tobytes() for a in mine.values()] == [a.tobytes() for a in its.values()]
    assert exe.recipe == by_rule.recipe
    assert tuned_schedules(False, SETTINGS) is None


@pytest.mark.parametrize(
    "other", [{"family": "Another 6"}, {"target": "another"}, {"threads": 2}], ids=str
)
def test_of_others_nothing_is_taken(
    folder: Path, graph: Graph, kernel: tuple[Spec, Schedule], other: dict[str, object]
) -> None:
    ship(folder, kernel, dataclasses.replace(OLDER, **other))  # type: ignore[arg-type]
    exe = compile_graph(graph, SETTINGS, tuned=tuned_schedules(True, SETTINGS))
    assert exe.plan.tuning == ""
    assert "unrolled by 2" not in str(exe.plan)
    assert tuned_schedules(True, Settings(opt_level=1, threads=2)) is None, "another file's"


def test_what_was_measured_here_comes_first(
    folder: Path, graph: Graph, kernel: tuple[Spec, Schedule], tmp_path: Path
) -> None:
    ship(folder, kernel)
    spec, schedule = kernel
    own = dataclasses.replace(schedule, unroll=8)  # type: ignore[type-var]
    entry = ChosenSchedule(digest(spec), HERE, encoded(own), 1.1)
    history = History(tmp_path / "own.jsonl")
    history.append([chosen_line(entry)])
    exe = compile_graph(graph, SETTINGS, tuned=tuned_schedules(True, SETTINGS))
    assert exe.plan.tuning == "1 of 1 kernels tuned exactly here"
    assert "unrolled by 8" in str(exe.plan)
    named = tuned_schedules(history.path, SETTINGS)
    assert isinstance(named, Tuned)
    assert named.lookup()(spec) == own
    history.path.unlink()
    history.append([chosen_line(dataclasses.replace(entry, kernel="another"))])
    behind = tuned_schedules(True, SETTINGS)
    assert isinstance(behind, Tuned)
    assert behind.lookup()(spec) == schedule, "of its own it has nothing for this kernel"
    alone = tuned_schedules(history.path, SETTINGS)
    assert isinstance(alone, Tuned)
    assert alone.lookup()(spec) is None, "a file that is named stands alone"


def test_programs_are_named_by_what_is_shipped(folder: Path, kernel: tuple[Spec, Schedule]) -> None:
    path = ship(folder, kernel)
    first = ShippedSchedules(path, Target.host(), 1).digest
    other = ship(folder, kernel, dataclasses.replace(OLDER, code="still another")).rename(
        folder / "other"
    )
    assert first != ShippedSchedules(other, Target.host(), 1).digest


def shipped_files() -> Iterable[Path]:
    return sorted(FOLDER.glob("*.jsonl"))


def test_the_files_that_come_with_verax_are_whole() -> None:
    """Every line is a choice that is one of its file's name, gains, and says where it is from."""
    for path in shipped_files():
        data = path.read_bytes()
        contents = Contents().after(data)
        assert contents.lines == len(contents.schedules) == data.count(b"\n") > 0
        assert not (contents.unreadable or contents.later)
        for entry in contents.schedules:
            host = entry.host
            assert path.name == file_name(host.target.partition(" ")[0], host.family, host.threads)
            assert entry.gain >= 1.02
            assert entry.origin.network
            assert entry.origin.verax


def test_nothing_is_asked_for_where_the_target_does_not_run(folder: Path) -> None:
    foreign = next(t for t in map(Target.named, ("aarch64", "avx2")) if not t.runs_here())
    (folder / file_name(foreign.name, processor_family(), 1)).write_text("")
    assert shipped_path(foreign, 1) is None
