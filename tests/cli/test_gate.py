"""`verax gate`: the upgrade check from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from verax.records.gate import GateChange, GateRecord

from .conftest import Cli

NEXT = Path(__file__).parents[2] / "examples" / "gate" / "next_version.py"
WRONG = f"cmd:{sys.executable} {NEXT} {{model}} {{input}} {{output}}"


def test_two_levels_differ_within_rounding(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    record, text, page = (tmp_path / f"gate.{end}" for end in ("json", "md", "html"))
    found = cli(
        *("gate", "verax:O0", "verax:O3", tiny, tiny),
        *("--json", record, "--markdown", text, "--html", page),
    )
    assert found.code == 0, found.err
    assert "2 models: 2 changed, does not matter" in found.out or "2 unchanged" in found.out
    read = GateRecord.from_json(record.read_text())
    assert [m.model for m in read.models] == [str(tiny)] * 2
    assert "| model | old | new |" in text.read_text()
    assert "<html" in page.read_text()
    shown = cli("report", record, "-o", tmp_path / "again.html")
    assert shown.code == 0 and (tmp_path / "again.html").read_text() == page.read_text()


def test_a_mistake_in_the_new_version_has_a_node_and_a_cause(
    cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    record, text = tmp_path / "gate.json", tmp_path / "gate.md"
    found = cli("gate", "verax:O0", WRONG, tiny, "--json", record, "--markdown", text)
    assert found.code == 1
    assert "MATTERS" in found.out
    assert "node conv (Conv): all pads at the begin" in found.out
    assert json.loads(record.read_text())["schema"] == "verax.gate/1"
    assert "changed, matters" in text.read_text() and "### Versions" in text.read_text()


def test_inputs_are_given_by_name_and_seeds_draw_others(
    cli: Cli, tiny: Path, tmp_path: Path
) -> None:
    image = np.random.default_rng(5).random((3, 1, 9, 7), np.float32)
    np.savez(tmp_path / "inputs.npz", image=image)
    record = tmp_path / "gate.json"
    levels = "gate", "verax:O0", "verax:O1", tiny
    assert cli(*levels, "--inputs", tmp_path / "inputs.npz", "--json", record).code == 0
    (model,) = GateRecord.from_json(record.read_text()).models
    assert model.change is GateChange.unchanged and model.inputs[0].origin == "given"
    hashes = {model.inputs[0].sha256}
    for seed in (0, 1):
        assert cli(*levels, "--seed", seed, "--json", record).code == 0
        hashes.add(GateRecord.from_json(record.read_text()).models[0].inputs[0].sha256)
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verax:O0", "verax:O9", "{tiny}"), "there is no runner"),
        (("verax:O0", "verax:O1", "nothing.onnx"), "nothing.onnx"),
        (("verax:O0", "verax:O1", "{tiny}", "--inputs", "none.npz"), "there is no such file"),
        (("verax:O0", "onnxruntime@new", "{tiny}"), "no version of ONNX Runtime"),
        (("verax:O0", "verax:O1"), "models"),
    ],
)
def test_what_cannot_be_done_is_said(
    cli: Cli, tiny: Path, arguments: tuple[str, ...], message: str
) -> None:
    found = cli("gate", *(a.format(tiny=tiny) for a in arguments))
    assert found.code == 2 and message in found.err
