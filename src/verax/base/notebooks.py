"""What notebooks show of networks, programs and verdicts: HTML of text, nothing of it active.

Records know nothing of reports; the module that renders one is loaded by its name, and only when a
notebook asks.
"""

from __future__ import annotations

from html import escape
from importlib import import_module

LINES = 400
"""Of a long text; the rest is counted."""
STYLE = "white-space:pre;overflow-x:auto;font-family:monospace;line-height:1.3"


def of_text(title: str, text: str) -> str:
    """A text under its title, which opens and closes it."""
    lines = text.splitlines()
    shown = "\n".join(lines[:LINES])
    if len(lines) > LINES:
        shown += f"\n... and {len(lines) - LINES} lines more"
    return (
        f"<details open><summary><b>{escape(title)}</b></summary>"
        f'<div style="{STYLE}">{escape(shown)}</div></details>'
    )


def of_verdict(verdict: object) -> str:
    """A `Verdict` as `verax check` prints it."""
    found: str = import_module("verax.report.notebooks").verdict_html(verdict)
    return found
