"""State in ONNX files that Verax wrote, and `check --steps`, without torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import verax
from verax.base.errors import ModelError, UsageError, VeraxError
from verax.base.storage.npz import write_npz
from verax.frontends.common.ledger import Ledger
from verax.frontends.model import Model
from verax.frontends.onnx import load_onnx
from verax.ir.graph import Graph
from verax.ir.text import parse_graph
from verax.onnx_format.state import NOTE, STATE, WRITTEN
from verax.verified_conversion import convert

from .conftest import Cli

TEXT = """graph "total"
input %x: float32[2, 3]
state %total: float32[3] = [0.5, -1.0, 2.0]
state %count: bfloat16[] = 1.0
const %axis: int64[1] = [0]
%sum: float32[3] = ReduceSum(keepdims=False)(%x, %axis)
%total.next: float32[3] = Add()(%total, %sum)
%count.next: bfloat16[] = Add()(%count, %count)
%y: float32[2, 3] = Mul()(%x, %total.next)
%twice: float32[2, 3] = Add()(%x, %x)
output %y
output %total.next -> %total
output %count.next -> %count
output %twice -> %x
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def total() -> Graph:
    return parse_graph(TEXT)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    convert(Model(total(), Ledger(), "text"), tmp_path / "total.onnx", verify=False)
    return tmp_path / "total.onnx"


def test_reading_back_gives_the_state_again(written: Path, tmp_path: Path) -> None:
    model = load_onnx(written)
    assert dict(model.graph.updates) == dict(total().updates)
    assert list(model.state) == ["total", "count"]
    assert list(model.inputs) == ["x"]
    assert model.graph.initial["total"].tolist() == [0.5, -1.0, 2.0]
    assert model.graph.initial["count"].dtype == ml_dtypes.bfloat16
    exe = verax.compile(model, threads=1)
    exe.run({"x": X})
    assert exe.run({"x": X})["y"].tolist() == (X * [6.5, 9.0, 16.0]).tolist()
    assert float(exe.state["count"]) == 4
    convert(model, tmp_path / "again.onnx", verify=False)
    again = load_onnx(tmp_path / "again.onnx")
    assert again.graph.initial.keys() == model.graph.initial.keys()


def edited(path: Path, key: str, value: str) -> None:
    proto = onnx.load(path)
    for entry in proto.metadata_props:
        if entry.key == key:
            entry.value = value
    onnx.save(proto, path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p: p.with_suffix(".state.npz").unlink(), "total.state.npz is not there"),
        (lambda p: edited(p, STATE, '{"total": "sum"}'), "no input 'total' with the output 'sum'"),
        (lambda p: edited(p, STATE, '{"total": "y"}'), "'y' is float32[2, 3]"),
        (lambda p: edited(p, STATE, "[" * 100_000), "no input '' with the output ''"),
        (lambda p: edited(p, STATE, '{"total": 3}'), "no input '' with the output ''"),
        (lambda p: edited(p, WRITTEN, '{"x": "y", "total": "y"}'), "'total' is float32[3]"),
    ],
)
def test_what_does_not_fit_is_said_and_stays_inputs_and_outputs(
    written: Path, change: Callable[[Path], None], why: str
) -> None:
    change(written)
    model = load_onnx(written)
    assert list(model.inputs) == ["x", "total", "count"]
    assert not model.state
    assert why in model.metadata[NOTE]
    assert "not remembered" in model.metadata[NOTE]


@pytest.mark.parametrize(
    ("arrays", "error", "words"),
    [
        ({"total": np.zeros(3, "f")}, ModelError, "holds no 'count'"),
        ({"total": np.zeros(4, "f"), "count": np.zeros((), "V2")}, ModelError, "begins as"),
        ({"total": np.zeros(3), "count": np.zeros((), "V2")}, ModelError, "begins as float64"),
        ({"total": np.zeros(3, "c8"), "count": np.zeros((), "V2")}, ModelError, "complex64"),
        ({"total": np.zeros(3, "f"), "count": np.zeros((), "V4")}, ModelError, "begins as"),
    ],
)
def test_a_state_file_that_does_not_belong_to_the_model_is_refused(
    written: Path, arrays: dict[str, np.ndarray], error: type[VeraxError], words: str
) -> None:
    write_npz(written.with_suffix(".state.npz"), arrays)
    with pytest.raises(error, match=words):
        load_onnx(written)


