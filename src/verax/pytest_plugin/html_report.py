"""The HTML file of a run (`--verax-report`): the records of its judgements, rendered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verax.base.errors import UsageError
from verax.records.verdict import Verdict
from verax.report import write_report
from verax.testing.judgement import Judgement


def write(judgements: Sequence[Judgement], path: Path) -> None:
    """Write the report on judgements, one at least, all of which have a record. Raises `UsageError`
    for a file that cannot be written or a record that cannot be read."""
    write_report([_verdict(row) for row in judgements], path)


def _verdict(row: Judgement) -> Verdict:
    try:
        return Verdict.from_json(Path(row.record).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"the record of {row.test} cannot be read ({error.strerror})", place=row.record
        ) from error
