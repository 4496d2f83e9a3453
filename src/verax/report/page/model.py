"""What a page shows of one record: plain data that the templates lay out, made by `sections`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from verax.report.page.pictures import Bar
from verax.report.page.views import NetworkView


@dataclass(frozen=True)
class TableCell:
    """Text of a table's cell. style: "name" for what is copied, "number", "text", or "kind"."""

    text: str
    style: str = "text"


@dataclass(frozen=True)
class PageTable:
    """caption, titles of the columns, and rows; the first cell of a row names it. is_open: at once,
    not only when somebody asks for it."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    is_open: bool = True


@dataclass(frozen=True)
class Picture:
    """A channel's errors: `data:` address of the image, its pixels, and what it shows."""

    address: str
    columns: int
    rows: int
    text: str


@dataclass(frozen=True)
class ErrorView:
    """Histogram and pictures of one value. axes: what rows and columns of the pictures are."""

    value: str
    shape: str
    bars: tuple[Bar, ...]
    beyond: str
    pictures: tuple[Picture, ...]
    axes: str


@dataclass(frozen=True)
class FaultyView:
    """A faulty node: its name and operator, sentences (head and text), and its errors."""

    node: str
    operator: str
    lines: tuple[tuple[str, str], ...]
    errors: ErrorView | None = None


@dataclass(frozen=True)
class LegendEntry:
    """A kind of node: how many there are, and what it means."""

    kind: str
    label: str
    count: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class GraphView:
    """A network in drawings. kinds: of each node, by index; box_kinds: of each box of each view.
    details: what a click on a node shows, by index, as the page's script reads it. suspects: nodes
    to look at first, by index; is_faulty: whether the first of them is to be shown at once."""

    title: str
    views: tuple[NetworkView, ...]
    box_kinds: tuple[tuple[str, ...], ...]
    legend: tuple[LegendEntry, ...]
    details: tuple[dict[str, Any], ...]
    omitted: int = 0
    suspects: tuple[int, ...] = ()
    is_faulty: bool = False


@dataclass(frozen=True)
class RecordSection:
    """One record. kind, word, sentence: the answer; title: what was judged; facts: beside it, by
    name; reasons, notes: sentences; blocks: (title, text) that is shown as it is."""

    kind: str
    word: str
    sentence: str
    title: str
    facts: tuple[tuple[str, str], ...] = ()
    reasons: Sequence[str] = ()
    reasons_title: str = "Why"
    causes: Sequence[str] = ()
    faulty: tuple[FaultyView, ...] = ()
    graphs: tuple[GraphView, ...] = ()
    tables: tuple[PageTable, ...] = ()
    notes: Sequence[str] = ()
    blocks: tuple[tuple[str, str], ...] = ()
    certificate: str = ""
    environment: tuple[tuple[str, str], ...] = field(default_factory=tuple)
