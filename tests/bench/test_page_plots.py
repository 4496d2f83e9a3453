"""Plots draw the numbers of their pages' tables."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from benchmarks.page_plots import MODELS, STREAMS, speeds, streams, table

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_a_table_is_read_by_its_first_heading() -> None:
    page = (
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n| network | n |\n|---|--:|\n| x | 1,234.5 |\n| | 3 |\n"
    )
    assert [*table(page, "network")] == [
        {"network": "x", "n": "1,234.5"},
        {"network": "x", "n": "3"},
    ]
    with pytest.raises(ValueError, match="no table begins with 'weights'"):
        table(page, "weights")


def test_the_pages_have_what_is_drawn() -> None:
    names, ratios = streams(table((DOCS / "changing_sizes.md").read_text(), STREAMS))
    assert len(names) == 5 and all(len(v) == 5 and min(v) > 0 for v in ratios.values())
    rows = table((DOCS / "language_models.md").read_text(), MODELS)
    weights, engines = speeds(rows, "decode tokens/s", "512")
    assert len(weights) >= 4 and min(engines["Verax"]) > 0
    for page in ("changing_sizes", "language_models"):
        assert f"({page}.svg)" in (DOCS / f"{page}.md").read_text()
        assert (DOCS / f"{page}.svg").read_text().startswith("<?xml")
