"""`verax report`, and --html and --markdown of the commands that judge or measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from verax.records.verdict import SCHEMA


@pytest.fixture
def record(cli: Cli, tiny: Path, tmp_path: Path) -> Path:
    """A record of a check of the tiny network."""
    assert cli("check", tiny, "reference", "--json", tmp_path / "a.json").code == 0
    return tmp_path / "a.json"


def test_a_check_writes_page_and_text_itself(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    files = "--html", tmp_path / "a.html", "--markdown", tmp_path / "a.md"
    assert cli("check", tiny, "verax:O1", *files, "--json", tmp_path / "a.json").code == 0
    page = (tmp_path / "a.html").read_text()
    assert page.startswith("<!doctype html>") and "verax:O1" in page and "ROUNDING" in page
    assert "verax.check(model," in (tmp_path / "a.md").read_text()
    assert cli("report", tmp_path / "a.json", "-o", tmp_path / "b.html").code == 0
    assert (tmp_path / "b.html").read_text() == page, "the record holds all that the page shows"


def test_a_bisection_too(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    assert cli("bisect", tiny, "verax:O0", "--html", tmp_path / "a.html").code == 0
    assert "searched" in (tmp_path / "a.html").read_text()


def test_two_models(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    assert cli("check", tiny, tiny, "--html", tmp_path / "a.html").code == 0
    page = (tmp_path / "a.html").read_text()
    assert "First: " in page and "Second: " in page and "the same in both" in page


def test_measured_records(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    bench = (
        "--against",
        "onnxruntime",
        "--rounds",
        1,
        "--shape",
        "n=2",
        "--html",
        tmp_path / "a.html",
    )
    assert cli("bench", tiny, *bench).code == 0
    assert "fastest, ms" in (tmp_path / "a.html").read_text()
    refused = cli("bench", tiny, "--profile", "--html", tmp_path / "b.html")
    assert refused.code == 2 and "not a profile" in refused.err


def test_without_options_the_page_lies_beside_the_record(cli: Cli, record: Path) -> None:
    found = cli("report", record)
    assert found.code == 0 and f"written: {record.with_suffix('.html')}" in found.out
    assert record.with_suffix(".html").is_file()


def test_everything_at_once(cli: Cli, record: Path, tiny: Path, tmp_path: Path) -> None:
    model = tmp_path / "copy.onnx"
    model.write_bytes(tiny.read_bytes())
    files = [tmp_path / name for name in ("r.html", "r.md", "r.nodes.json")]
    flags = ["-o", files[0], "--markdown", files[1], "--model-explorer", files[2]]
    assert cli("report", record, *flags, "--annotate", model).code == 0
    assert all(f.stat().st_size for f in (*files, tmp_path / "copy.verdict.onnx"))


def test_a_record_of_version_4_opens(cli: Cli, record: Path) -> None:
    data = json.loads(record.read_text())
    assert data["schema"] == SCHEMA and data.pop("network") and data.pop("errors")
    record.write_text(json.dumps({**data, "schema": "verax.verdict/4"}))
    assert cli("report", record).code == 0
    page = record.with_suffix(".html").read_text()
    assert "ROUNDING" in page or "IDENTICAL" in page
    assert "<svg" not in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "no record that a report shows"),
        ('{"schema": "verax.recipe/2"}', "no record that a report shows"),
        ('{"schema": "verax.verdict/3"}', "this version reads"),
        ("<html>", "not a record of Verax"),
        ("\udcff", "not a record of Verax"),
    ],
)
def test_other_files_are_refused(cli: Cli, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    found = cli("report", tmp_path / "a.json", "-o", tmp_path / "a.html")
    assert found.code == 2 and message in found.err and "a.json" in found.err
    assert not (tmp_path / "a.html").exists()


def test_bad_targets_are_refused_before_the_work(cli: Cli, record: Path, tmp_path: Path) -> None:
    before = record.read_bytes()
    assert "over the record itself" in cli("report", record, "-o", record).err
    assert "does not exist" in cli("report", record, "-o", tmp_path / "no" / "a.html").err
    two = cli("report", record, record, "--model-explorer", tmp_path / "n.json")
    assert two.code == 2 and "one verdict at a time" in two.err
    assert record.read_bytes() == before
