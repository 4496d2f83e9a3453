"""Networks that remember: `inspect`, `run`, `check` and `convert`, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import verax
from verax.frontends.common.ledger import Ledger
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.records.verdict import Kind
from verax.verified_conversion import convert

from .conftest import Cli

TEXT = """graph "total"
input %x: float32[2, 3]
state %total: float32[3] = [0.5, -1.0, 2.0]
const %axis: int64[1] = [0]
%sum: float32[3] = ReduceSum(keepdims=False)(%x, %axis)
%total.next: float32[3] = Add()(%total, %sum)
%y: float32[2, 3] = Mul()(%x, %total.next)
%twice: float32[2, 3] = Add()(%x, %x)
output %y
output %total.next -> %total
output %twice -> %x
"""


def total() -> Graph:
    return parse_graph(TEXT)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "total.vx"
    verax.compile(total(), threads=1).save(path)
    return path


@pytest.fixture
def x(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
    return path


def test_inspect_shows_state_apart_from_inputs(cli: Cli, program: Path, tmp_path: Path) -> None:
    found = cli("inspect", program, "--json", tmp_path / "a.json")
    assert "state  total: float32[3]" in found.out
    assert "input  total" not in found.out
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["state"] == {"total": "float32[3]"}
    assert list(facts["inputs"]) == ["x"]
    assert list(facts["outputs"]) == ["y", "twice"]


def test_run_continues_for_as_many_steps_as_asked_and_shows_the_state(
    cli: Cli, program: Path, x: Path, tmp_path: Path
) -> None:
    result = tmp_path / "out.npz"
    given = ("--input", f"x={x}", "--steps", 3, "-o", result)
    found = cli("run", program, *given, "--json", tmp_path / "a.json")
    assert found.code == 0, found.err
    assert "state total" in found.out
    assert json.loads((tmp_path / "a.json").read_text())["steps"] == 3
    with np.load(result) as stored:
        assert stored["total.next"].tolist() == [9.5, 14.0, 23.0]
        assert stored["in:total"].tolist() == [6.5, 9.0, 16.0]
        judged = verax.check(total(), dict(stored))
    assert judged.kind in (Kind.identical, Kind.rounding)


def test_run_refuses_no_steps(cli: Cli, program: Path, x: Path) -> None:
    assert cli("run", program, "--input", f"x={x}", "--steps", 0).code == 2


def test_a_program_file_is_judged_over_two_runs(program: Path) -> None:
    verdict = verax.check(total(), str(program))
    assert verdict.kind in (Kind.identical, Kind.rounding)
    assert {"total.next", "total.next@2", "twice@2"} <= {o.value for o in verdict.outputs}
    assert any("remembers total: 2 consecutive runs" in note for note in verdict.notes)
    assert any("writes to its input 'x'" in note for note in verdict.notes)


def test_conversion_makes_state_inputs_and_outputs_and_says_so(tmp_path: Path) -> None:
    target = tmp_path / "total.onnx"
    made = convert(Model(total(), Ledger(), "text"), target, verify=False)
    assert made.files == (target, tmp_path / "total.state.npz")
    written = onnx.load(target)
    assert [v.name for v in written.graph.input] == ["x", "total"]
    assert [v.name for v in written.graph.output] == ["y", "total.next", "twice"]
    entries = {p.key: p.value for p in written.metadata_props}
    assert json.loads(entries["verax.state"]) == {"total": "total.next"}
    with np.load(made.files[1]) as stored:
        assert stored["total"].tolist() == [0.5, -1.0, 2.0]
    first, second = made.notes
    assert "writes to its input 'x'" in first
    assert "'total.next' is the next run's 'total'" in second
    assert "total.state.npz" in second


def test_the_written_file_is_judged_over_two_runs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    made = convert(Model(total(), Ledger(), "text"), tmp_path / "total.onnx")
    assert made.verdict is not None
    assert made.verdict.kind in (Kind.identical, Kind.rounding)
    assert "total.next@2" in {o.value for o in made.verdict.outputs}


def test_bench_gives_a_network_that_remembers_its_inputs_only(cli: Cli, tmp_path: Path) -> None:
    convert(Model(total(), Ledger(), "text"), tmp_path / "total.onnx", verify=False)
    arguments = ("--against", "", "--rounds", 1, "--json", tmp_path / "a.json")
    found = cli("bench", tmp_path / "total.onnx", *arguments)
    assert found.code == 0, found.err
    assert "input x:" in found.out and "input total" not in found.out
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["inputs"] == {"x": "float32[2, 3]"} and record["timings"][0]["rounds"]
