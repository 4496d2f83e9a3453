"""Cells of the tables of a page."""

from __future__ import annotations

from verax.records.verdict import Kind
from verax.report.page.model import TableCell

MAX_ROWS = 500
"""Rows of a table; the record holds all."""


def name(text: str) -> TableCell:
    """A cell with a name, which is never cut."""
    return TableCell(text, "name")


def figure(value: float) -> TableCell:
    """A cell with a number of three digits."""
    return TableCell(f"{value:.3g}", "number")


def kind_cell(kind: Kind) -> TableCell:
    """A cell with an answer of the judge."""
    return TableCell(kind.value, "kind")


def count(value: int) -> TableCell:
    """A cell with a whole number."""
    return TableCell(str(value), "number")


def percent(share: float, digits: int = 1) -> TableCell:
    """A cell with a share, 0 to 1, in percent."""
    return TableCell(f"{100 * share:.{digits}f} %", "number")


def yes(value: bool) -> TableCell:
    """A cell with "yes" or "no"."""
    return TableCell("yes" if value else "no")


def counted(value: int, noun: str) -> str:
    """A number of things: "1 value", "2 values"."""
    return f"{value:,} {noun}{'s' * (value != 1)}"
