"""A report as HTML for notebooks: the terminal's own, colors included."""

from __future__ import annotations

import io

from rich.console import Console

from verax.base.notebooks import STYLE
from verax.records.verdict import Verdict
from verax.report.verdict import render_verdict

WIDTH = 110


def verdict_html(verdict: Verdict) -> str:
    """What `verax check` prints of a verdict."""
    console = Console(
        record=True, file=io.StringIO(), width=WIDTH, force_jupyter=False, force_terminal=True
    )
    console.print(render_verdict(verdict))
    form = f'<div style="{STYLE}">{{code}}</div>'
    return console.export_html(inline_styles=True, code_format=form)
