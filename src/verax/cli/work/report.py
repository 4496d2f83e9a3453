"""What `verax report` does: reads records, and writes them as a page or for other viewers."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from verax.base.errors import UsageError
from verax.cli import console
from verax.cli.console import can_write, write_text
from verax.report import issue_text, node_data, read_any_record, write_report
from verax.report.netron import annotated_path, write_annotated


def perform(
    *,
    records: list[Path],
    output: Path | None,
    markdown: Path | None,
    model_explorer: Path | None,
    annotate: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.report`."""
    if output is None and markdown is None and model_explorer is None and annotate is None:
        output = records[0].with_suffix(".html")
    annotated = None if annotate is None else annotated_path(annotate)
    can_write(output, markdown, model_explorer, annotated)
    targets = [p for p in (output, markdown, model_explorer, annotated) if p is not None]
    for target in targets:
        if any(target.absolute() == record.absolute() for record in records):
            raise UsageError(
                "this would write over the record itself",
                place=str(target),
                next_step="choose another name",
            )
    read = [read_any_record(path) for path in records]
    if output is not None:
        write_report(read, output)
    if markdown is not None:
        write_text(markdown, "\n\n".join(issue_text(record).rstrip() for record in read))
    if len(read) > 1 and (model_explorer is not None or annotate is not None):
        raise UsageError(
            "other viewers show one verdict at a time", next_step="give one record with this option"
        )
    if model_explorer is not None:
        write_text(model_explorer, node_data(read[0]).rstrip())
    if annotate is not None and annotated is not None:
        write_annotated(read[0], annotate, annotated)
    _say(targets)


def _say(targets: list[Path]) -> None:
    for target in targets:
        console.output.print(f"written: {escape(str(target))}", highlight=False, soft_wrap=True)
