"""An `Agreement` for the terminal: how many images, which differ, and whether that is a mistake."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.agreement import Agreement
from verax.records.verdict import Kind
from verax.report.tables import Column, FittingTable
from verax.report.verdict import HEADLINES, render_verdict

SHOWN = 10
"""Disagreements listed unless all are asked for."""


def render_agreement(agreement: Agreement, *, verbose: bool = False) -> RenderableType:
    """What `verax check --images` prints. verbose: every disagreement and the whole verdict."""
    return _AgreementReport(agreement, verbose)


class _AgreementReport:
    """An agreement as a rich renderable."""

    def __init__(self, agreement: Agreement, verbose: bool) -> None:
        self.record, self.verbose = agreement, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record = self.record
        word, color, sentence = HEADLINES[record.kind]
        yield Text.assemble((f" {word} ", f"bold white on {color}"), f"  {sentence}")
        share = f"{record.agreeing} of {record.images} images: the same choice in {record.output!r}"
        yield Text(f"subject: {record.subject.get('name', '?')}   {share}")
        yield from (Text(f"- {r}") for r in record.reasons)
        if record.disagreements:
            yield _table(record, self.verbose)
        if record.unread:
            name, reason = next(iter(record.unread.items()))
            more = f" and {len(record.unread) - 1} more" if len(record.unread) > 1 else ""
            yield Text(f"note: not read: {name} ({reason}){more}", style="yellow")
        if record.steps:
            yield Text(f"images, such as {record.judged}: {'; '.join(record.steps)}", style="dim")
        if self.verbose or record.kind is Kind.mistake:
            yield render_verdict(record.verdict, verbose=self.verbose)


def _table(record: Agreement, verbose: bool) -> FittingTable:
    listed = record.disagreements if verbose else record.disagreements[:SHOWN]
    of = (
        f"{len(listed)} of {len(record.disagreements)}"
        if len(listed) < len(record.disagreements)
        else "all"
    )
    columns = (
        Column("image", unbroken=True),
        Column("should be", rank=3),
        Column("given", rank=3),
        Column("margin", rank=1),
        Column("rounding moves it by"),
        Column("near tie", rank=2),
    )
    rows = []
    for d in listed:
        sizes = f"{d.margin:.3g}", f"{d.sigma:.3g}"
        near = "yes" if d.near else "no"
        rows.append((d.image, str(d.expected), str(d.given), *sizes, near))
    return FittingTable(f"Images on which the choice differs ({of})", columns, rows)


def render_replay(
    same: bool, differences: Sequence[str], versions: Sequence[str]
) -> RenderableType:
    """How a replayed record compares with the old one."""
    if same and not differences:
        text = Text("replay: the same answer, every figure the same", style="green")
    elif same:
        text = Text(f"replay: the same answer; {'; '.join(differences)}", style="yellow")
    else:
        text = Text(f"replay: NOT the same answer: {'; '.join(differences)}", style="bold red")
    for version in versions:
        text.append(f"\nsince then: {version}", style="yellow")
    return text
