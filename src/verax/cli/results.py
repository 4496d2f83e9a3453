"""Where the commands that judge or measure write their records: JSON, a page, Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verax.cli.console import write_text
from verax.report import issue_text, write_report


def write_record(
    record: Any, json: Path | None, html: Path | None = None, markdown: Path | None = None
) -> None:
    """Write a record to the files that are given; never half of one."""
    write_text(json, record.to_json())
    if markdown is not None:
        write_text(markdown, issue_text(record).rstrip("\n"))
    if html is not None:
        write_report(record, html)
