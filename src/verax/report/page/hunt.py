"""The record of `verax hunt` as a section of a page."""

from __future__ import annotations

from verax.records.hunt import HuntResult
from verax.report.page.cells import MAX_ROWS, count, counted, name
from verax.report.page.model import PageTable, RecordSection, TableCell
from verax.report.page.network_details import UNJUDGED

SHOWN = 40
"""Findings whose text for an issue tracker is on the page, the surest first."""


def hunt_section(record: HuntResult) -> RecordSection:
    """What was hunted, how many cases came to what, and every distinct finding."""
    confirmed, total = len(record.confirmed), len(record.findings)
    word = f"{confirmed} CONFIRMED" if total else "NOTHING FOUND"
    with_texts = [f for f in record.sorted_findings if f.key in record.certificates][:SHOWN]
    return RecordSection(
        kind="mistake" if confirmed else "undecided" if total else UNJUDGED,
        word=word,
        sentence=record.figures(),
        title=record.subject,
        facts=(
            ("seed", str(record.seed)),
            ("cases of the store", str(sum(record.counts.values()))),
        ),
        tables=(_findings(record), _outcomes(record)) if total else (_outcomes(record),),
        blocks=tuple(
            (
                f"{f.confidence}: {f.classification} of {f.operator} ({f.key})",
                record.certificates[f.key],
            )
            for f in with_texts
        ),
        environment=tuple(record.environment.items()),
    )


def _findings(record: HuntResult) -> PageTable:
    columns = (
        *("finding", "classification", "operator", "cause", "fused with", "cases"),
        *("confidence", "why"),
    )
    rows = tuple(
        (
            *(name(f.key), TableCell(f.classification), TableCell(f.operator), TableCell(f.cause)),
            *(TableCell(f.location), count(f.count), TableCell(f.confidence)),
            TableCell(f.argument),
        )
        for f in record.sorted_findings[:MAX_ROWS]
    )
    return PageTable(counted(len(record.findings), "distinct finding"), columns, rows)


def _outcomes(record: HuntResult) -> PageTable:
    rows = tuple((name(outcome), count(n)) for outcome, n in sorted(record.counts.items()))
    return PageTable("Cases of the store by outcome", ("outcome", "cases"), rows)