def test_a_state_file_that_is_broken_or_leaves_the_folder_is_refused(
    written: Path, tmp_path: Path
) -> None:
    state = written.with_suffix(".state.npz")
    state.write_bytes(b"PK no archive")
    with pytest.raises(UsageError, match=r"no readable \.npz"):
        load_onnx(written)
    state.unlink()
    (tmp_path / "inner").mkdir()
    written.rename(tmp_path / "inner" / "total.onnx")
    write_npz(tmp_path / "elsewhere.npz", {"total": np.zeros(3, "f")})
    (tmp_path / "inner" / "total.state.npz").symlink_to(tmp_path / "elsewhere.npz")
    with pytest.raises(ModelError, match="outside of the model's folder"):
        load_onnx(tmp_path / "inner" / "total.onnx")


def test_steps_judges_so_many_runs_and_is_replayed(cli: Cli, written: Path, tmp_path: Path) -> None:
    record = tmp_path / "a.json"
    found = cli("check", written, "verax:O1", "--steps", 3, "--json", record)
    assert found.code == 0, found.err
    assert "3 consecutive runs were judged" in found.out
    facts = json.loads(record.read_text())
    assert {"y", "y@3", "count.next@3"} <= {o["value"] for o in facts["outputs"]}
    again = cli("check", "--replay", record)
    assert again.code == 0
    assert "3 consecutive runs were judged" in again.out
    assert "2 consecutive runs" in cli("check", written, "reference").out
    assert "one run was judged" in cli("check", written, "reference", "--steps", 1).out


def test_a_fault_of_the_third_run_needs_three_steps(tmp_path: Path, cli: Cli) -> None:
    right = """graph "doubling"
input %x: float32[2, 3]
state %total: float32[3] = [1.0, 0.5, 0.25]
const %cap: float32[] = 5.0
%double: float32[3] = Add()(%total, %total)
%total.next: float32[3] = Identity()(%double)
%y: float32[2, 3] = Mul()(%x, %total.next)
output %y
output %total.next -> %total
"""
    convert(Model(parse_graph(right), Ledger(), "text"), tmp_path / "net.onnx", verify=False)
    wrong = parse_graph(right.replace("Identity()(%double)", "Min()(%double, %cap)"))
    verax.compile(wrong, threads=1).save(tmp_path / "wrong.vx")
    codes = [cli("check", tmp_path / "net.onnx", tmp_path / "wrong.vx").code]
    for steps in (2, 3):
        judged = cli("check", tmp_path / "net.onnx", tmp_path / "wrong.vx", "--steps", steps)
        codes.append(judged.code)
    assert codes == [0, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("STATE", "verax:O1", "--steps", 0), "--steps"),
        (("STATE", "verax:O1", "--steps", 1_000_000), "more than can be judged at once"),
        (("PLAIN", "verax:O1", "--steps", 3), "the network remembers nothing"),
        (("PLAIN", "PLAIN", "--steps", 3), "--steps does not go with"),
        (("PLAIN", "verax:O1", "--images", ".", "--steps", 3), "--steps does not go with --images"),
        (("STATE", "RECORDED", "--steps", 2), "recorded answers are those of one"),
    ],
)
def test_steps_that_make_no_sense_are_refused(
    cli: Cli, written: Path, tiny: Path, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    recorded = tmp_path / "recorded.npz"
    np.savez(recorded, x=X, y=X)
    names = {"STATE": written, "PLAIN": tiny, "RECORDED": recorded}
    found = cli("check", *(names.get(str(a), a) for a in arguments))
    assert found.code == 2
    assert words in found.err


def test_a_network_without_memory_takes_one_step(cli: Cli, tiny: Path) -> None:
    assert cli("check", tiny, "reference", "--steps", 1).code == 0


def test_bisect_takes_steps_too(cli: Cli, written: Path) -> None:
    found = cli("bisect", written, "verax:O1", "--steps", 3)
    assert found.code == 0, found.err
    assert "3 consecutive runs were judged" in found.out
