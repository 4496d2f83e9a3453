"""The HTML file of a run (`--verax-report`): the records of its judgements, rendered."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from verax.base.errors import UsageError
from verax.base.files import atomic_write
from verax.records.verdict import Verdict
from verax.report.notebooks import verdict_html
from verax.testing.judgement import Judgement

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Verax: {title}</title>
</head>
<body>
<h1>{title}</h1>
{sections}
</body>
</html>
"""


def write(judgements: Sequence[Judgement], path: Path) -> None:
    """Write the report on every judgement that has a record. Raises `UsageError` for a file that
    cannot be written or a record that cannot be read."""
    write_report([_verdict(row) for row in judgements if row.record], path)


def _verdict(row: Judgement) -> Verdict:
    try:
        return Verdict.from_json(Path(row.record).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"the record of {row.test} cannot be read ({error.strerror})", place=row.record
        ) from error


def write_report(records: Sequence[Verdict], path: Path) -> None:
    """Write one HTML file, which loads nothing, on verdicts."""
    sections = [
        f"<section><h2>{html.escape(record.subject.get('test', ''))}</h2>{verdict_html(record)}"
        "</section>"
        for record in records
    ]
    title = f"{len(records)} verdicts"
    with atomic_write(path, durable=False) as stream:
        stream.write(PAGE.format(title=title, sections="\n".join(sections)).encode())
