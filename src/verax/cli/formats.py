"""`verax formats`: the files that Verax reads."""

from __future__ import annotations

from rich.table import Table

from verax.cli.console import Json, can_write, output, write_json
from verax.formats import FORMATS


def command(json: Json = None) -> None:
    """List the file formats that Verax reads."""
    can_write(json)
    table = Table("format", "suffix", "what it holds")
    for found in FORMATS:
        table.add_row(found.name, ", ".join(found.suffixes), found.holds)
    output.print(table)
    facts = {f.name: {"suffixes": f.suffixes, "holds": f.holds} for f in FORMATS}
    write_json(json, "verax.formats/1", {"formats": facts})
