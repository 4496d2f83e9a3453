"""`verax passes --model`: how often each pass rewrote something in it, and how often it refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.compiler.amplifying import log, network, residual, unary
from verax.base.option_groups import deprecation
from verax.export.onnx.writer import to_bytes


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name, piece in (("log", log), ("residual", residual)):
        graph = network("strassen", unary("Relu"), piece)
        (tmp_path / f"{name}.onnx").write_bytes(to_bytes(graph))
    return tmp_path


def test_refusals_are_counted_and_explained(cli: Cli, models: Path) -> None:
    found = cli("passes", "--model", models / "log.onnx", "--json", models / "p.json")
    assert found.code == 0
    assert "refused, choose_strassen: node" in found.out
    assert "(Log) would amplify errors: node 'layer' (MatMul)" in found.out
    facts = {f["name"]: f for f in json.loads((models / "p.json").read_text())["passes"]}
    assert facts["choose_strassen"]["rewrites"] == 0
    assert len(facts["choose_strassen"]["refused"]) == 1
    assert facts["choose_winograd"]["refused"] == []

    found = cli("passes", "choose_strassen", "--model", models / "residual.onnx")
    assert "in the model: 1 rewrites, 0 refused" in found.out
    assert cli("passes", "--shape", "n=1").code == 2


def test_compiling_says_it_too(cli: Cli, models: Path) -> None:
    for _ in ("made", "found in the cache"):
        found = cli(
            *("compile", models / "log.onnx", "-o", models / "log.vx", "--plan"),
            *("--json", models / "c.json"),
        )
        assert found.code == 0
        assert "1 layers stay exact" in found.out and "kept exact, choose_strassen" in found.out
        assert len(json.loads((models / "c.json").read_text())["refused"]) == 1
    found = cli("compile", models / "residual.onnx", "-o", models / "residual.vx")
    assert "stay exact" not in found.out


def test_an_old_name_of_a_pass_is_taken_and_said_once(
    cli: Cli, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deprecation, "_warned", set())
    shown = cli("passes", "canonicalise")
    assert shown.code == 0 and "canonicalize: exact" in shown.out
    assert "the pass canonicalise is called canonicalize now" in shown.err
    options = ("--shape", "image=1x1x9x7", "--disable", "fold_pads,canonicalise,recognise_gelu")
    compiled = cli("compile", tiny, "-o", tmp_path / "tiny.vx", *options)
    assert compiled.code == 0
    assert compiled.err.count("recognise_gelu is called recognize_gelu now") == 1
    assert "canonicalise" not in compiled.err
