"""A `HuntResult` for the terminal: its figures, and the surest findings."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from verax.records.hunt import HuntResult

SHOWN = 20
"""Findings in the table; the store and the record have all."""


def render_hunt(result: HuntResult) -> RenderableType:
    """What `verax hunt` prints."""
    lines: list[RenderableType] = [
        Text(result.figures()),
        Text(f"the store's cases: {result.outcomes() or 'none yet'}"),
    ]
    if result.findings:
        table = Table("finding", "operator", "cause", "fused with", "cases", "confidence", box=None)
        for f in result.sorted_findings[:SHOWN]:
            texts = (f.classification, f.operator, f.cause, f.location, str(f.count), f.confidence)
            table.add_row(*(escape(t) for t in texts))
        lines.append(table)
    if len(result.findings) > SHOWN:
        lines.append(Text(f"... and {len(result.findings) - SHOWN} more in the store"))
    return Group(*lines)
