"""`verax cache`, and `verax compile` with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_a_program_is_found_the_second_time_unless_told_otherwise(
    cli: Cli, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))

    def compiled(*options: object) -> tuple[bool, str]:
        found = cli(
            "compile", digits, "-o", tmp_path / "a.vx", "--shape", "n=1",
            "--json", tmp_path / "a.json", *options,
        )  # fmt: skip
        assert found.code == 0, found.err
        facts = json.loads((tmp_path / "a.json").read_text())
        return facts["from_cache"], found.out

    assert compiled()[0] is False
    kept, told = compiled()
    assert kept and "found in the cache in" in told
    assert compiled("--no-cache")[0] is False
    assert (
        "1 programs, 0 certificates, 3 records of models and 0 files of weights" in cli("cache").out
    )
    cleared = cli("cache", "--clear")
    assert "removed 4 files" in cleared.out and "0 programs" in cleared.out
    assert compiled()[0] is False


def test_a_cache_that_is_off_says_so(cli: Cli) -> None:
    assert "the cache is off (VERAX_CACHE)" in cli("cache").out


def test_a_limit_that_is_none_is_an_error(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path))
    monkeypatch.setenv("VERAX_CACHE_SIZE", "much")
    found = cli("cache")
    assert found.code == 2 and "'much' is no amount of memory" in found.err
