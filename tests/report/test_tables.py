"""Tables keep names whole at any width: other columns are folded or left out, which is said."""

from __future__ import annotations

import io

import pytest

from verax.report.console import PlainConsole
from verax.report.tables import Column, FittingTable

NAMES = ["node_Conv_512", "node_Conv_517", "/model.22/dfl/conv/Conv_output_0"]
COLUMNS = (
    Column("node", unbroken=True),
    Column("verdict", rank=2),
    Column("a longer heading", rank=1),
    Column("worst in"),
)


def printed(width: int | None, names: list[str] = NAMES) -> str:
    rows = [(n, "rounding", "0.5", f"channel {i} of a group") for i, n in enumerate(names)]
    file = io.StringIO()
    PlainConsole(file=file, width=width).print(FittingTable("Suspects", COLUMNS, rows))
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 100, 200])
def test_names_are_whole_and_lines_fit(width: int) -> None:
    text = printed(width)
    for name in NAMES:
        assert name in text
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_words_are_not_cut_before_columns_are_left_out() -> None:
    assert "left out" not in printed(80)
    text = printed(60)
    assert "worst in" not in text.partition("left out")[0]
    assert "left out for want of width: worst in" in text
    assert "heading" in text.partition("left out")[0] and "rounding" in text


def test_a_name_wider_than_the_terminal_goes_on_in_the_next_line() -> None:
    name = "block_" * 12
    text = printed(30, [name])
    cells = [line.strip("│ ") for line in text.splitlines() if line.startswith("│")]
    assert "".join(cells) == name


def test_lines_of_a_pipe_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "layer/" * 90
    assert name in printed(None, [name])
    monkeypatch.setenv("COLUMNS", "70")
    assert max(map(len, printed(None, [name]).splitlines())) <= 70


def test_a_name_with_spaces_stays_in_one_line() -> None:
    name = "Functional 1/conv 2d 3/bias add"
    for width in (40, 50, 60):
        assert name in printed(width, [name])


def test_names_are_no_markup() -> None:
    assert "[red]x[/red]" in printed(100, ["[red]x[/red]"])
