"""What `verax formats` does: the files that Verax reads."""

from __future__ import annotations

from pathlib import Path

from verax.cli.console import can_write, output, write_json
from verax.formats import FORMATS
from verax.report.tables import Column, FittingTable


def perform(
    *,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.formats`."""
    can_write(json)
    columns = Column("format"), Column("suffix", rank=1), Column("what it holds", rank=2)
    rows = [
        (file_format.name, ", ".join(file_format.suffixes), file_format.holds)
        for file_format in FORMATS
    ]
    output.print(FittingTable("", columns, rows))
    facts = {f.name: {"suffixes": f.suffixes, "holds": f.holds} for f in FORMATS}
    write_json(json, "verax.formats/1", {"formats": facts})
