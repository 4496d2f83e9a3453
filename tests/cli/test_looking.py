"""`inspect`, `ops`, `passes`, `runners`, `formats`, `doctor`: what can be looked up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Cli


def test_inspect_shows_types_operators_and_the_ledger(cli: Cli, digits: Path) -> None:
    found = cli("inspect", digits, "--ledger")
    assert found.code == 0
    assert "image: float32[n, 1, 24, 20]" in found.out
    assert "3 ConvTranspose" in found.out
    assert "none dropped" in found.out
    assert "SAME_UPPER" in found.out


def test_inspect_prints_a_graph_that_parses_back(cli: Cli, digits: Path) -> None:
    found = cli("inspect", digits, "--graph")
    assert 'graph "digits"' in found.out
    assert "output_padding=(1, 0)" in found.out


def test_inspect_resolves_given_shapes(cli: Cli, digits: Path) -> None:
    assert "probabilities: float32[5, 10]" in cli("inspect", digits, "--shape", "n=5").out


def test_inspect_writes_json(cli: Cli, digits: Path, tmp_path: Path) -> None:
    cli("inspect", digits, "--json", tmp_path / "a.json")
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["schema"] == "verax.inspect/1"
    assert facts["operators"]["BatchNormalization"] == 5
    assert facts["outputs"]["drawing"] == "float32[n, 1, 24, 20]"


@pytest.mark.parametrize("command", ["ops", "passes", "runners", "formats", "doctor", "cache"])
def test_listings_are_written_as_json_too(cli: Cli, command: str, tmp_path: Path) -> None:
    found = cli(command, "--json", tmp_path / "a.json")
    assert (found.code, found.err) == (0, "")
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == f"verax.{command}/1"


def test_one_operator_is_explained_whatever_its_case(cli: Cli) -> None:
    found = cli("ops", "convtranspose")
    assert found.code == 0
    assert "output_padding" in found.out


def test_a_mistyped_operator_is_answered_with_a_suggestion(cli: Cli) -> None:
    found = cli("ops", "Convv")
    assert found.code == 2
    assert "did you mean Conv" in found.err


def test_passes_say_class_and_level(cli: Cli) -> None:
    out = cli("passes").out
    assert "fold_constants" in out
    assert "exact" in out


def test_doctor_runs_native_code(cli: Cli) -> None:
    out = cli("doctor").out
    assert "right, bit for bit" in out
    assert "all well" in out


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").out.startswith("verax ")
    assert "inspect" in cli("--help").out
    assert cli().code in (0, 2)
